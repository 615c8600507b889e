"""Sweeps: what each ends, removes or mends, how far it goes, and that there is one of a kind at a time."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from store import operations, sweeps
from store.archive import Archiving
from store.clock import PARKED
from store.contract import ANY_VERSION, Document, Store
from store.filters import Filter
from store.job import State
from store.sweeps import DAY, LAPSED_TOO_LONG, TERM, Limits, Passed, Scope, Sound
from tests.contract.acts import publish, read
from tests.contract.adapters import Adapter
from tests.contract.rows import NOW, TYPE, later, row

DAYS = {State.COMPLETED: 30.0, State.FAILED: 60.0, State.CANCELLED: 0.0, State.QUARANTINED: 90.0}


def keys(store: Store) -> set[str]:
    """The keys of the rows that are there."""
    return {str(job.key) for job in store.find(Filter(), limit=1000)}


# --- retention --------------------------------------------------------------------------------------------------------


def aged(state: str, days: float, key: str, **changes: str) -> object:
    """A row that has stood in ``state`` for so many days."""
    column = "held_at" if state == "quarantined" else "finished_at"
    return row(state, key=key, **{column: later(-days * DAY)}, **changes)


def test_each_state_is_kept_as_long_as_it_says_and_what_waits_or_runs_for_ever(store: Store, adapter: Adapter) -> None:
    adapter.plant(
        store,
        [
            aged("completed", 31, "gone 1"),
            aged("completed", 29, "kept 1"),
            aged("failed", 61, "gone 2"),
            aged("failed", 59, "kept 2"),
            aged("cancelled", 5000, "kept for ever"),
            aged("quarantined", 91, "gone 3"),
            aged("quarantined", 89, "kept 3"),
            row("queued", key="old", created_at=later(-1000 * DAY), run_at=later(-999 * DAY)),
            row("processing", key="long", started_at=later(-1000 * DAY)),
        ],
    )
    everything = keys(store)

    dry = sweeps.retention(store, DAYS, dry_run=True, now=NOW)
    assert keys(store) == everything
    done = sweeps.retention(store, DAYS, now=NOW)

    assert dry == done == Passed(True, affected=3)
    assert keys(store) == {key for key in everything if not key.startswith("gone")}


def test_retention_keeps_to_its_scope_and_archives_as_asked(store: Store, adapter: Adapter) -> None:
    adapter.plant(
        store,
        [
            aged("completed", 31, "a", domain="one"),
            aged("completed", 31, "b", domain="two"),
            aged("completed", 31, "c", domain="three"),
            aged("completed", 31, "d", domain="one", queue="high"),
        ],
    )
    [first] = store.find(Filter(key="a"))

    done = sweeps.retention(store, DAYS, Scope(("one", "two"), (row().queue,)), archive=Archiving(), now=NOW)

    assert done.affected == 2
    assert keys(store) == {"c", "d"}
    assert len(store.archived(first.id)) == 1


def test_a_pass_is_bounded_and_says_that_there_is_more(
    store: Store, adapter: Adapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operations, "BATCH", 2)
    adapter.plant(store, [aged("completed", 31, str(number)) for number in range(7)])

    passes = [sweeps.retention(store, DAYS, limit=3, now=NOW) for _ in range(3)]

    assert [(done.affected, done.more) for done in passes] == [(3, True), (3, True), (1, False)]


# --- time to live -----------------------------------------------------------------------------------------------------


@pytest.fixture
def crowd(store: Store, adapter: Adapter) -> None:
    """Rows that wait and run, for long and for a while."""
    adapter.plant(
        store,
        [
            row("queued", key="waits long", run_at=later(-100)),
            row("queued", key="waits", run_at=later(-99)),
            row("queued", key="scheduled", run_at=later(500), created_at=later(-500)),
            row("queued", key="parked", run_at=PARKED, created_at=later(-500)),
            row("processing", key="runs long", started_at=later(-1000), leased_until=later(60)),
            row("processing", key="runs", started_at=later(-999), leased_until=later(60)),
            row("completed", key="ended", finished_at=later(-5000)),
        ],
    )


@pytest.mark.parametrize("fail", [False, True])
def test_what_waits_or_runs_too_long_is_ended_and_nothing_else(store: Store, crowd: None, fail: bool) -> None:
    limits = Limits(age=100, runtime=1000, fail=fail)
    before = {job.key: job for job in store.find(Filter())}

    assert sweeps.expire(store, limits, dry_run=True, now=NOW) == Passed(True, affected=2)
    assert {job.key: job for job in store.find(Filter())} == before
    assert sweeps.expire(store, limits, now=NOW) == Passed(True, affected=2)

    after = {job.key: job for job in store.find(Filter())}
    changed = {key for key, job in after.items() if job != before[key]}
    assert changed == {"waits long", "runs long"}
    waited, ran = after["waits long"], after["runs long"]
    codes = {job.key: [entry.code for entry in store.history(job.id)] for job in (waited, ran)}
    assert codes == {"waits long": ["ttl_age"], "runs long": ["ttl_runtime"]}
    if fail:
        assert [(job.state, job.failure_code) for job in (waited, ran)] == [
            ("failed", "ttl_age"),
            ("failed", "ttl_runtime"),
        ]
        assert ran.lease_id is None
    else:
        assert (waited.state, ran.state, ran.cancel_requested_at) == ("cancelled", "processing", NOW)


def test_only_the_limit_that_is_set_counts(store: Store, crowd: None) -> None:
    assert sweeps.expire(store, Limits(), now=NOW) == Passed(True)
    assert sweeps.expire(store, Limits(age=100), now=NOW).affected == 1
    assert sweeps.expire(store, Limits(runtime=1000), Scope(("elsewhere",)), now=NOW).affected == 0
    assert sweeps.expire(store, Limits(runtime=1000), now=NOW).affected == 1


def test_a_wake_during_the_run_that_took_too_long_is_served(store: Store, adapter: Adapter) -> None:
    adapter.plant(store, [row("processing", started_at=later(-1000), run_at=later(-5), leased_until=later(60))])

    sweeps.expire(store, Limits(runtime=1000, fail=True), now=NOW)

    left = read(store, row().id)
    assert (left.state, left.run_at, left.failure_code) == ("queued", later(-5), "ttl_runtime")


# --- integrity --------------------------------------------------------------------------------------------------------


def test_what_no_rule_of_the_database_excludes_is_told_and_mended_where_that_is_asked_for(
    store: Store, adapter: Adapter
) -> None:
    lapsed = later(-LAPSED_TOO_LONG)
    adapter.plant(
        store,
        [
            row("processing", key="lapsed", leased_until=lapsed),
            row("processing", key="just lapsed", leased_until=later(-LAPSED_TOO_LONG + 1)),
            row("processing", key="runs", leased_until=later(5)),
        ],
    )
    with store.transaction() as tx:
        tx.execute(adapter.say("add history"), {"id": row(key="nobody").id, "at": adapter.spell(NOW)})
        tx.execute(adapter.say("add history"), {"id": row(key="runs").id, "at": adapter.spell(NOW)})
    publish(store, TYPE)
    store.put(Document("policy", "test.spoilt", ANY_VERSION, {"job_type": "test.spoilt", "priority": "high"}))
    store.put(Document("policy", "test.mistaken", ANY_VERSION, {"job_type": "test.other"}))

    found = sweeps.integrity(store, now=NOW)
    assert found == sweeps.integrity(store, now=NOW) == Sound(True, 1, 1, 2)
    mended = sweeps.integrity(store, fix=True, now=NOW)

    assert mended == Sound(True, 1, 1, 2, fixed=2)
    assert sweeps.integrity(store, fix=True, now=NOW) == Sound(True, 0, 0, 2)
    assert {document.key for document in sweeps.unreadable(store)} == {"test.spoilt", "test.mistaken"}
    states = {job.key: (job.state, job.failure_code) for job in store.find(Filter())}
    assert states["lapsed"] == ("queued", "worker_lost")
    assert states["just lapsed"][0] == states["runs"][0] == "processing"
    assert len(store.history(row(key="runs").id)) == 1


# --- one at a time ----------------------------------------------------------------------------------------------------

SWEEPS = {
    "retention": lambda store, **more: sweeps.retention(store, DAYS, **more),
    "ttl": lambda store, **more: sweeps.expire(store, Limits(age=100), **more),
    "integrity": lambda store, **more: sweeps.integrity(store, fix=True, **more),
}

#: A row that each sweep has something to do with.
TARGETS = {
    "retention": aged("completed", 31, "target"),
    "ttl": row("queued", key="target", run_at=later(-100)),
    "integrity": row("processing", key="target", leased_until=later(-100)),
}


@pytest.mark.parametrize("name", SWEEPS)
def test_whoever_comes_while_a_sweep_is_going_on_does_nothing(
    store: Store, other: Store, adapter: Adapter, name: str
) -> None:
    adapter.plant(store, [TARGETS[name]])
    under_way, may_go_on = threading.Event(), threading.Event()

    def check() -> None:
        under_way.set()
        assert may_go_on.wait(60)

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(SWEEPS[name], store, check=check)
        try:
            assert under_way.wait(60)
            before = other.find(Filter())
            assert SWEEPS[name](other).led is False
            assert other.find(Filter()) == before
            others = {word: sweep(other).led for word, sweep in SWEEPS.items() if word != name}
            assert set(others.values()) == {True}
        finally:
            may_go_on.set()
        assert first.result(60).led

    assert SWEEPS[name](other).led, "the term was given back at the end"


@pytest.mark.parametrize("name", SWEEPS)
def test_a_leader_that_died_is_followed_once_its_term_has_run_out(store: Store, name: str) -> None:
    assert store.lead(f"sweep.{name}", "dead", TERM, now=NOW).held

    assert not SWEEPS[name](store, now=later(TERM - 1)).led
    assert SWEEPS[name](store, now=later(TERM)).led


def test_a_sweep_that_lost_its_term_ends_before_its_next_batch(
    store: Store, other: Store, adapter: Adapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operations, "BATCH", 2)
    adapter.plant(store, [aged("completed", 31, str(number)) for number in range(7)])
    batches: list[int] = []

    def check() -> None:
        batches.append(1)
        if len(batches) == 3:
            assert other.lead("sweep.retention", "thief", TERM, now=later(TERM + 1)).held

    done = sweeps.retention(store, DAYS, check=check, now=NOW)

    assert done.affected == 4
    assert len(keys(store)) == 3
    assert not store.lead("sweep.retention", "third", TERM, now=later(TERM + 2)).held, "the thief's term still stands"


DYING = """
import sys, time
from store import sweeps
from store.open import open_store

sweeps.TERM = 2.0

def check():
    print("leading", flush=True)
    time.sleep(600)

sweeps.expire(open_store(sys.argv[1]), sweeps.Limits(age=100), check=check)
"""


def test_a_process_that_is_killed_in_mid_sweep_blocks_the_next_no_longer_than_its_term(
    store: Store, adapter: Adapter
) -> None:
    adapter.plant(store, [row("queued", key="target", run_at=later(-100))])
    with subprocess.Popen([sys.executable, "-c", DYING, adapter.url], stdout=subprocess.PIPE) as dying:
        assert dying.stdout is not None
        assert dying.stdout.readline().strip() == b"leading"
        assert sweeps.expire(store, Limits(age=100)).led is False
        dying.kill()

    deadline = time.monotonic() + 30
    while not (done := sweeps.expire(store, Limits(age=100))).led:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert done.affected == 1
