"""Whole lives on every store: failures and their timeline, poison, cancels that race, submissions that repeat."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from store.contract import Renewal, Store
from store.errors import StoreUnavailable
from store.events import Cancel, Failure, Finish, Kind, Release
from store.identity import new_lease_id
from store.job import Job, State
from store.operations import Item, Settled, reclaim, settle
from store.policy import Policy
from store.timeline import failures
from store.transitions import Answer
from tests.contract.acts import at_once, publish, read, take
from tests.contract.adapters import Adapter
from tests.contract.rows import NOW, TYPE, claim, finish, later, row, wake


def end(store: Store, job: Job, event: Any, policy: Policy | None = None, **options: Any) -> Settled:
    """Bring an event about, as a worker or an operator does: again, where another's lock was in the way."""
    while (settled := settle(store, [Item(job.id, event, policy or Policy(TYPE), job)], **options)[0]).answer is None:
        pass
    return settled


def fail(store: Store, job: Job, code: str, policy: Policy | None = None, **options: Any) -> Settled:
    return end(store, job, finish(job, Kind.RETRY, failure=Failure.of_code(code), jitter=0.5), policy, **options)


# --- failures


@pytest.mark.parametrize("jitter", [0.0, 0.5, 1.0])
def test_the_five_thousand_and_first_failure_is_recorded_and_comes_back_within_the_cap(
    store: Store, adapter: Adapter, jitter: float
) -> None:
    adapter.plant(store, [row(retries=5000, failure_code="broken", failure_streak=5000, attempt=5001)])
    job = take(store, row().id, now=NOW)
    assert end(store, job, finish(job, Kind.RETRY, jitter=jitter), now=NOW).answer is Answer.APPLIED
    there = read(store, job.id)
    assert (there.state, there.retries, there.failure_streak, there.attempt) == ("queued", 5001, 5001, 5002)
    assert timedelta(seconds=240 - 1e-3) <= there.run_at - NOW <= timedelta(seconds=300)


@pytest.mark.parametrize(("most", "runs"), [(0, 1), (1, 2), (100, 101)])
def test_a_job_has_as_many_retries_as_it_was_given(store: Store, most: int, runs: int) -> None:
    policy = Policy(TYPE, max_retries=most, backoff_first=0.001, backoff_cap=0.001)
    [woken] = store.wake([wake(max_retries=most)], now=NOW)
    states = []
    for number in range(runs):
        job = take(store, woken.id, now=later(number))
        settled = fail(store, job, "broken", policy, now=later(number))
        assert settled.decision is not None
        states.append(settled.decision.state)
    assert states == [*["queued"] * most, "failed"]
    assert read(store, woken.id).retries == most + 1


def test_failures_in_a_row_with_one_code_hold_a_type_that_asks_for_it(store: Store) -> None:
    policy = Policy(TYPE, quarantine_after=3, backoff_first=0.001, backoff_cap=0.001)
    [woken] = store.wake([wake()], now=NOW)
    states = []
    for number, code in enumerate(["a", "a", "b", "b", "b"]):
        settled = fail(store, take(store, woken.id, now=later(number)), code, policy, now=later(number))
        assert settled.decision is not None
        states.append(settled.decision.state)
    assert states == ["queued", "queued", "queued", "queued", "quarantined"]
    assert read(store, woken.id).held_at == later(4)


def test_a_job_that_kills_five_workers_in_a_row_is_held(store: Store) -> None:
    [woken] = store.wake([wake()], now=NOW)
    for number in range(5):
        moment = later(number * 1000)
        take(store, woken.id, seconds=10, now=moment)
        assert len(reclaim(store, now=moment + timedelta(seconds=9)).taken) == 0
        assert len(reclaim(store, now=moment + timedelta(seconds=11)).taken) == 1
    there = read(store, woken.id)
    assert (there.state, there.failure_code, there.failure_streak) == ("quarantined", "worker_lost", 5)


def test_five_stops_of_a_worker_are_no_failure(store: Store) -> None:
    [woken] = store.wake([wake(max_retries=3)], now=NOW)
    for number in range(5):
        moment = later(number * 1000)
        job = take(store, woken.id, seconds=10, now=moment)
        if number % 2:  # it was killed before it could give the job back
            store.renew([Renewal(job.id, job.lease_id or "", job.attempt, stopping=True)], now=moment)
            assert len(reclaim(store, now=moment + timedelta(seconds=11)).taken) == 1
        else:
            end(store, job, Release(job.lease_id or "", job.attempt), now=moment)
        there = read(store, woken.id)
        assert (there.state, there.retries, there.failure_streak, there.failure_code) == ("queued", 0, 0, None)
        assert there.run_at <= moment + timedelta(seconds=11)
    job = take(store, woken.id, now=later(9000))
    assert end(store, job, finish(job), now=later(9000)).answer is Answer.APPLIED
    assert read(store, job.id).state == "completed"


def test_the_newest_failures_are_told_in_one_call(store: Store) -> None:
    policy = Policy(TYPE, max_retries=11, backoff_first=1.0, backoff_cap=4.0, backoff_jitter=0.0)
    [woken] = store.wake([wake(max_retries=11)], now=NOW)
    for number in range(12):
        fail(store, take(store, woken.id, now=later(10 * number)), f"code_{number}", policy, now=later(10 * number))
    told = failures(store, woken.id)
    assert [one.at for one in told] == [later(10 * number) for number in range(11, 1, -1)]
    assert [one.code for one in told] == [f"code_{number}" for number in range(11, 1, -1)]
    assert [one.delay for one in told] == [None, *[4.0] * 9]
    assert [one.attempt for one in told] == list(range(12, 2, -1))
    assert len(failures(store, woken.id, limit=50)) == 12


def test_the_same_failing_finish_again_and_again_is_one_failure(store: Store) -> None:
    policy = Policy(TYPE, quarantine_after=3)
    [woken] = store.wake([wake()], now=NOW)
    job = take(store, woken.id, now=NOW)
    answers = [fail(store, job, "broken", policy, now=NOW).answer for _ in range(5)]
    assert answers == [Answer.APPLIED, *[Answer.REPEATED] * 4]
    there = read(store, job.id)
    assert (there.state, there.retries, there.failure_streak) == ("queued", 1, 1)
    assert len(failures(store, job.id)) == 1


def test_of_twenty_who_send_one_finish_at_once_one_is_counted(store: Store) -> None:
    [woken] = store.wake([wake()])
    job = take(store, woken.id)
    event = finish(job, Kind.RETRY)
    settled = at_once([partial(end, store, job, event)] * 20)
    answers = [one.answer for one in settled if one.answer is not None]
    assert answers.count(Answer.APPLIED) == 1
    assert set(answers) <= {Answer.APPLIED, Answer.REPEATED}
    assert (read(store, job.id).retries, len(failures(store, job.id))) == (1, 1)


#: A rule of the database's that one row breaks by leaving ``processing``, as each store says it; and its end.
STUBBORN = {
    "sqlite": (
        "CREATE TRIGGER stubborn BEFORE UPDATE ON dramaturg_job WHEN old.key = 'a' AND new.state <> 'processing' "
        "BEGIN SELECT RAISE(ABORT, 'no'); END",
        "DROP TRIGGER stubborn",
    ),
    "postgres": (
        "ALTER TABLE dramaturg.job ADD CONSTRAINT stubborn CHECK (key <> 'a' OR state = 'processing') NOT VALID",
        "ALTER TABLE dramaturg.job DROP CONSTRAINT stubborn",
    ),
    "surreal": (
        "DEFINE EVENT stubborn ON dramaturg_job WHEN $event = 'UPDATE' AND $after.key = 'a' AND "
        "$after.state != 'processing' THEN { THROW 'no' }",
        "REMOVE EVENT stubborn ON dramaturg_job",
    ),
}


def test_a_row_that_the_database_refuses_to_take_back_keeps_no_other_from_it(store: Store, adapter: Adapter) -> None:
    adapter.plant(store, [row("processing", key=key, leased_until=later(-1)) for key in "abcde"])
    begin, over = STUBBORN[store.dialect]
    with store.transaction() as tx:
        tx.execute(begin)
    try:
        swept = reclaim(store, now=NOW)
        assert [job.key for job in swept.refused] == ["a"]
        assert sorted(one.job.key or "" for one in swept.taken if one.job is not None) == ["b", "c", "d", "e"]
        assert {read(store, row(key=key).id).state for key in "bcde"} == {"queued"}
        assert read(store, row(key="a").id).state == "processing"
    finally:
        with store.transaction() as tx:
            tx.execute(over)
    assert len(reclaim(store, now=NOW).taken) == 1


# --- the name of a worker is no ownership


def test_a_worker_that_comes_back_under_the_same_name_does_not_keep_what_it_lost(store: Store) -> None:
    wakes = [wake("lost"), wake("new")]
    store.wake(wakes, now=NOW)
    [lost] = store.claim([claim(wakes[0].id, worker="pod-1", seconds=10)], now=NOW)
    [new] = store.claim([claim(wakes[1].id, worker="pod-1", seconds=10)], now=later(5))
    assert lost.job is not None
    assert new.job is not None
    for second in (5, 8, 11):
        beat = Renewal(new.job.id, new.job.lease_id or "", new.job.attempt, 10)
        assert store.renew([beat], now=later(second))[0].held
    swept = reclaim(store, now=later(12))
    assert [one.job.id for one in swept.taken if one.job is not None] == [lost.job.id]
    assert read(store, new.job.id).state == State.PROCESSING


# --- cancels that race


@pytest.mark.parametrize("kind", [Kind.DONE, Kind.RETRY, Kind.AGAIN])
def test_of_a_cancel_and_an_end_one_wins(store: Store, kind: Kind) -> None:
    for number in range(8):
        [woken] = store.wake([wake(str(number))])
        job = take(store, woken.id)
        event = finish(job, kind, delay=0) if kind is Kind.AGAIN else finish(job, kind)
        cancelled, ended = at_once([partial(end, store, job, Cancel()), partial(end, store, job, event)])
        assert ended.answer is Answer.APPLIED
        there = read(store, job.id)
        if kind is Kind.DONE:
            assert there.state == "completed"  # what is done is done; the cancel was early, and overtaken, or too late
            assert cancelled.answer in (Answer.APPLIED, Answer.REFUSED)
        else:
            assert cancelled.answer is Answer.APPLIED
            assert there.state == "cancelled"
        [again] = store.claim([claim(job.id)])
        assert again.job is None
        assert end(store, there, Cancel()).answer is Answer.REFUSED
        late: Finish = finish(job, Kind.RETRY)
        assert end(store, job, late).answer is Answer.REPEATED
        assert read(store, job.id) == there


def test_a_cancel_between_the_claim_and_the_start_is_seen_by_the_first_look(store: Store) -> None:
    [woken] = store.wake([wake()])
    job = take(store, woken.id)
    assert end(store, job, Cancel()).answer is Answer.APPLIED
    assert store.renew([Renewal(job.id, job.lease_id or "", job.attempt)]) == [(True, True)]
    assert end(store, job, finish(job, Kind.CANCELLED)).answer is Answer.APPLIED
    assert read(store, job.id).state == "cancelled"


def test_a_cancelled_job_is_not_retried_after_its_worker_is_lost(store: Store) -> None:
    [woken] = store.wake([wake()], now=NOW)
    job = take(store, woken.id, seconds=10, now=NOW)
    end(store, job, Cancel(), now=NOW)
    assert len(reclaim(store, now=later(60)).taken) == 1
    assert read(store, job.id).state == "cancelled"


# --- submissions that repeat


def test_a_submission_is_told_of_the_stored_job_and_never_echoed(store: Store) -> None:
    [first] = store.wake([wake(payload='{"n":1}', once=True)], now=NOW)
    job = take(store, first.id, now=NOW)
    [second] = store.wake([wake(payload='{"n":2}', once=True, delay=600)], now=later(1))
    assert (second.created, second.repeated, second.state, second.due) == (False, True, "processing", False)
    assert (second.id, second.generation) == (first.id, first.generation)
    assert read(store, job.id).payload.replace(" ", "") == '{"n":1}'


def test_whoever_lost_the_reply_gets_its_own_job_back(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    send = store.wake

    def lost(*args: Any, **options: Any) -> Any:
        send(*args, **options)
        raise StoreUnavailable("the reply was lost")

    asked = wake(payload='{"n":1}', once=True)
    monkeypatch.setattr(store, "wake", lost)
    with pytest.raises(StoreUnavailable):
        store.wake([asked])
    monkeypatch.setattr(store, "wake", send)
    [again] = store.wake([asked])
    assert (again.repeated, again.id) == (True, asked.id)
    assert read(store, asked.id).generation == again.generation


def test_the_same_key_in_another_queue_is_its_own_submission(store: Store) -> None:
    answers = [store.wake([wake(queue=queue, once=True)])[0] for queue in ("default", "high", "default")]
    assert [one.repeated for one in answers] == [False, False, True]
    assert answers[0].id == answers[2].id != answers[1].id


# --- the order


def test_a_backlog_larger_than_any_page_is_taken_in_its_exact_order(store: Store, adapter: Adapter) -> None:
    publish(store, "other.job")
    backlog = [
        row(
            key=str(number),
            priority=1 + number * 7 % 10,
            run_at=later(-100) + timedelta(microseconds=number * 13 % 5),
            job_type=TYPE if number % 3 else "other.job",
        )
        for number in range(700)
    ]
    adapter.plant(store, backlog)
    taken: list[str] = []
    while due := store.due(limit=90, now=NOW):
        claimed = store.claim([claim(one.id, new_lease_id()) for one in due], now=NOW)
        taken += [answer.job.id for answer in claimed if answer.job is not None]
    assert taken == [one.id for one in sorted(backlog, key=lambda one: (one.priority, one.run_at, one.id))]
