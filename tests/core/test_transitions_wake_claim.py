"""What a wake and a claim do to a row, column by column."""

from __future__ import annotations

import pytest

from store import clock
from store.clock import PARKED
from store.events import (
    Claim,
)
from store.job import TERMINAL
from store.transitions import Answer, Decision, after, decide
from tests.contract import rows
from tests.contract.rows import NOW, OTHER_LEASE, later, row, wake
from tests.core.cells import (
    EVENTS,
    ID,
    POLICY,
)

# --- what a claim does ------------------------------------------------------------------------------------------------


def test_a_claim_takes_the_lease_counts_the_attempt_and_serves_what_was_wanted_so_far() -> None:
    before = row(retries=2, progress_percent=80, progress_message="nearly", attempt=4)

    left = after(before, Claim(ID, OTHER_LEASE, "me", 60), NOW, POLICY)

    assert left == before._replace(
        state="processing",
        lease_id=OTHER_LEASE,
        leased_until=later(60),
        worker="me",
        attempt=5,
        due_at=before.run_at,
        started_at=NOW,
        run_at=PARKED,
        progress_percent=None,
        progress_message=None,
        revision=before.revision + 1,
        updated_at=NOW,
    )


def test_a_claim_never_takes_over_a_row_whose_lease_has_lapsed() -> None:
    before = row("processing", leased_until=later(-3600), run_at=later(-60))

    assert decide(before, EVENTS["claim"], POLICY, now=NOW) == Decision(Answer.REFUSED, "processing")


@pytest.mark.parametrize("remembered", ["ended_lease", "finish_token"])
def test_a_lease_that_has_ended_can_not_claim_again(remembered: str) -> None:
    before = row(**{remembered: OTHER_LEASE})

    assert decide(before, EVENTS["claim"], POLICY, now=NOW).answer is Answer.REFUSED


# --- what a wake does -------------------------------------------------------------------------------------------------


def test_a_wake_of_nothing_makes_a_row_whose_first_generation_is_its_birth_in_microseconds() -> None:
    event = wake(owner="o", priority=3, max_retries=7, delay=1.5, request_id="r", trace="t")

    born = after(None, event, NOW, POLICY)

    assert born is not None
    assert rows.impossible(born) == []
    assert (born.state, born.attempt, born.retries, born.revision) == ("queued", 0, 0, 1)
    assert (born.generation, born.created_at, born.updated_at) == (clock.micros(NOW), NOW, NOW)
    assert born.run_at == later(1.5)
    for field in ("id", "domain", "queue", "job_type", "key", "payload", "owner", "priority", "max_retries"):
        assert getattr(born, field) == getattr(event, field)
    assert (born.request_id, born.trace) == ("r", "t")


@pytest.mark.parametrize("state", ["queued", "processing"])
def test_a_wake_joins_a_live_row(state: str) -> None:
    before = row(state, owner="first", priority=4, retries=2, failure_code="broken", failure_streak=2, run_at=later(50))

    left = after(before, wake(owner="second", priority=6, payload="[2]", delay=10, max_retries=9), NOW, POLICY)

    assert left == before._replace(
        generation=before.generation + 1,
        run_at=later(10),
        payload="[2]",
        max_retries=9,
        revision=before.revision + 1,
        updated_at=NOW,
    )


def test_the_more_urgent_priority_and_the_earlier_time_win_on_a_live_row() -> None:
    left = after(row(priority=7, run_at=later(5)), wake(priority=2, run_at=later(50)), NOW, POLICY)

    assert left is not None
    assert (left.priority, left.run_at) == (2, later(5))


def test_an_owner_is_taken_where_there_was_none() -> None:
    left = after(row(owner=None), wake(owner="somebody"), NOW, POLICY)

    assert left is not None
    assert left.owner == "somebody"


def test_a_wake_withdraws_a_cancel_that_was_asked_for_earlier() -> None:
    left = after(row("processing", cancel_requested_at=later(-1)), wake(), NOW, POLICY)

    assert left is not None
    assert (left.state, left.cancel_requested_at) == ("processing", None)


@pytest.mark.parametrize("state", sorted(TERMINAL))
def test_a_wake_starts_an_ended_row_afresh(state: str) -> None:
    before = row(
        state,
        priority=2,
        retries=4,
        failure="{}",
        failure_code="x",
        failure_streak=4,
        last_error="e",
        cancel_requested_at=later(-9),
    )

    left = after(before, wake(priority=8, delay=20), NOW, POLICY)

    assert left is not None
    assert rows.impossible(left) == []
    assert (left.state, left.finished_at, left.cancel_requested_at) == ("queued", None, None)
    assert (left.retries, left.failure, left.failure_code, left.failure_streak, left.last_error) == (
        0,
        None,
        None,
        0,
        None,
    )
    assert (left.priority, left.run_at, left.generation) == (8, later(20), before.generation + 1)
    assert left.attempt == before.attempt


def test_a_wake_of_a_held_row_updates_its_payload_and_leaves_it_held() -> None:
    before = row("quarantined")

    left = after(before, wake(payload="[2]"), NOW, POLICY)

    assert left is not None
    assert (left.state, left.payload, left.generation) == ("quarantined", "[2]", before.generation + 1)
    assert (left.held_at, left.retries, left.run_at) == (before.held_at, before.retries, PARKED)


def test_a_wake_far_beyond_the_calendar_is_parked() -> None:
    left = after(None, wake(delay=1e15), NOW, POLICY)

    assert left is not None
    assert left.run_at == PARKED
