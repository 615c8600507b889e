"""The state table, walked cell by cell as data, and what holds of every cell."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store import clock
from store.clock import PARKED
from store.events import (
    Cancel,
    Claim,
    Event,
    Failure,
    Finish,
    GiveBack,
    Kind,
    Reclaim,
    Release,
    Requeue,
    Reschedule,
    Wake,
)
from store.job import TERMINAL, Job, State
from store.policy import POISON_AFTER, WORKER_LOST, Policy
from store.transitions import Answer, Decision, after, decide, evaluate
from tests.contract import rows
from tests.contract.rows import LEASE, NOW, OTHER_LEASE, SPENT_LEASE, TYPE, later, row, wake

POLICY = Policy(TYPE)
KEEPS_NONE = Policy(TYPE, keep_finished=False)
QUARANTINES = Policy(TYPE, quarantine_after=3)

MARKS = {
    "+": Answer.APPLIED,
    "=": Answer.REPEATED,
    "~": Answer.STALE,
    "-": Answer.REFUSED,
    "0": Answer.GONE,
}

# What each event does to a row in each state: the answer's mark and the state afterwards. Fenced events carry the lease
# that the row has or had last. "told" is a finish that the row remembers, "other" comes from another lease, "late" from
# another attempt. "again" of a claim is the same claim once more, "spent" a claim by a lease that has ended.
TABLE = """
                none     queued       processing    completed   failed   cancelled   quarantined
wake            +queued  +queued      +processing   +queued     +queued  +queued     +quarantined
wake-once       +queued  =queued      =processing   =completed  =failed  =cancelled  =quarantined
claim           0        +processing  -processing   -completed  -failed  -cancelled  -quarantined
claim-early     0        -queued      -processing   -completed  -failed  -cancelled  -quarantined
claim-again     0        -queued      =processing   -completed  -failed  -cancelled  -quarantined
claim-spent     0        -queued      -processing   -completed  -failed  -cancelled  -quarantined
done            0        ~queued      +completed    ~completed  ~failed  ~cancelled  ~quarantined
again           0        ~queued      +queued       ~completed  ~failed  ~cancelled  ~quarantined
retry           0        ~queued      +queued       ~completed  ~failed  ~cancelled  ~quarantined
park            0        ~queued      +queued       ~completed  ~failed  ~cancelled  ~quarantined
fail            0        ~queued      +failed       ~completed  ~failed  ~cancelled  ~quarantined
cancelled       0        ~queued      +cancelled    ~completed  ~failed  ~cancelled  ~quarantined
done-told       0        =queued      =processing   =completed  =failed  =cancelled  =quarantined
done-other      0        ~queued      ~processing   ~completed  ~failed  ~cancelled  ~quarantined
done-late       0        ~queued      ~processing   ~completed  ~failed  ~cancelled  ~quarantined
release         0        ~queued      +queued       ~completed  ~failed  ~cancelled  ~quarantined
release-other   0        ~queued      ~processing   ~completed  ~failed  ~cancelled  ~quarantined
release-late    0        ~queued      ~processing   ~completed  ~failed  ~cancelled  ~quarantined
give-back       0        ~queued      +queued       ~completed  ~failed  ~cancelled  ~quarantined
give-back-other 0        ~queued      ~processing   ~completed  ~failed  ~cancelled  ~quarantined
give-back-late  0        ~queued      ~processing   ~completed  ~failed  ~cancelled  ~quarantined
reclaim         0        ~queued      +queued       ~completed  ~failed  ~cancelled  ~quarantined
reclaim-other   0        ~queued      ~processing   ~completed  ~failed  ~cancelled  ~quarantined
cancel          0        +cancelled   +processing   -completed  -failed  -cancelled  -quarantined
requeue         0        -queued      -processing   -completed  +queued  +queued     +queued
reschedule      0        +queued      -processing   -completed  -failed  -cancelled  -quarantined
"""


def _fenced(lease: str, attempt: int) -> dict[str, Event]:
    generation = row().generation
    return {
        **{
            kind.value: Finish(lease, attempt, generation, kind, failure=Failure.of_code("broken"))
            for kind in (Kind.DONE, Kind.AGAIN, Kind.RETRY, Kind.PARK, Kind.FAIL, Kind.CANCELLED)
        },
        "release": Release(lease, attempt),
        "give-back": GiveBack(lease, attempt, 30.0, "type_unknown"),
        "reclaim": Reclaim(lease),
    }


ATTEMPT = row().attempt
ID = row().id
EVENTS: dict[str, Event] = {
    "wake": wake(),
    "wake-once": wake(once=True),
    "claim": Claim(ID, OTHER_LEASE, "worker", 60),
    "claim-early": Claim(ID, OTHER_LEASE, "worker", 60),
    "claim-again": Claim(ID, LEASE, "worker", 60),
    "claim-spent": Claim(ID, SPENT_LEASE, "worker", 60),
    "done-told": Finish(SPENT_LEASE, ATTEMPT, row().generation, Kind.DONE),
    **_fenced(LEASE, ATTEMPT),
    **{f"{name}-other": event for name, event in _fenced(OTHER_LEASE, ATTEMPT).items()},
    **{f"{name}-late": event for name, event in _fenced(LEASE, ATTEMPT - 1).items()},
    "cancel": Cancel(),
    "requeue": Requeue(),
    "reschedule": Reschedule(delay=30.0),
}


def _cells() -> list[tuple[str, str, str]]:
    head, *lines = [line.split() for line in TABLE.strip().splitlines()]
    return [(event, state, cell) for event, *cells in lines for state, cell in zip(head, cells, strict=True)]


def _before(state: str, event: str) -> Job | None:
    if state == "none":
        return None
    changes: dict[str, Any] = {}
    if state != State.PROCESSING:
        changes["ended_lease"] = LEASE
    if event in ("claim-spent", "done-told"):
        changes |= {"ended_lease": SPENT_LEASE, "finish_token": SPENT_LEASE}
    if event == "claim-early" and state == State.QUEUED:
        changes["run_at"] = later(0.000001)
    return row(state, **changes)


def test_the_table_has_a_cell_for_every_state() -> None:
    walked = {(event, state) for event, state, _ in _cells()}

    assert walked == {(event, state) for event, _, _ in _cells() for state in ("none", *rows.STATES)}
    assert {type(EVENTS[event]) for event, _ in walked} == set(Event.__args__)
    assert {event.kind for name in EVENTS if isinstance(event := EVENTS[name], Finish)} == set(Kind)


@pytest.mark.parametrize(("event", "state", "cell"), _cells(), ids=lambda value: value)
def test_each_cell_of_the_state_table(event: str, state: str, cell: str) -> None:
    before = _before(state, event)

    decision = decide(before, EVENTS[event], POLICY, now=NOW)
    left = evaluate(before, decision, NOW)

    assert decision.answer is MARKS[cell[0]]
    assert decision.state == (cell[1:] or None)
    assert (left.state if left else None) == (cell[1:] or None)
    assert (decision.write is not None) == (cell[0] == "+")
    if cell[0] == "+":
        assert left is not None
        assert rows.impossible(left) == []
    else:
        assert left == before
        assert decision.history == ()


# --- the ways out of processing ---------------------------------------------------------------------------------------

# Where a row goes from ``processing`` by the holder's word, or by a reclaim: plainly, when a wake came meanwhile, when
# a cancel stands, and both (the cancel came last, else the wake would have withdrawn it).
WAYS_OUT = """
                    plain        woken        cancelled  both
done                completed    queued       completed  cancelled
done-keeps-none     none         queued       none       cancelled
again               queued       queued       cancelled  cancelled
park                queued       queued       cancelled  cancelled
retry               queued       queued       cancelled  cancelled
retry-exhausted     failed       queued       cancelled  cancelled
retry-poisoned      quarantined  quarantined  cancelled  cancelled
fail                failed       queued       cancelled  cancelled
fail-poisoned       failed       quarantined  cancelled  cancelled
cancelled           cancelled    queued       cancelled  cancelled
release             queued       queued       cancelled  cancelled
give-back           queued       queued       cancelled  cancelled
reclaim             queued       queued       cancelled  cancelled
reclaim-stopping    queued       queued       cancelled  cancelled
reclaim-exhausted   failed       queued       cancelled  cancelled
reclaim-poisoned    quarantined  quarantined  cancelled  cancelled
"""


def _ways() -> list[tuple[str, str, str]]:
    head, *lines = [line.split() for line in WAYS_OUT.strip().splitlines()]
    return [(way, when, cell) for way, *cells in lines for when, cell in zip(head, cells, strict=True)]


def _leaving(way: str, when: str = "plain", **changes: Any) -> tuple[Job, Event, Policy]:
    """A row in ``processing``, the event that ends that, and the type's policy."""
    name, _, variant = way.replace("give-back", "give_back").partition("-")
    values: dict[str, Any] = {}
    if variant == "exhausted":
        values |= {"max_retries": 2, "retries": 2, "failure_code": "other", "failure_streak": 1}
    if variant == "poisoned":
        code, streak = (WORKER_LOST, POISON_AFTER - 1) if name == "reclaim" else ("broken", 2)
        values |= {"retries": 5, "failure_code": code, "failure_streak": streak}
    if variant == "stopping":
        values["stopping"] = True
    if when in ("woken", "both"):
        values |= {"generation": row().generation + 1, "run_at": later(120)}
    if when in ("cancelled", "both"):
        values["cancel_requested_at"] = later(-1)
    policy = {"keeps-none": KEEPS_NONE, "poisoned": QUARANTINES}.get(variant, POLICY)
    return row("processing", **(values | changes)), EVENTS[name.replace("_", "-")], policy


@pytest.mark.parametrize(("way", "when", "cell"), _ways(), ids=lambda value: value)
def test_each_way_out_of_processing(way: str, when: str, cell: str) -> None:
    before, event, policy = _leaving(way, when)

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


#: For each way back to ``queued``: seconds from now at which the run that ended would itself run again.
OWN_TIME = {
    "again": 0.0,
    "retry": 5.0,
    "park": None,
    "release": 0.0,
    "give-back": 30.0,
    "reclaim": 5.0,
    "reclaim-stopping": 0.0,
}


@pytest.mark.parametrize("way", OWN_TIME)
@pytest.mark.parametrize("woken_for", [later(-5), later(3), later(7200), PARKED], ids=["past", "soon", "far", "never"])
def test_whatever_returns_a_row_takes_the_earlier_of_its_own_time_and_the_rows(way: str, woken_for: datetime) -> None:
    before, event, policy = _leaving(way, "woken", run_at=woken_for)

    left = after(before, event, NOW, policy)

    assert left is not None
    seconds = OWN_TIME[way]
    assert left.run_at == min(woken_for, PARKED if seconds is None else later(seconds))


@pytest.mark.parametrize(
    "way", ["done", "retry-exhausted", "fail", "cancelled", "retry-poisoned", "reclaim-exhausted", "reclaim-poisoned"]
)
def test_a_row_that_ends_or_is_held_waits_for_nothing(way: str) -> None:
    before, event, policy = _leaving(way, run_at=PARKED)

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


# --- what ends a run --------------------------------------------------------------------------------------------------

FAILING: dict[str, Any] = {
    "retries": 2,
    "failure_code": "broken",
    "failure_streak": 2,
    "failure": '{"code":"broken"}',
    "last_error": "attempt failed: broken",
}


@pytest.mark.parametrize("kind", [Kind.DONE, Kind.AGAIN, Kind.PARK])
@pytest.mark.parametrize("when", ["plain", "woken", "cancelled", "both"])
def test_a_success_clears_the_failures_and_history_tells_the_first_one(kind: Kind, when: str) -> None:
    before, event, policy = _leaving(kind.value, when, **FAILING)

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
    before, event, policy = _leaving(kind.value)

    assert decide(before, event, policy).history == ()


def test_a_run_that_counted_what_it_got_through_is_in_the_history() -> None:
    job = row("processing")

    decision = decide(job, rows.finish(job, counts=(("files", 3), ("failed", 0))), POLICY)

    assert decision.history == (("counted", ATTEMPT, None, {"files": 3, "failed": 0}),)


@pytest.mark.parametrize("way", ["retry", "fail", "reclaim"])
@pytest.mark.parametrize("when", ["plain", "woken", "cancelled", "both"])
def test_a_failure_is_counted_whatever_came_meanwhile(way: str, when: str) -> None:
    before, event, policy = _leaving(way, when, **FAILING)
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
    before, event, policy = _leaving(way, when, **FAILING)

    left = after(before, event, NOW, policy)

    assert left is not None
    assert {name: getattr(left, name) for name in FAILING} == FAILING


def test_a_failure_is_written_down_without_what_is_not_known() -> None:
    job = row("processing")
    failure = Failure("OSError", "disk_full", place="jobs.py:7 in run")

    left = after(job, rows.finish(job, Kind.RETRY, failure=failure), NOW, POLICY)

    assert left is not None
    assert left.failure == '{"class":"OSError","code":"disk_full","place":"jobs.py:7 in run"}'


def test_a_failure_with_another_code_starts_a_new_streak() -> None:
    before, event, policy = _leaving("retry", retries=7, failure_code="other", failure_streak=7)

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
            decision = decide(*_leaving(way, when))
            assert decision.write is not None
            assert decision.write.lapsed


def test_no_other_write_asks_for_a_lapsed_lease() -> None:
    for way, when, _ in _ways():
        decision = decide(*_leaving(way, when))
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
    before, event, policy = _leaving(way, "woken", run_at=woken_for)

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
    for way, when, cell in _ways():
        if way.split("-")[0] in ("retry", "fail", "reclaim") and way != "reclaim-stopping":
            detail = decide(*_leaving(way, when)).history[0].detail
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
    before, _, policy = _leaving(kind.value, when)
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
    before, event, policy = _leaving("done", when, checkpoint="[1]", checkpoint_generation=5)

    left = after(before, event, NOW, policy)

    assert left is not None
    assert (left.checkpoint, left.checkpoint_generation) == (None, None)


def test_done_keeps_its_result() -> None:
    job = row("processing")

    left = after(job, rows.finish(job, result='{"n":2}'), NOW, POLICY)

    assert left is not None
    assert (left.state, left.result, left.finished_at) == ("completed", '{"n":2}', NOW)


# --- the same again, and too late -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", list(Kind))
@pytest.mark.parametrize("when", ["plain", "woken", "cancelled", "both"])
def test_the_same_finish_sent_twice_changes_nothing_the_second_time(kind: Kind, when: str) -> None:
    before, event, policy = _leaving(kind.value, when)
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
        assert isinstance(event, (Finish, Release, GiveBack, Reclaim))
        assert event.lease_id == before.lease_id == left.ended_lease
        if left.state == State.QUEUED:
            assert left.run_at <= before.run_at
        if before.cancel_requested_at is not None:
            done = isinstance(event, Finish) and event.kind is Kind.DONE
            assert left.state == State.CANCELLED or (done and left.state == State.COMPLETED)
