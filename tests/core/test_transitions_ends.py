"""What the end of a run leaves behind, and what comes too late for it."""

from __future__ import annotations

from datetime import datetime

import pytest

from store.events import (
    Event,
    Failure,
    GiveBack,
    Kind,
    Reclaim,
    Requeue,
)
from store.policy import POISON_AFTER, WORKER_LOST
from store.transitions import after, decide, evaluate
from tests.contract import rows
from tests.contract.rows import LEASE, NOW, later, row, wake
from tests.core.cells import (
    ATTEMPT,
    EVENTS,
    FAILING,
    OWN_TIME,
    POLICY,
    leaving,
    ways,
)


@pytest.mark.parametrize("kind", [Kind.DONE, Kind.AGAIN, Kind.PARK])
@pytest.mark.parametrize("when", ["plain", "woken", "cancelled", "both"])
def test_a_success_clears_the_failures_and_history_tells_the_first_one(kind: Kind, when: str) -> None:
    before, event, policy = leaving(kind.value, when, **FAILING)

    decision = decide(before, event, policy)
    left = evaluate(before, decision, NOW)

    assert left is not None
    assert (left.retries, left.failure, left.failure_code, left.failure_streak, left.last_error) == (
        0,
        None,
        None,
        0,
        None,
    )
    assert decision.history[0][:3] == ("recovered", ATTEMPT, None)


@pytest.mark.parametrize("kind", [Kind.DONE, Kind.AGAIN, Kind.PARK])
def test_an_idle_run_leaves_no_history(kind: Kind) -> None:
    before, event, policy = leaving(kind.value)

    assert decide(before, event, policy).history == ()


def test_a_run_that_counted_what_it_got_through_is_in_the_history() -> None:
    job = row("processing")

    decision = decide(job, rows.finish(job, counts=(("files", 3), ("failed", 0))), POLICY)

    assert decision.history == (("counted", ATTEMPT, None, {"files": 3, "failed": 0}),)


@pytest.mark.parametrize("way", ["retry", "fail", "reclaim"])
@pytest.mark.parametrize("when", ["plain", "woken", "cancelled", "both"])
def test_a_failure_is_counted_whatever_came_meanwhile(way: str, when: str) -> None:
    before, event, policy = leaving(way, when, **FAILING)
    code = WORKER_LOST if way == "reclaim" else "broken"

    decision = decide(before, event, policy)
    left = evaluate(before, decision, NOW)

    assert left is not None
    assert (left.retries, left.failure_code) == (3, code)
    assert left.failure_streak == (3 if code == "broken" else 1)
    assert left.last_error == f"attempt failed: {code}"
    assert left.failure == f'{{"code":"{code}"}}'
    assert decision.history[0][:3] == ("attempt_failed", ATTEMPT, code)


@pytest.mark.parametrize("way", ["release", "give-back", "reclaim-stopping"])
@pytest.mark.parametrize("when", ["plain", "woken", "cancelled", "both"])
def test_what_is_given_back_counts_for_nothing(way: str, when: str) -> None:
    before, event, policy = leaving(way, when, **FAILING)

    left = after(before, event, NOW, policy)

    assert left is not None
    counted = [name for name in FAILING if name != "last_error"]
    assert {name: getattr(left, name) for name in counted} == {name: FAILING[name] for name in counted}


def test_coming_back_again_and_again_fills_no_history() -> None:
    job = row("processing")
    back = GiveBack(job.lease_id or "", job.attempt, 10, "type_unknown_here")
    first = decide(job, back, POLICY)
    assert [entry.kind for entry in first.history] == ["given_back"]
    assert decide(job._replace(last_error="given back: type_unknown_here"), back, POLICY).history == ()
    assert [entry.kind for entry in decide(job._replace(last_error="attempt failed: x"), back, POLICY).history] == [
        "given_back"
    ]


def test_a_run_that_asked_to_be_retried_is_told_from_one_that_raised() -> None:
    job = row("processing")

    asked = decide(job, rows.finish(job, Kind.RETRY, asked=True), POLICY)
    raised = decide(job, rows.finish(job, Kind.RETRY), POLICY)

    assert [entry.kind for entry in (*asked.history, *raised.history)] == ["retry_asked", "attempt_failed"]
    assert asked.write == raised.write


def test_a_failure_is_written_down_without_what_is_not_known() -> None:
    job = row("processing")
    failure = Failure("OSError", "disk_full", place="jobs.py:7 in run")

    left = after(job, rows.finish(job, Kind.RETRY, failure=failure), NOW, POLICY)

    assert left is not None
    assert left.failure == '{"class":"OSError","code":"disk_full","place":"jobs.py:7 in run"}'


def test_a_failure_with_another_code_starts_a_new_streak() -> None:
    before, event, policy = leaving("retry", retries=7, failure_code="other", failure_streak=7)

    left = after(before, event, NOW, policy)

    assert left is not None
    assert (left.state, left.retries, left.failure_streak) == ("queued", 8, 1)


@pytest.mark.parametrize(("retries", "state"), [(1, "queued"), (2, "failed")])
def test_a_job_fails_when_it_has_no_retries_left(retries: int, state: str) -> None:
    job = row("processing", retries=retries, max_retries=2)

    left = after(job, EVENTS["retry"], NOW, POLICY)

    assert left is not None
    assert (left.state, left.retries) == (state, retries + 1)


def test_no_retries_at_all_means_that_the_first_failure_ends_it() -> None:
    left = after(row("processing", max_retries=0), EVENTS["retry"], NOW, POLICY)

    assert left is not None
    assert left.state == "failed"


def test_the_five_thousandth_failure_is_recorded_and_comes_back_within_the_cap() -> None:
    job = row("processing", retries=5000)

    left = after(job, EVENTS["retry"], NOW, POLICY)

    assert left is not None
    assert (left.state, left.retries) == ("queued", 5001)
    assert later(240) <= left.run_at <= later(300)


def test_five_lost_workers_in_a_row_hold_any_type() -> None:
    job, states = row("processing"), []
    for _ in range(POISON_AFTER):
        left = after(job, Reclaim(LEASE), NOW, POLICY)
        assert left is not None
        states.append(left.state)
        job = row("processing", **{name: getattr(left, name) for name in FAILING})

    assert states == ["queued"] * 4 + ["quarantined"]


def test_a_stop_in_between_does_not_add_to_the_lost_workers() -> None:
    job = row("processing", failure_code=WORKER_LOST, failure_streak=4, retries=4, stopping=True)

    left = after(job, Reclaim(LEASE), NOW, POLICY)

    assert left is not None
    assert (left.state, left.retries, left.failure_streak, left.run_at) == ("queued", 4, 4, NOW)


def test_a_reclaim_is_written_only_while_the_lease_lies_in_the_past() -> None:
    for way in ("reclaim", "reclaim-stopping", "reclaim-exhausted", "reclaim-poisoned"):
        for when in ("plain", "woken", "cancelled", "both"):
            decision = decide(*leaving(way, when))
            assert decision.write is not None
            assert decision.write.lapsed


def test_no_other_write_asks_for_a_lapsed_lease() -> None:
    for way, when, _ in ways():
        decision = decide(*leaving(way, when))
        assert decision.write is not None
        assert decision.write.lapsed == way.startswith("reclaim")


def test_a_wake_in_mid_run_saves_a_lost_run_from_ending_the_job() -> None:
    job = row("processing", max_retries=0)
    woken = after(job, wake(delay=50, payload="[2]", max_retries=0), NOW, POLICY)
    assert woken is not None

    by_finish = after(woken, rows.finish(job, Kind.RETRY), NOW, POLICY)
    by_reclaim = after(woken, Reclaim(LEASE), NOW, POLICY)

    for left in (by_finish, by_reclaim):
        assert left is not None
        assert (left.state, left.run_at, left.payload) == ("queued", later(50), "[2]")


@pytest.mark.parametrize("way", ["fail", "retry-exhausted", "reclaim-exhausted"])
@pytest.mark.parametrize("woken_for", [later(-5), later(7200)], ids=["past", "far"])
def test_what_failed_for_good_has_no_time_of_its_own_beside_a_wakes(way: str, woken_for: datetime) -> None:
    before, event, policy = leaving(way, "woken", run_at=woken_for)

    left = after(before, event, NOW, policy)

    assert left is not None
    assert (left.state, left.run_at) == ("queued", woken_for)


@pytest.mark.parametrize("event", [wake(), Requeue()], ids=["wake", "requeue"])
def test_an_old_result_is_not_carried_into_a_fresh_start(event: Event) -> None:
    before = row("failed", result="[1]")

    left = after(before, event, NOW, POLICY)

    assert left is not None
    assert (left.state, left.result) == ("queued", None)


def test_history_tells_what_became_of_the_row() -> None:
    for way, when, cell in ways():
        if way.split("-")[0] in ("retry", "fail", "reclaim") and way != "reclaim-stopping":
            detail = decide(*leaving(way, when)).history[0].detail
            assert detail["state"] == cell
            assert ("delay" in detail) == (cell == "queued" and OWN_TIME.get(way) is not None)


@pytest.mark.parametrize("kind", [Kind.AGAIN, Kind.RETRY, Kind.PARK])
def test_a_checkpoint_that_is_left_out_stays(kind: Kind) -> None:
    job = row("processing", checkpoint="[1]", checkpoint_generation=5)

    left = after(job, rows.finish(job, kind, sets_checkpoint=False, checkpoint="[2]"), NOW, POLICY)

    assert left is not None
    assert (left.checkpoint, left.checkpoint_generation) == ("[1]", 5)


@pytest.mark.parametrize("kind", [Kind.AGAIN, Kind.RETRY, Kind.PARK])
@pytest.mark.parametrize("when", ["plain", "woken"])
def test_a_checkpoint_remembers_the_generation_that_was_served(kind: Kind, when: str) -> None:
    before, _, policy = leaving(kind.value, when)
    served = row().generation

    left = after(
        before, rows.finish(before, kind, generation=served, sets_checkpoint=True, checkpoint="[2]"), NOW, policy
    )

    assert left is not None
    assert (left.checkpoint, left.checkpoint_generation) == ("[2]", served)


def test_a_checkpoint_can_be_taken_away() -> None:
    job = row("processing", checkpoint="[1]", checkpoint_generation=5)

    left = after(job, rows.finish(job, Kind.AGAIN, sets_checkpoint=True), NOW, POLICY)

    assert left is not None
    assert (left.checkpoint, left.checkpoint_generation) == (None, None)


@pytest.mark.parametrize("when", ["plain", "woken"])
def test_done_clears_the_checkpoint(when: str) -> None:
    before, event, policy = leaving("done", when, checkpoint="[1]", checkpoint_generation=5)

    left = after(before, event, NOW, policy)

    assert left is not None
    assert (left.checkpoint, left.checkpoint_generation) == (None, None)


def test_done_keeps_its_result() -> None:
    job = row("processing")

    left = after(job, rows.finish(job, result='{"n":2}'), NOW, POLICY)

    assert left is not None
    assert (left.state, left.result, left.finished_at) == ("completed", '{"n":2}', NOW)
