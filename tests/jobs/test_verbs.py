"""The verbs of a worker without Dramatiq, on every store, under the same fence as any worker's."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from middleware.jobs import Ended, Jobs, Lease
from store.contract import ANY_VERSION, Document, Store
from store.errors import PayloadInvalid, StoreUnavailable, UsageError
from store.events import Cancel, Wake
from store.identity import new_lease_id
from store.job import Job
from store.operations import Item, settle
from store.outcome import Again, Done, Fail, Outcome, Park, Retry
from store.policy import Policy
from store.transitions import Answer
from tests.contract.acts import at_once, publish, read
from tests.contract.adapters import Adapter
from tests.contract.rows import TYPE, claim, later, row, wake
from tests.jobs.conftest import MakeJobs


@pytest.fixture
def jobs(store: Store, make_jobs: MakeJobs) -> Jobs:
    return make_jobs(store)


def woken(store: Store, **fields: Any) -> str:
    asked: Wake = wake(**fields)
    return store.wake([asked])[0].id


def acquired(jobs: Jobs, **options: Any) -> Lease:
    lease = jobs.acquire(**options)
    assert lease is not None
    return lease


def lapse(store: Store, adapter: Adapter, key: str = "k") -> Job:
    """A row whose worker is gone for an hour."""
    gone = row("processing", key=key, leased_until=later(-3600 * 24 * 365 * 2))
    adapter.plant(store, [gone])
    return gone


# --- acquire


def test_a_job_is_acquired_once_with_what_it_carries(store: Store, jobs: Jobs) -> None:
    id_ = woken(store, payload='{"invoice_id":7}')
    lease = acquired(jobs, seconds=30)
    assert (lease.id, lease.payload, lease.attempt, lease.job_type) == (id_, {"invoice_id": 7}, 1, TYPE)
    there = read(store, id_)
    assert (there.state, there.lease_id, there.generation) == ("processing", lease.lease_id, lease.generation)
    assert lease.leased_until == there.leased_until
    assert jobs.acquire() is None


def test_the_order_is_priority_then_time_then_id_over_more_rows_than_a_page(
    store: Store, adapter: Adapter, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("middleware.acquiring.PAGE", 7)
    monkeypatch.setattr("middleware.acquiring.SPARE", 2)
    rows = [
        row(key=str(number), priority=1 + number * 7 % 10, run_at=later(-60 - number * 5 % 3), queue=f"q{number % 3}")
        for number in range(60)
    ]
    adapter.plant(store, rows)
    expected = [one.id for one in sorted(rows, key=lambda one: (one.priority, one.run_at, one.id))]
    assert [acquired(jobs).id for _ in rows[:30]] == expected[:30]
    assert [acquired(jobs, types=[TYPE]).id for _ in rows[30:]] == expected[30:]


def test_only_rows_of_the_queues_types_and_domain_asked_for_are_taken(store: Store, jobs: Jobs) -> None:
    publish(store, "other.job")
    woken(store, key="plain", priority=1)
    by_queue = woken(store, key="a", queue="high")
    by_type = woken(store, key="b", job_type="other.job")
    by_domain = woken(store, key="c", domain="north")
    assert acquired(jobs, queues=["high", "low"]).id == by_queue
    assert acquired(jobs, types=["other.job"]).id == by_type
    assert acquired(jobs, domain="north").id == by_domain
    assert jobs.acquire(queues=["high"]) is None
    assert jobs.acquire(types=["other.job"], domain="north") is None


def test_a_row_behind_any_number_of_others_is_reached_in_bounded_looks(
    store: Store, adapter: Adapter, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("middleware.acquiring.PAGE", 5)
    monkeypatch.setattr("middleware.acquiring.SPARE", 0)
    monkeypatch.setattr("middleware.acquiring.PAGES_MOST", 3)
    publish(store, "other.job")
    adapter.plant(store, [row(key=str(number), priority=1) for number in range(40)])
    wanted = woken(store, key="last", job_type="other.job", priority=9)
    looks = [jobs.acquire(types=["other.job"]) for _ in range(6)]
    assert looks[0] is None  # one look is bounded ...
    assert [look.id for look in looks if look is not None] == [wanted]  # ... and the next goes on behind it


def test_a_type_that_nobody_published_waits_until_somebody_does(store: Store, jobs: Jobs) -> None:
    id_ = woken(store, job_type="new.job")
    assert jobs.acquire() is None
    jobs.publish(Policy("new.job", max_retries=0))
    assert acquired(jobs).id == id_


def test_a_call_whose_answer_was_lost_is_repeated_under_the_same_lease(
    store: Store, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = woken(store, key="a", priority=1), woken(store, key="b")
    real, token = store.claim, new_lease_id()

    def lost(*args: Any, **options: Any) -> Any:
        real(*args, **options)
        raise StoreUnavailable("the answer was lost")

    monkeypatch.setattr(store, "claim", lost)
    with pytest.raises(StoreUnavailable):
        jobs.acquire(lease_id=token)
    monkeypatch.setattr(store, "claim", real)
    for _ in range(2):
        again = acquired(jobs, lease_id=token.upper())
        assert (again.id, again.lease_id, again.attempt) == (first, token, 1)
    assert read(store, second).attempt == 0


def test_a_lost_claim_that_is_done_after_all_leaves_one_job_under_the_lease(
    store: Store, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = woken(store, key="a", priority=1), woken(store, key="b")
    real, token = store.claim, new_lease_id()

    def late(claims: Any, **options: Any) -> Any:
        monkeypatch.setattr(store, "claim", real)
        real([claim(first, token)])  # the lost call, done while the repeated one was on its way
        return real([claim(second, token)])

    monkeypatch.setattr(store, "claim", late)
    assert acquired(jobs, lease_id=token).id == first
    there = read(store, second)
    assert (there.state, there.retries) == ("queued", 0)


def test_racing_programs_never_get_one_job_twice(store: Store, make_jobs: MakeJobs) -> None:
    ids = {woken(store, key=str(number)) for number in range(24)}

    def take_all() -> list[str]:
        mine, jobs = [], make_jobs(store)
        while (lease := jobs.acquire()) is not None:
            mine.append(lease.id)
        return mine

    taken = [id_ for mine in at_once([take_all] * 4) for id_ in mine]
    taken += take_all()  # of a race that all of them lost
    assert sorted(taken) == sorted(ids)


@pytest.mark.parametrize(
    "options",
    [
        {"types": "invoice.send"},
        {"queues": []},
        {"seconds": 0},
        {"seconds": True},
        {"seconds": float("nan")},
        {"lease_id": "mine"},
    ],
    ids=str,
)
def test_what_makes_no_sense_is_refused_and_takes_nothing(store: Store, jobs: Jobs, options: dict[str, Any]) -> None:
    id_ = woken(store)
    with pytest.raises(UsageError):
        jobs.acquire(**options)
    assert read(store, id_).attempt == 0


# --- renew


def test_a_renewal_holds_the_job_longer_and_reports(store: Store, jobs: Jobs) -> None:
    woken(store)
    lease = acquired(jobs, seconds=10)
    assert jobs.renew(lease, seconds=500, percent=40, message="two of five") == (True, False)
    there = read(store, lease.id)
    assert lease.leased_until is not None
    assert there.leased_until is not None
    assert there.leased_until > lease.leased_until + timedelta(seconds=400)
    assert (there.progress_percent, there.progress_message) == (40, "two of five")
    jobs.renew(lease, percent=10)
    assert read(store, lease.id).progress_percent == 40
    for wrong in ({"percent": 101}, {"percent": 5, "message": "a\nb"}, {"message": "how far?"}):
        with pytest.raises(UsageError):
            jobs.renew(lease, **wrong)


def test_a_cancel_is_heard_by_the_next_renewal_and_ends_the_job(store: Store, jobs: Jobs) -> None:
    woken(store)
    lease = acquired(jobs)
    settle(store, [Item(lease.id, Cancel(), Policy(TYPE))])
    assert jobs.renew(lease).cancelled
    assert jobs.end_cancelled(lease) == Ended(Answer.APPLIED, "cancelled")
    assert jobs.complete(lease) == Ended(Answer.REPEATED, "cancelled")


# --- the ways out


@pytest.mark.parametrize(
    ("outcome", "state"),
    [
        (None, "completed"),
        (Done([1]), "completed"),
        (Again(hours=1, checkpoint={"page": 2}), "queued"),
        (Park(), "queued"),
        (Retry("busy"), "queued"),
        (Fail("broken"), "failed"),
    ],
    ids=repr,
)
def test_an_outcome_ends_a_run_as_it_does_for_a_handler(
    store: Store, jobs: Jobs, outcome: Outcome | None, state: str
) -> None:
    woken(store)
    assert jobs.finish(acquired(jobs), outcome) == Ended(Answer.APPLIED, state)


def test_the_same_end_said_twice_counts_once(store: Store, jobs: Jobs) -> None:
    id_ = woken(store)
    lease = acquired(jobs)
    assert jobs.complete(lease, {"paid": True}) == Ended(Answer.APPLIED, "completed")
    there = read(store, id_)
    assert jobs.complete(lease, {"paid": False}) == Ended(Answer.REPEATED, "completed")
    assert jobs.fail(lease, "late").answer is Answer.REPEATED
    assert read(store, id_) == there


def test_the_same_failure_said_five_times_is_one_failure(store: Store, jobs: Jobs) -> None:
    id_ = woken(store)
    lease = acquired(jobs)
    answers = [jobs.fail(lease, "busy").answer for _ in range(5)]
    assert answers == [Answer.APPLIED, *[Answer.REPEATED] * 4]
    there = read(store, id_)
    assert (there.retries, there.failure_streak, len(store.history(id_))) == (1, 1, 1)


def test_a_holder_that_lost_its_job_is_told_and_changes_nothing(store: Store, adapter: Adapter, jobs: Jobs) -> None:
    old = Lease(lapse(store, adapter))
    assert jobs.reclaim() == 1
    assert not jobs.renew(old, percent=99).held
    store_now = read(store, old.id)
    assert jobs.complete(old).answer is Answer.STALE
    assert not jobs.complete(old).counted
    assert jobs.fail(old, "late").answer is Answer.STALE
    assert jobs.release(old).answer is Answer.STALE
    assert read(store, old.id) == store_now
    with store.transaction() as tx:
        tx.execute(adapter.say("forget all jobs"))
    assert jobs.complete(old) == Ended(Answer.GONE, None)


def test_a_wake_in_mid_run_is_run_afterwards(store: Store, jobs: Jobs) -> None:
    woken(store, payload='{"n":1}')
    lease = acquired(jobs)
    woken(store, payload='{"n":2}')
    assert jobs.complete(lease) == Ended(Answer.APPLIED, "queued")
    assert acquired(jobs).payload == {"n": 2}


def test_what_is_released_is_due_at_once_and_unpunished(store: Store, jobs: Jobs) -> None:
    id_ = woken(store)
    assert jobs.release(acquired(jobs)) == Ended(Answer.APPLIED, "queued")
    again = acquired(jobs)
    assert (again.id, again.attempt, again.job.retries) == (id_, 2, 0)


def test_a_failure_follows_the_published_policy_and_keeps_no_foreign_text(store: Store, jobs: Jobs) -> None:
    store.put(Document("policy", TYPE, ANY_VERSION, Policy(TYPE, quarantine_after=2, backoff_first=0.001).document()))
    id_ = woken(store, max_retries=9)
    for state in ("queued", "quarantined"):
        lease = jobs.acquire()
        while lease is None:  # its backoff lasts a millisecond
            lease = jobs.acquire()
        assert jobs.fail(lease, ValueError("hunter2")) == Ended(Answer.APPLIED, state)
    there = read(store, id_)
    assert (there.failure_code, there.failure_streak) == ("ValueError", 2)
    assert "hunter2" not in repr((there, store.history(id_)))


def test_a_failure_for_good_ends_the_job(store: Store, jobs: Jobs) -> None:
    woken(store)
    assert jobs.fail(acquired(jobs), "no_such_customer", retry=False) == Ended(Answer.APPLIED, "failed")


@pytest.mark.parametrize("value", [float("nan"), {"sum": float("inf")}, {1: 2}, {1, 2}], ids=str)
def test_a_result_that_is_not_allowed_is_refused_and_the_job_stays_ours(store: Store, jobs: Jobs, value: Any) -> None:
    id_ = woken(store)
    lease = acquired(jobs)
    with pytest.raises(PayloadInvalid):
        jobs.complete(lease, value)
    assert read(store, id_).lease_id == lease.lease_id
    assert jobs.fail(lease, PayloadInvalid("not allowed")).state == "queued"
    assert read(store, id_).failure_code == "payload_invalid"


# --- what lost workers held


def test_acquiring_takes_back_what_a_lost_worker_held_where_there_is_no_scheduler(
    store: Store, adapter: Adapter, make_jobs: MakeJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = make_jobs(store, JOBS_LEASE_SECONDS=60)
    gone = lapse(store, adapter)
    assert jobs.acquire() is None
    assert read(store, gone.id).state == "processing"  # it may only be that the store was away: give it time to renew
    monkeypatch.setattr(jobs.lost_leases, "_next", 0.0)
    jobs.acquire()
    there = read(store, gone.id)
    assert (there.state, there.retries, there.failure_code) == ("queued", 1, "worker_lost")


def test_of_two_programs_one_takes_back(store: Store, adapter: Adapter, make_jobs: MakeJobs) -> None:
    one, two = make_jobs(store), make_jobs(store)
    for jobs in (one, two):
        jobs.lost_leases._next = 0.0
    one.lost_leases.step()
    gone = lapse(store, adapter)
    two.lost_leases.step()
    assert read(store, gone.id).state == "processing"
    one.lost_leases.resign()
    two.lost_leases._next = 0.0
    two.lost_leases.step()
    assert read(store, gone.id).state == "queued"
