"""An operator's action on many rows: what it changes, what it leaves alone, and what its dry run says."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from store import operations
from store.archive import Archiving, parts
from store.archive import read as read_archived
from store.clock import PARKED
from store.contract import Archived, Store
from store.errors import Refused
from store.events import Cancel, Expire, Finish, Kind, Prune, Requeue, Reschedule
from store.filters import Filter
from store.job import COLUMNS, Job
from store.operations import Applied, Item, Settled, apply, settle
from store.policy import Policy
from store.sweeps import prune
from store.transitions import Answer
from tests.contract import rows
from tests.contract.acts import GivenUp, at_once, read
from tests.contract.adapters import Adapter
from tests.contract.rows import NOW, TYPE, later, row, wake
from tests.core.cells import FAILING

STATES = rows.STATES


@pytest.fixture
def one_of_each(store: Store, adapter: Adapter) -> dict[str, Job]:
    """A row in each state."""
    made = {state: row(state, key=state, run_at=later(60) if state == "queued" else PARKED) for state in STATES}
    adapter.plant(store, list(made.values()))
    return {state: read(store, job.id) for state, job in made.items()}


ACTIONS: dict[str, tuple[operations.Action, set[str], str | None]] = {
    "cancel": (Cancel(), {"queued", "processing"}, None),
    "reschedule": (Reschedule(delay=30), {"queued"}, "queued"),
    "requeue": (Requeue(), {"failed", "cancelled", "quarantined"}, "queued"),
    "prune": (lambda job: Prune(job.generation), {"completed", "failed", "cancelled", "quarantined"}, None),
    "expire": (lambda job: Expire(job.generation, job.attempt, job.lease_id, True), {"queued", "processing"}, "failed"),
}


@pytest.mark.parametrize("name", ACTIONS)
def test_an_action_changes_the_states_that_it_is_for_and_answers_for_the_others_what_they_are(
    store: Store, one_of_each: dict[str, Job], name: str
) -> None:
    action, changes, becomes = ACTIONS[name]
    told: list[Settled] = []

    done = apply(store, Filter(job_type=TYPE), action, now=NOW, told=told.append)

    assert done == Applied(len(changes), len(STATES) - len(changes), 0)
    for settled in told:
        assert settled.job is not None
        assert settled.decision is not None
        found = store.read([settled.job.id])[0]
        assert settled.decision.state == (None if found is None else found.state)
        if settled.job.state in changes:
            assert settled.answer is Answer.APPLIED
            assert found != settled.job
            assert becomes is None or (found is not None and found.state == becomes)
        else:
            assert settled.answer is Answer.REFUSED
            assert found == settled.job


@pytest.mark.parametrize("name", ACTIONS)
def test_a_dry_run_counts_what_the_real_one_changes_and_changes_nothing(
    store: Store, one_of_each: dict[str, Job], name: str
) -> None:
    action = ACTIONS[name][0]
    before, signals = store.find(Filter()), store.changes()
    while signals.wait(0.1):
        pass

    dry = apply(store, Filter(job_type=TYPE), action, dry_run=True, now=NOW)

    assert store.find(Filter()) == before
    assert not signals.wait(0.1)
    signals.close()
    assert apply(store, Filter(job_type=TYPE), action, now=NOW) == dry


@pytest.mark.parametrize(
    "empty",
    [
        Filter(),
        Filter(domain=""),
        Filter(queue=" "),
        Filter(ids=[]),
        Filter(ids=[""]),
        Filter(states=()),
        Filter(domain="default", states=()),
        Filter(owner="", ended_over=0),
        Filter(after_id=row().id),
    ],
)
@pytest.mark.parametrize("dry_run", [True, False])
def test_a_filter_that_names_nothing_is_refused_and_touches_nothing(
    store: Store, one_of_each: dict[str, Job], empty: Filter, dry_run: bool
) -> None:
    before = store.find(Filter())

    for action, _, _ in ACTIONS.values():
        with pytest.raises(Refused):
            apply(store, empty, action, dry_run=dry_run)

    assert store.find(Filter()) == before


def test_many_rows_are_changed_in_batches_that_are_committed_one_by_one(
    store: Store, adapter: Adapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operations, "BATCH", 3)
    adapter.plant(store, [row(key=str(number)) for number in range(10)])
    seen: list[int] = []

    def going() -> bool:
        seen.append(len(store.find(Filter(states=("cancelled",)))))
        return len(seen) < 4

    assert apply(store, Filter(job_type=TYPE), Cancel(), going=going) == Applied(9, 0, 0)
    assert seen == [0, 3, 6, 9]
    assert apply(store, Filter(states=("queued",)), Cancel(), limit=5) == Applied(1, 0, 0)


def test_a_requeue_starts_afresh_and_at_once(store: Store, adapter: Adapter) -> None:
    adapter.plant(store, [row("quarantined", key="q", **FAILING), row("failed", key="f", **FAILING)])

    apply(store, Filter(job_type=TYPE), Requeue(), now=NOW)

    for job in store.find(Filter()):
        assert (job.state, job.run_at, job.retries, job.failure_streak) == ("queued", NOW, 0, 0)
        assert (job.failure, job.failure_code, job.last_error, job.held_at) == (None, None, None, None)


@pytest.mark.parametrize(
    ("action", "state", "rings"),
    [
        (Requeue(), "quarantined", True),
        (Reschedule(delay=0), "queued", True),
        (Reschedule(run_at=NOW), "queued", True),
        (Reschedule(delay=3600), "queued", False),
        (Cancel(), "queued", False),
    ],
)
def test_what_becomes_due_is_signalled_once_a_batch(
    store: Store, adapter: Adapter, monkeypatch: pytest.MonkeyPatch, action: Any, state: str, rings: bool
) -> None:
    adapter.plant(store, [row(state, key=str(number)) for number in range(5)])
    rung: list[int] = []
    ring = store.ring
    monkeypatch.setattr(store, "ring", lambda: (rung.append(1), ring()))

    assert apply(store, Filter(job_type=TYPE), action).affected == 5

    assert len(rung) == rings


def test_the_signal_is_heard_by_another_process(store: Store, other: Store) -> None:
    store.wake([wake(delay=3600)])
    signal = other.changes()
    while signal.wait(0.1):
        pass

    apply(store, Filter(job_type=TYPE), Reschedule(delay=0))

    assert signal.wait(20)
    signal.close()
    assert [due.id for due in other.due()] == [wake().id]


# --- one winner -------------------------------------------------------------------------------------------------------


def _settled(store: Store, job: Job, event: Any) -> Settled:
    return settle(store, [Item(job.id, event, Policy(TYPE), job)])[0]


@pytest.mark.parametrize("kind", [Kind.DONE, Kind.RETRY, Kind.FAIL, Kind.AGAIN])
def test_of_a_cancel_and_a_finish_at_once_there_is_one_order(
    store: Store, other: Store, adapter: Adapter, kind: Kind
) -> None:
    jobs = [row("processing", key=str(number)) for number in range(8)]
    adapter.plant(store, jobs)

    for planted in jobs:
        job = read(store, planted.id)
        finish = Finish(job.lease_id or "", job.attempt, job.generation, kind)
        calls: list[Callable[[], Settled]] = [
            partial(_settled, store, job, finish),
            partial(_settled, other, job, Cancel()),
            partial(_settled, other, job, finish),
        ]
        first, cancelled, second = at_once(calls)
        left = read(store, job.id)
        answers = sorted([str(first.answer), str(second.answer)])
        kinds = [entry.kind for entry in store.history(job.id)]

        assert answers == ["applied", "repeated"], "a finish counts once"
        assert left.lease_id is None
        if kind is Kind.DONE:
            assert left.state == "completed"
            assert cancelled.answer in (Answer.APPLIED, Answer.REFUSED)
            assert (left.cancel_requested_at is not None) == (cancelled.answer is Answer.APPLIED)
        elif kind is Kind.FAIL and cancelled.answer is Answer.REFUSED:
            assert left.state == "failed"
        else:
            assert cancelled.answer is Answer.APPLIED
            assert left.state == "cancelled"
            assert kinds.count("cancelled") == 1
        assert left.retries == (kind in (Kind.RETRY, Kind.FAIL))


def test_a_row_that_was_woken_while_it_was_being_pruned_stays(store: Store, adapter: Adapter) -> None:
    adapter.plant(store, [row("completed")])
    [seen] = store.find(Filter())
    store.wake([wake()])

    [settled] = settle(store, [Item(seen.id, Prune(seen.generation), Policy(TYPE), seen)])

    assert settled.answer is Answer.REFUSED
    assert read(store, seen.id).state == "queued"


def test_a_late_worker_is_fenced_from_a_run_whose_time_was_over(store: Store, adapter: Adapter) -> None:
    adapter.plant(store, [row("processing")])
    [job] = store.find(Filter())
    [ended] = settle(store, [Item(job.id, Expire(job.generation, job.attempt, job.lease_id, True), Policy(TYPE), job)])
    assert ended.answer is Answer.APPLIED

    [late] = settle(store, [Item(job.id, rows.finish(job), Policy(TYPE), job)])

    assert late.answer is Answer.STALE
    left = read(store, job.id)
    assert (left.state, left.failure_code) == ("failed", "ttl_runtime")


# --- the archive ------------------------------------------------------------------------------------------------------

PAYLOAD, RESULT = '{"n":1,"big":9007199254740993}', '{"lines":[1,2.50]}'


@pytest.fixture
def ended(store: Store, adapter: Adapter) -> Job:
    """A completed row with a payload and a result."""
    adapter.plant(store, [row("completed", payload=PAYLOAD, result=RESULT)])
    return store.find(Filter())[0]


@pytest.mark.parametrize(
    ("how", "there"),
    [
        (Archiving(), (True, True, False, False)),
        (Archiving(compress=True), (True, True, True, True)),
        (Archiving(compress=True, drop_json=True), (False, False, True, True)),
        (Archiving(drop_json=True), (True, True, False, False)),
    ],
)
def test_what_is_pruned_is_kept_as_asked(store: Store, ended: Job, how: Archiving, there: tuple[bool, ...]) -> None:
    assert prune(store, Filter(ids=(ended.id,)), archive=how, now=NOW).affected == 1

    assert store.read([ended.id]) == [None]
    [kept] = store.archived(ended.id)
    assert (kept.id, kept.generation, kept.archived_at) == (ended.id, ended.generation, NOW)
    assert kept[2:6] == ended[1:5]
    assert tuple(parts(kept).values()) == there
    columns = read_archived(kept)
    assert set(columns) == set(COLUMNS)
    assert (columns["payload"], columns["result"]) == ({"n": 1, "big": 9007199254740993}, {"lines": [1, 2.5]})
    assert (columns["state"], columns["run_at"], columns["priority"]) == ("completed", "infinity", ended.priority)


def test_nothing_is_kept_where_that_was_not_asked_for_nor_by_a_dry_run(store: Store, ended: Job) -> None:
    prune(store, Filter(ids=(ended.id,)), archive=Archiving(), dry_run=True)
    assert store.read([ended.id]) == [ended]
    prune(store, Filter(ids=(ended.id,)))
    assert store.read([ended.id]) == [None]
    assert store.archived(ended.id) == []


def test_a_row_is_deleted_and_kept_together_or_not_at_all_and_does_not_keep_its_neighbours(
    store: Store, adapter: Adapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter.plant(store, [row("completed", key=key) for key in ("a", "bad", "c")])
    [bad] = store.find(Filter(key="bad"))

    def spoilt(job: Job, how: Archiving) -> Archived:
        made = kept(job, how)
        return made._replace(domain=None) if job.key == "bad" else made  # type: ignore[arg-type]

    kept = operations.kept
    monkeypatch.setattr(operations, "kept", spoilt)

    done = prune(store, Filter(job_type=TYPE), archive=Archiving())

    assert done == Applied(2, 0, 1)
    assert store.find(Filter()) == [bad]
    assert store.archived(bad.id) == []
    assert [len(store.archived(row(key=key).id)) for key in ("a", "c")] == [1, 1]


def test_each_life_of_a_job_is_kept_newest_first(store: Store, ended: Job, adapter: Adapter) -> None:
    prune(store, Filter(ids=(ended.id,)), archive=Archiving(), now=NOW)
    store.wake([wake()])
    apply(store, Filter(ids=(ended.id,)), Cancel())
    prune(store, Filter(ids=(ended.id,)), archive=Archiving())

    found = store.archived(ended.id)

    assert [read_archived(kept)["state"] for kept in found] == ["cancelled", "completed"]
    assert found[0].generation > found[1].generation


def test_a_row_that_is_locked_is_neither_deleted_nor_kept(store: Store, ended: Job, adapter: Adapter) -> None:
    if "row_locks" in adapter.gaps or "locks" in adapter.gaps:
        return
    connection = adapter.connect()
    store.adopt(connection).wake([wake()])

    done = prune(store, Filter(ids=(ended.id,)), archive=Archiving())

    assert done == Applied(0, 0, 1)
    assert store.archived(ended.id) == []
    connection.rollback()


def test_what_was_kept_vanishes_with_its_transaction(store: Store, ended: Job) -> None:
    with pytest.raises(GivenUp), store.transaction() as tx:
        tx.archive([operations.kept(ended, Archiving())])
        raise GivenUp

    assert store.archived(ended.id) == []


def test_the_same_life_kept_again_takes_the_place_of_what_was_kept(store: Store, ended: Job) -> None:
    for moment, how in ((NOW, Archiving()), (later(5), Archiving(compress=True, drop_json=True))):
        with store.transaction() as tx:
            tx.archive([operations.kept(ended, how)], now=moment)
            tx.archive([])

    [kept] = store.archived(ended.id)
    assert (kept.archived_at, parts(kept)["payload_json"]) == (later(5), False)
    assert read_archived(kept)["payload"] == {"n": 1, "big": 9007199254740993}
