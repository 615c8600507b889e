"""The state table, walked cell by cell, and what holds of every cell."""

from __future__ import annotations

from datetime import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store.clock import PARKED
from store.events import (
    Claim,
    Event,
    Expire,
    Finish,
    GiveBack,
    Kind,
    Prune,
    Reclaim,
    Release,
    Requeue,
    Reschedule,
    Wake,
)
from store.job import TERMINAL, Job, State
from store.policy import Policy
from store.transitions import Answer, after, decide, evaluate
from tests.contract import rows
from tests.contract.rows import LEASE, NOW, later, row
from tests.core.cells import (
    EVENTS,
    MARKS,
    OWN_TIME,
    POLICY,
    cells,
    leaving,
    standing,
    ways,
)


def test_the_table_has_a_cell_for_every_state() -> None:
    walked = {(event, state) for event, state, _ in cells()}

    assert walked == {(event, state) for event, _, _ in cells() for state in ("none", *rows.STATES)}
    assert {type(EVENTS[event]) for event, _ in walked} == set(Event.__args__)
    assert {event.kind for name in EVENTS if isinstance(event := EVENTS[name], Finish)} == set(Kind)


@pytest.mark.parametrize(("event", "state", "cell"), cells(), ids=lambda value: value)
def test_each_cell_of_the_state_table(event: str, state: str, cell: str) -> None:
    before = standing(state, event)

    decision = decide(before, EVENTS[event], POLICY, now=NOW)
    left = evaluate(before, decision, NOW)

    assert decision.answer is MARKS[cell[0]]
    assert decision.state == (cell[1:] or None)
    assert (left.state if left else None) == (cell[1:] or None)
    assert (decision.write is not None) == (cell[0] == "+")
    if cell[0] == "+":
        assert left is None or rows.impossible(left) == []
    else:
        assert left == before
        assert decision.history == ()


@pytest.mark.parametrize(("way", "when", "cell"), ways(), ids=lambda value: value)
def test_each_way_out_of_processing(way: str, when: str, cell: str) -> None:
    before, event, policy = leaving(way, when)

    decision = decide(before, event, policy)
    left = evaluate(before, decision, NOW)

    assert decision.answer is Answer.APPLIED
    assert decision.state == (None if cell == "none" else cell)
    assert (left.state if left else "none") == cell
    if left is not None:
        assert rows.impossible(left) == []
        assert left.ended_lease == LEASE
        assert left.cancel_requested_at == before.cancel_requested_at
        assert (left.generation, left.payload, left.attempt) == (before.generation, before.payload, before.attempt)


@pytest.mark.parametrize("way", OWN_TIME)
@pytest.mark.parametrize("woken_for", [later(-5), later(3), later(7200), PARKED], ids=["past", "soon", "far", "never"])
def test_whatever_returns_a_row_takes_the_earlier_of_its_own_time_and_the_rows(way: str, woken_for: datetime) -> None:
    before, event, policy = leaving(way, "woken", run_at=woken_for)

    left = after(before, event, NOW, policy)

    assert left is not None
    seconds = OWN_TIME[way]
    assert left.run_at == min(woken_for, PARKED if seconds is None else later(seconds))


@pytest.mark.parametrize(
    "way", ["done", "retry-exhausted", "fail", "cancelled", "retry-poisoned", "reclaim-exhausted", "reclaim-poisoned"]
)
def test_a_row_that_ends_or_is_held_waits_for_nothing(way: str) -> None:
    before, event, policy = leaving(way, run_at=PARKED)

    left = after(before, event, NOW, policy)

    assert left is not None
    assert left.run_at == PARKED


def test_again_at_a_moment_is_due_then_and_again_by_delay_is_due_so_many_seconds_from_the_write() -> None:
    job = row("processing")

    at = after(job, rows.finish(job, Kind.AGAIN, run_at=later(99)), NOW, POLICY)
    by = after(job, rows.finish(job, Kind.AGAIN, delay=99.5), NOW, POLICY)

    assert at is not None
    assert by is not None
    assert (at.run_at, by.run_at) == (later(99), later(99.5))


def test_a_wake_in_mid_run_is_served_by_its_own_time_when_the_run_is_done() -> None:
    job = row("processing", generation=row().generation + 1, run_at=later(40))

    left = after(job, EVENTS["done"], NOW, POLICY)

    assert left is not None
    assert (left.state, left.run_at) == ("queued", later(40))


# --- what holds of every row and every event --------------------------------------------------------------------------


def _meet(dice: rows.Dice) -> tuple[Job | None, Event, Policy]:
    job = rows.job_of(dice, rows.STATES if dice.one_in(2) else (State.PROCESSING.value,))
    meet = dice.choice((rows.wake_of, rows.claim_of, rows.event_of, rows.event_of))
    return None if dice.one_in(9) else job, meet(dice, job), rows.policy_of(dice)


@settings(max_examples=100, deadline=None, print_blob=True)
@given(st.lists(rows.rolled(_meet), min_size=1, max_size=40))
def test_what_holds_of_every_event(meetings: list[tuple[Job | None, Event, Policy]]) -> None:
    for meeting in meetings:
        _holds(*meeting)


def _holds(before: Job | None, event: Event, policy: Policy) -> None:
    decision = decide(before, event, policy, now=NOW)
    left = evaluate(before, decision, NOW)

    assert (decision.write is not None) == (decision.answer is Answer.APPLIED)
    assert (left.state if left else None) == decision.state
    if decision.write is None:
        assert left == before
        return
    if before is None:
        assert isinstance(event, Wake)
        return
    if left is None:
        if isinstance(event, Prune):
            assert before.state in (*TERMINAL, State.QUARANTINED)
            assert before.generation == event.generation
            return
        assert isinstance(event, Finish)
        assert (event.kind, policy.keep_finished) == (Kind.DONE, False)
        return
    assert rows.impossible(left) == []
    assert (left.revision, left.updated_at) == (before.revision + 1, NOW)
    assert left[:5] == before[:5]
    assert left.created_at == before.created_at
    assert (left.generation > before.generation) == isinstance(event, (Wake, Requeue, Reschedule))
    assert left.attempt == before.attempt + isinstance(event, Claim)
    assert left.payload == before.payload or isinstance(event, Wake)
    if left.checkpoint != before.checkpoint:
        assert isinstance(event, Finish)
    if before.owner is not None:
        assert left.owner == before.owner
    if before.state == State.QUARANTINED:
        assert left.state == State.QUARANTINED or isinstance(event, Requeue)
    if left.lease_id not in (None, before.lease_id):
        assert isinstance(event, Claim)
        assert before.state == State.QUEUED
    if before.state == State.PROCESSING and left.state != State.PROCESSING:
        assert isinstance(event, (Finish, Release, GiveBack, Reclaim, Expire))
        assert event.lease_id == before.lease_id == left.ended_lease
        if left.state == State.QUEUED:
            assert left.run_at <= before.run_at
        if before.cancel_requested_at is not None:
            done = isinstance(event, Finish) and event.kind is Kind.DONE
            assert left.state == State.CANCELLED or (done and left.state == State.COMPLETED)
