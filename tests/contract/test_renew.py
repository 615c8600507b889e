"""A sign of life: guarded by lease, attempt and ``processing``, and by nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from store import identity
from store.contract import Renewal, Renewed, Store
from store.errors import Refused, StoreUnavailable
from store.events import Cancel, Reclaim, Release
from store.job import Job
from tests.contract import rows
from tests.contract.acts import differences, read, settle, take
from tests.contract.adapters import Adapter
from tests.contract.rows import LEASE, NOW, OTHER_LEASE, later, row, wake

LOST = Renewed(held=False)
HELD = Renewed(held=True)


def renewal(job: Job, **changes: Any) -> Renewal:
    """What the holder of ``job`` sends."""
    return Renewal(job.id, job.lease_id or LEASE, job.attempt, 60)._replace(**changes)


@pytest.fixture
def held(store: Store, adapter: Adapter) -> Job:
    """A row in ``processing`` whose lease runs for a minute from NOW."""
    adapter.plant(store, [row("processing")])
    return read(store, row().id)


def test_a_renewal_extends_the_lease_and_moves_nothing_else(store: Store, held: Job) -> None:
    assert store.renew([renewal(held, seconds=90)], now=later(10)) == [HELD]

    found = read(store, held.id)
    assert found.leased_until == later(100)
    assert not differences(found, held._replace(leased_until=later(100), updated_at=found.updated_at))


def test_a_renewal_counts_from_the_databases_now(store: Store) -> None:
    store.wake([wake()])
    job = take(store, wake().id, seconds=1)

    before = store.ping()
    store.renew([renewal(job, seconds=500)])
    until = store.ping()

    leased_until = read(store, job.id).leased_until
    assert leased_until is not None
    assert before <= leased_until - (later(500) - NOW) <= until


def test_a_lease_is_never_shortened(store: Store, held: Job) -> None:
    assert store.renew([renewal(held, seconds=1)], now=NOW) == [HELD]

    assert read(store, held.id).leased_until == held.leased_until


def test_without_seconds_a_renewal_only_looks(store: Store, held: Job) -> None:
    assert store.renew([renewal(held, seconds=None)], now=later(59)) == [HELD]

    assert read(store, held.id) == held


@pytest.mark.parametrize("changes", [{"lease_id": OTHER_LEASE}, {"attempt": 1}, {"attempt": 3}])
@pytest.mark.parametrize("seconds", [60, None])
def test_another_lease_or_attempt_is_lost_and_changes_nothing(
    store: Store, held: Job, changes: dict[str, Any], seconds: float | None
) -> None:
    late = renewal(held, seconds=seconds, progress=(50, "late"), stopping=True, **changes)

    assert store.renew([late], now=later(30)) == [LOST]

    assert read(store, held.id) == held


@pytest.mark.parametrize("state", [state for state in rows.STATES if state != "processing"])
def test_a_row_that_is_not_running_any_more_is_lost(store: Store, adapter: Adapter, state: str) -> None:
    before = row(state, ended_lease=LEASE, finish_token=LEASE)
    adapter.plant(store, [before])

    assert store.renew([renewal(before, progress=(50, "late"), stopping=True)], now=NOW) == [LOST]

    assert not differences(read(store, before.id), before)


def test_a_row_that_is_gone_is_lost(store: Store) -> None:
    assert store.renew([Renewal(identity.new_id(), LEASE, 1, 60)], now=NOW) == [LOST]
    assert store.renew([]) == []


def test_the_old_holder_is_lost_when_another_took_over(store: Store, held: Job) -> None:
    assert settle(store, held, Reclaim(LEASE), now=later(61))
    newer = take(store, held.id, now=later(3600))

    assert store.renew([renewal(held, progress=(99, "late")), renewal(newer)], now=later(3601)) == [LOST, HELD]

    assert read(store, held.id).progress_percent is None


def test_a_lease_that_lapsed_but_was_not_reclaimed_can_be_renewed(store: Store, held: Job) -> None:
    assert store.renew([renewal(held)], now=later(3600)) == [HELD]

    assert read(store, held.id).leased_until == later(3660)


def test_a_wake_in_mid_run_takes_nothing_from_the_holder(store: Store, held: Job) -> None:
    store.wake([wake()], now=NOW)

    assert store.renew([renewal(held)], now=later(30)) == [HELD]

    assert read(store, held.id).leased_until == later(90)


def test_a_standing_cancel_is_seen_until_a_wake_withdraws_it(store: Store, held: Job) -> None:
    assert settle(store, held, Cancel(), now=NOW)
    assert store.renew([renewal(held), renewal(held, seconds=None)], now=NOW) == [Renewed(True, True)] * 2

    store.wake([wake()], now=NOW)
    assert store.renew([renewal(held), renewal(held, seconds=None)], now=NOW) == [HELD] * 2


def test_progress_is_written_and_does_not_move_the_revision(store: Store, held: Job) -> None:
    store.renew([renewal(held, progress=(40, "Hälfte 🎭"))], now=NOW)

    found = read(store, held.id)
    assert (found.progress_percent, found.progress_message) == (40, "Hälfte 🎭")
    assert found.revision == held.revision


def test_progress_may_say_something_else_at_the_same_percent(store: Store, held: Job) -> None:
    store.renew([renewal(held, progress=(40, "a"))], now=NOW)
    store.renew([renewal(held, progress=(40, "b"))], now=NOW)

    found = read(store, held.id)
    assert (found.progress_percent, found.progress_message) == (40, "b")


def test_progress_never_goes_backwards(store: Store, held: Job) -> None:
    store.renew([renewal(held, progress=(50, "half"))], now=NOW)

    assert store.renew([renewal(held, progress=(30, "late")), renewal(held)], now=later(30)) == [HELD, HELD]

    found = read(store, held.id)
    assert (found.progress_percent, found.progress_message) == (50, "half")
    assert found.leased_until == later(90)


def test_progress_starts_anew_with_the_next_attempt(store: Store, held: Job) -> None:
    store.renew([renewal(held, progress=(80, "nearly"))], now=NOW)
    assert settle(store, read(store, held.id), Release(LEASE, held.attempt), now=NOW)
    newer = take(store, held.id, now=NOW)

    store.renew([renewal(newer, progress=(10, None)), renewal(held, progress=(90, "late"))], now=NOW)

    found = read(store, held.id)
    assert (found.progress_percent, found.progress_message) == (10, None)


@pytest.mark.parametrize("percent", [-1, 101])
def test_a_percent_that_can_not_be_is_refused(store: Store, held: Job, percent: int) -> None:
    with pytest.raises(Refused):
        store.renew([renewal(held, progress=(percent, None))], now=later(30))

    assert read(store, held.id) == held


def test_stopping_is_marked_and_stays_and_older_decisions_fail(store: Store, held: Job) -> None:
    assert store.renew([renewal(held, stopping=True)], now=NOW) == [HELD]
    assert store.renew([renewal(held)], now=NOW) == [HELD]

    found = read(store, held.id)
    assert found.stopping is True
    assert found.revision > held.revision
    assert not settle(store, held, Reclaim(LEASE), now=later(3600))
    assert settle(store, found, Reclaim(LEASE), now=later(3600))
    assert read(store, held.id).retries == 0


def test_a_batch_answers_each_in_the_order_asked(store: Store, adapter: Adapter) -> None:
    jobs = [row("processing", key=str(number), leased_until=later(number)) for number in range(100)]
    adapter.plant(store, jobs)
    asked = [renewal(job) if number % 3 else renewal(job, attempt=9) for number, job in enumerate(jobs)]

    answers = store.renew(asked[::-1], now=later(30))

    assert answers[::-1] == [HELD if number % 3 else LOST for number in range(100)]
    for number, job in enumerate(jobs):
        assert read(store, job.id).leased_until == (max(later(90), later(number)) if number % 3 else later(number))


def test_the_holder_and_one_who_is_late_may_come_in_one_call(store: Store, held: Job) -> None:
    late = renewal(held, attempt=1, seconds=500)

    assert store.renew([late, renewal(held, seconds=90), late], now=NOW) == [LOST, HELD, LOST]

    assert read(store, held.id).leased_until == later(90)


def test_a_row_in_an_open_transaction_counts_as_held(store: Store, other: Store, adapter: Adapter) -> None:
    jobs = [row("processing", key="locked"), row("processing", key="free")]
    adapter.plant(store, jobs)

    with other.transaction() as tx:
        tx.wake([wake("locked")], now=NOW)
        if "row_locks" in adapter.gaps:  # then the whole database is held, and nothing is known to have happened
            with pytest.raises(StoreUnavailable):
                adapter.open_hasty().renew([renewal(job) for job in jobs], now=later(30))
        elif "locks" in adapter.gaps:  # then both are renewed, and the wake lands on what that left
            assert store.renew([renewal(job) for job in jobs], now=later(30)) == [HELD, HELD]
            assert [read(store, job.id).leased_until for job in jobs] == [later(90), later(90)]
        else:
            assert store.renew([renewal(job) for job in jobs], now=later(30)) == [HELD, HELD]
            assert read(store, jobs[1].id).leased_until == later(90)
            assert read(store, jobs[0].id).leased_until == later(60)
