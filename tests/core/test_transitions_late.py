"""What is said twice or too late, and what an operator says."""

from __future__ import annotations

from datetime import timedelta

import pytest

from store import clock
from store.clock import PARKED
from store.events import (
    Cancel,
    Event,
    Kind,
    Requeue,
    Reschedule,
    Wake,
)
from store.job import Job
from store.transitions import Answer, Decision, after, decide, evaluate
from tests.contract import rows
from tests.contract.rows import NOW, later, row, wake
from tests.core.cells import (
    EVENTS,
    FAILING,
    POLICY,
    leaving,
)

# --- the same again, and too late -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", list(Kind))
@pytest.mark.parametrize("when", ["plain", "woken", "cancelled", "both"])
def test_the_same_finish_sent_twice_changes_nothing_the_second_time(kind: Kind, when: str) -> None:
    before, event, policy = leaving(kind.value, when)
    first = decide(before, event, policy)
    left = evaluate(before, first, NOW)

    assert decide(left, event, policy) == Decision(Answer.REPEATED, first.state)


@pytest.mark.parametrize("event", ["release", "give-back", "reclaim"])
def test_a_finish_after_the_lease_was_given_up_is_stale(event: str) -> None:
    left = after(row("processing"), EVENTS[event], NOW, POLICY)

    assert decide(left, EVENTS["done"], POLICY).answer is Answer.STALE


def test_a_finish_is_remembered_while_the_next_attempt_runs() -> None:
    left = after(row("processing"), EVENTS["again"], NOW, POLICY)
    left = after(left, EVENTS["claim"], NOW, POLICY)

    assert decide(left, EVENTS["again"], POLICY) == Decision(Answer.REPEATED, "processing")


def test_a_finish_of_a_generation_from_before_the_rows_birth_is_stale() -> None:
    reborn = row("processing", created_at=NOW - timedelta(seconds=1), generation=clock.micros(NOW))
    old = clock.micros(reborn.created_at) - 1

    assert decide(reborn, rows.finish(reborn, generation=old), POLICY).answer is Answer.STALE


def test_a_cancel_asked_for_twice_is_one_cancel() -> None:
    asked = after(row("processing"), Cancel(), NOW, POLICY)
    assert asked is not None

    assert asked.cancel_requested_at == NOW
    assert asked.generation == row("processing").generation
    assert decide(asked, Cancel(), POLICY) == Decision(Answer.REPEATED, "processing")


@pytest.mark.parametrize("first", [Cancel(), wake()], ids=["cancel-first", "wake-first"])
@pytest.mark.parametrize("state", ["queued", "processing"])
def test_of_a_cancel_and_a_wake_the_later_word_wins(state: str, first: Event) -> None:
    job: Job | None = row(state)
    second: Event = wake() if isinstance(first, Cancel) else Cancel()
    for event in (first, second):
        job = after(job, event, NOW, POLICY)
    job = after(job, EVENTS["release"], NOW, POLICY)

    assert job is not None
    assert job.state == ("queued" if isinstance(second, Wake) else "cancelled")


# --- what an operator does --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["quarantined", "failed", "cancelled"])
def test_a_requeue_is_a_fresh_start(state: str) -> None:
    cancelled = {"cancel_requested_at": later(-6)} if state != "quarantined" else {}
    before = row(state, **(FAILING | cancelled))

    left = after(before, Requeue(), NOW, POLICY)

    assert left is not None
    assert rows.impossible(left) == []
    assert (left.state, left.run_at, left.generation) == ("queued", NOW, before.generation + 1)
    assert (left.retries, left.failure_code, left.failure_streak, left.last_error) == (0, None, 0, None)
    assert (left.finished_at, left.held_at, left.cancel_requested_at) == (None, None, None)


def test_a_reschedule_moves_the_time_either_way_and_is_a_new_intent() -> None:
    before = row(run_at=later(100))

    for event, moment in (
        (Reschedule(delay=5), later(5)),
        (Reschedule(delay=500), later(500)),
        (Reschedule(run_at=PARKED), PARKED),
        (Reschedule(run_at=later(-1)), later(-1)),
    ):
        left = after(before, event, NOW, POLICY)
        assert left is not None
        assert (left.run_at, left.generation) == (moment, before.generation + 1)
