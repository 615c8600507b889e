"""A decision is written on the row that it was made on, or not at all."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any

import pytest

from store import identity, payloads
from store.clock import PARKED
from store.contract import Change, Renewal, Store
from store.errors import Refused, StoreUnavailable
from store.events import Cancel, GiveBack, Kind, Reclaim, Release, Requeue, Reschedule
from store.job import Entry, Job
from store.policy import Policy
from store.transitions import Answer, Decision, Write, decide
from tests.contract import rows
from tests.contract.acts import at_once, change, differences, noted, read, settle, take
from tests.contract.adapters import Adapter
from tests.contract.rows import LEASE, NOW, TYPE, later, row, wake

POLICY = Policy(TYPE)


# --- the guard --------------------------------------------------------------------------------------------------------


def test_a_decision_is_written_on_the_row_it_was_made_on(store: Store, jobs: list[Job]) -> None:
    assert store.swap([change(jobs[0], retries=4)], now=NOW) == [True]

    assert not differences(
        read(store, jobs[0].id), jobs[0]._replace(retries=4, revision=jobs[0].revision + 1, updated_at=NOW)
    )


def test_a_row_that_changed_in_between_is_left_alone(store: Store, jobs: list[Job]) -> None:
    assert store.swap([change(jobs[0], retries=4)], now=NOW) == [True]
    seen = read(store, jobs[0].id)

    assert store.swap([change(jobs[0], retries=9)], now=NOW) == [False]

    assert read(store, jobs[0].id) == seen


def test_one_stale_decision_does_not_keep_its_neighbours(store: Store, jobs: list[Job]) -> None:
    a, b, c = jobs
    store.wake([wake("b")], now=NOW)

    assert store.swap([change(c, retries=3), change(b, retries=2), change(a, retries=1)], now=NOW) == [
        True,
        False,
        True,
    ]

    assert [read(store, job.id).retries for job in jobs] == [1, 0, 3]


def test_of_two_decisions_on_one_row_in_a_call_one_is_written(store: Store, jobs: list[Job]) -> None:
    written = store.swap([change(jobs[0], retries=4), change(jobs[0], retries=9)], now=NOW)

    assert sorted(written) == [False, True]
    found = read(store, jobs[0].id)
    assert found.retries == (4 if written[0] else 9)
    assert found.revision == jobs[0].revision + 1


def test_what_is_not_there_is_not_written(store: Store, jobs: list[Job]) -> None:
    gone = jobs[0]._replace(id=identity.new_id())

    assert store.swap([change(gone, retries=1), change(jobs[1], retries=1)], now=NOW) == [False, True]
    assert store.read([gone.id]) == [None]
    assert store.swap([]) == []


def test_a_decision_that_changes_nothing_is_not_written(store: Store, jobs: list[Job]) -> None:
    nothing = Change(jobs[0].id, jobs[0].revision, Decision(Answer.STALE, "processing"))

    assert store.swap([nothing, change(jobs[1], retries=1)], now=NOW) == [False, True]

    assert read(store, jobs[0].id) == jobs[0]


def test_racing_decisions_on_one_row_are_written_once(store: Store, jobs: list[Job]) -> None:
    written = [done for [done] in at_once([partial(store.swap, [change(jobs[0], retries=n)]) for n in range(1, 13)])]

    assert sum(written) == 1
    assert read(store, jobs[0].id).retries == written.index(True) + 1


# --- reclaim ----------------------------------------------------------------------------------------------------------


def test_a_lease_that_was_renewed_after_it_was_read_is_not_taken_away(store: Store, jobs: list[Job]) -> None:
    changes = [Change(job.id, job.revision, decide(job, Reclaim(LEASE), POLICY)) for job in jobs]
    assert store.renew([Renewal(jobs[1].id, LEASE, jobs[1].attempt, 120)], now=later(60))[0].held

    assert store.swap(changes, now=later(61)) == [True, False, True]

    assert [read(store, job.id).state for job in jobs] == ["queued", "processing", "queued"]
    assert store.history(jobs[1].id) == []


@pytest.mark.parametrize(("seconds", "taken"), [(-0.000001, True), (0.000001, False), (0.0, False)])
def test_a_lease_lapses_when_its_end_lies_in_the_past(
    store: Store, adapter: Adapter, seconds: float, taken: bool
) -> None:
    adapter.plant(store, [row("processing", leased_until=later(seconds))])

    assert settle(store, read(store, row().id), Reclaim(LEASE), now=NOW) == taken


def test_a_lapse_is_seen_by_the_databases_clock(store: Store) -> None:
    store.wake([wake("long"), wake("short")])
    long, short = take(store, wake("long").id, seconds=600), take(store, wake("short").id, seconds=0.001)
    while store.ping() <= (short.leased_until or NOW):
        time.sleep(0.001)

    for job, taken in ((long, False), (short, True)):
        assert job.lease_id is not None
        assert settle(store, job, Reclaim(job.lease_id)) == taken


def _finished(store: Store, job: Job) -> None:
    assert settle(store, job, rows.finish(job, result="[1]"), now=later(61))


def _taken_over(store: Store, job: Job) -> None:
    assert settle(store, job, Release(LEASE, job.attempt), now=later(61))
    take(store, job.id, now=later(61), seconds=0.001)


def _woken(store: Store, job: Job) -> None:
    store.wake([wake(job.key)], now=later(61))


def _cancelled(store: Store, job: Job) -> None:
    assert settle(store, job, Cancel(), now=later(61))


@pytest.mark.parametrize("meanwhile", [_finished, _taken_over, _woken, _cancelled])
def test_a_sweep_that_is_late_changes_nothing_but_its_other_rows(
    store: Store, jobs: list[Job], meanwhile: Callable[[Store, Job], None]
) -> None:
    changes = [Change(job.id, job.revision, decide(job, Reclaim(LEASE), POLICY)) for job in jobs]
    meanwhile(store, jobs[1])
    seen, history = read(store, jobs[1].id), store.history(jobs[1].id)

    assert store.swap(changes, now=later(100)) == [True, False, True]

    assert read(store, jobs[1].id) == seen
    assert store.history(jobs[1].id) == history
    assert [read(store, job.id).retries for job in jobs] == [1, 0, 1]


def test_two_sweeps_of_the_same_rows_take_each_once(store: Store, adapter: Adapter) -> None:
    jobs = [row("processing", key=str(number), leased_until=later(-1)) for number in range(100)]
    adapter.plant(store, jobs)
    changes = [Change(job.id, job.revision, decide(job, Reclaim(LEASE), POLICY)) for job in jobs]

    answers = at_once([partial(adapter.open().swap, changes, now=NOW) for _ in range(4)])

    assert [sum(written) for written in zip(*answers, strict=True)] == [1] * 100
    assert {read(store, job.id).retries for job in jobs} == {1}
    assert all(len(store.history(job.id)) == 1 for job in jobs)


# --- what is written --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("column", ["finished_at", "held_at"])
def test_stamps_take_the_moment_of_the_write(store: Store, jobs: list[Job], column: str) -> None:
    state = "completed" if column == "finished_at" else "quarantined"
    freed = {"lease_id": None, "leased_until": None, "due_at": None, "state": state}

    assert store.swap([change(jobs[0], Write(freed, (column,), run_at=PARKED, earliest=False))], now=later(7))[0]

    found = read(store, jobs[0].id)
    assert (getattr(found, column), found.updated_at) == (later(7), later(7))


def test_stamps_take_the_databases_now(store: Store, jobs: list[Job]) -> None:
    before = store.ping()
    assert settle(store, jobs[0], Cancel())
    until = store.ping()

    found = read(store, jobs[0].id)
    assert found.cancel_requested_at is not None
    assert before <= found.cancel_requested_at <= until
    assert found.updated_at == found.cancel_requested_at


RUN_AT: list[tuple[datetime, Write, datetime]] = [
    (later(100), Write(run_in=5), later(15)),
    (later(12), Write(run_in=5), later(12)),
    (later(-9), Write(run_in=0), later(-9)),
    (PARKED, Write(run_in=0), later(10)),
    (PARKED, Write(run_in=0.25), later(10.25)),
    (later(100), Write(run_at=later(40)), later(40)),
    (later(30), Write(run_at=later(40)), later(30)),
    (later(30), Write(run_at=PARKED), later(30)),
    (PARKED, Write(run_at=PARKED), PARKED),
    (later(12), Write(run_in=5, earliest=False), later(15)),
    (later(12), Write(run_at=later(40), earliest=False), later(40)),
    (later(12), Write(run_at=PARKED, earliest=False), PARKED),
    (PARKED, Write(run_in=1e12, earliest=False), PARKED),
    (later(12), Write({"retries": 1}), later(12)),
    (later(12), Write({"retries": 1}, earliest=False), later(12)),
]


@pytest.mark.parametrize(("before", "write", "left"), RUN_AT)
def test_the_time_of_the_next_run(
    store: Store, adapter: Adapter, before: datetime, write: Write, left: datetime
) -> None:
    adapter.plant(store, [row(run_at=before)])

    assert store.swap([change(read(store, row().id), write)], now=later(10)) == [True]

    assert read(store, row().id).run_at == left


def test_seconds_to_the_next_run_count_from_the_databases_now(store: Store, jobs: list[Job]) -> None:
    before = store.ping()
    assert settle(store, jobs[0], Release(LEASE, jobs[0].attempt))
    assert settle(store, jobs[1], GiveBack(LEASE, jobs[1].attempt, 3600, "type_unknown"))
    until = store.ping()

    assert before <= read(store, jobs[0].id).run_at <= until
    assert before <= read(store, jobs[1].id).run_at - (later(3600) - NOW) <= until


@pytest.mark.parametrize(
    "text", ["[1,2.0,1e22,-0.0]", '{"日本":"🎭\\u2028","n":9223372036854775807}', '"x"', "true", "7"]
)
@pytest.mark.parametrize("column", ["checkpoint", "result"])
def test_json_comes_back_as_it_was_given(store: Store, jobs: list[Job], column: str, text: str) -> None:
    event = rows.finish(jobs[0], Kind.DONE, result=text)
    if column == "checkpoint":
        event = rows.finish(jobs[0], Kind.PARK, sets_checkpoint=True, checkpoint=text)

    assert settle(store, jobs[0], event, now=NOW)

    assert repr(payloads.decode(getattr(read(store, jobs[0].id), column))) == repr(payloads.decode(text))


def test_what_an_operator_asks_for_is_written(store: Store, adapter: Adapter) -> None:
    adapter.plant(store, [row("quarantined", key="held"), row(key="waits"), row(key="stops")])
    held, waits, stops = (read(store, row(key=key).id) for key in ("held", "waits", "stops"))

    assert settle(store, held, Requeue(), now=NOW)
    assert settle(store, waits, Reschedule(run_at=PARKED), now=NOW)
    assert settle(store, stops, Cancel(), now=NOW)

    held, waits, stops = (read(store, job.id) for job in (held, waits, stops))
    assert (held.state, held.run_at, held.held_at) == ("queued", NOW, None)
    assert (waits.state, waits.run_at) == ("queued", PARKED)
    assert (stops.state, stops.finished_at, stops.run_at) == ("cancelled", NOW, PARKED)


def test_a_thousand_decisions_go_in_one_call(store: Store) -> None:
    ids = [woken.id for woken in store.wake([wake(str(number)) for number in range(1000)], now=NOW)]
    jobs = [job for job in store.read(ids) if job]

    assert store.swap([change(job, retries=number) for number, job in enumerate(jobs)], now=NOW) == [True] * 1000
    assert [job.retries for job in store.read(ids) if job] == list(range(1000))


# --- refusals and locks -----------------------------------------------------------------------------------------------

IMPOSSIBLE: list[dict[str, Any]] = [
    {"state": "asleep"},
    {"retries": -1},
    {"failure_streak": -1},
    {"max_retries": 101},
    {"state": "queued"},
    {"lease_id": None},
    {"leased_until": None},
    {"state": "completed", "lease_id": None, "leased_until": None, "due_at": None},
    {"state": "quarantined", "lease_id": None, "leased_until": None, "due_at": None},
]


@pytest.mark.parametrize("values", IMPOSSIBLE, ids=repr)
def test_a_row_that_can_not_be_refuses_the_whole_batch(store: Store, jobs: list[Job], values: dict[str, Any]) -> None:
    a, b, c = jobs

    with pytest.raises(Refused):
        store.swap([noted(a, Entry("counted", 1), retries=1), change(b, **values), change(c, Write(delete=True))])

    assert [read(store, job.id) for job in jobs] == jobs
    assert store.history(a.id) == []


@pytest.mark.parametrize("column", ["finished_at", "held_at"])
def test_an_end_is_stamped_in_no_other_state(store: Store, jobs: list[Job], column: str) -> None:
    with pytest.raises(Refused):
        store.swap([change(jobs[0], Write({}, (column,)))], now=NOW)


def test_a_cancel_stands_on_nothing_that_waits(store: Store, adapter: Adapter) -> None:
    for state in ("queued", "quarantined"):
        adapter.plant(store, [row(state)])
        with pytest.raises(Refused):
            store.swap([change(read(store, row().id), Write({}, ("cancel_requested_at",)))], now=NOW)


def test_a_row_in_an_open_transaction_is_passed_by(
    store: Store, other: Store, adapter: Adapter, jobs: list[Job]
) -> None:
    changes = [noted(job, Entry("counted", 1), retries=1) for job in jobs]

    with other.transaction() as tx:
        tx.wake([wake("b")], now=NOW)
        if "row_locks" in adapter.gaps:  # then the whole database is held, and nothing is known to have happened
            with pytest.raises(StoreUnavailable):
                adapter.open_hasty().swap(changes, now=NOW)
        elif "locks" in adapter.gaps:  # then the first to commit wins, and the wake lands on what it left
            assert store.swap(changes, now=NOW) == [True, True, True]
        else:
            assert store.swap(changes, now=NOW) == [True, False, True]
            assert store.swap([change(jobs[1], Write(delete=True))], now=NOW) == [False]

    left = read(store, jobs[1].id)
    passed = "locks" not in adapter.gaps
    assert (left.state, left.retries) == ("processing", 0 if passed else 1)
    assert left.revision == jobs[1].revision + (1 if passed else 2)
    assert store.history(jobs[1].id) == [] or not passed
