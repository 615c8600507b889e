"""The shift: what is due is offered, what is lost is taken back, and nothing that is wrong with one row, schedule or
service keeps it from the rest."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from middleware import lost
from middleware.broker import SCHEDULER_ACTOR, Broker
from middleware.health import LOOP_LIMIT, judge
from middleware.job import Tick
from scheduler import reconcile
from scheduler.reconcile import Shift
from store import clock
from store.contract import ANY_VERSION, Document
from store.errors import UsageError, ValkeyUnavailable
from store.events import Claim
from store.identity import new_lease_id
from store.policy import Policy
from tests.endtoend.house import eventually
from tests.middleware.conftest import working_broker  # noqa: F401 - a fixture
from tests.middleware.test_fence import job, unsteady


@pytest.fixture
def broker(working_broker: Broker) -> Iterator[Broker]:  # noqa: F811
    job(working_broker, lambda payload, run: None)
    working_broker.runtime.publish()
    yield working_broker
    working_broker.runtime.completion.close(5)


class Working:
    """A shift at work in a thread of its own; ended with the block."""

    def __init__(self, broker: Broker) -> None:
        self.shift = Shift(broker)
        self.error: BaseException | None = None
        self._broker = broker
        self.thread = threading.Thread(target=self._work)

    def _work(self) -> None:
        try:
            self.shift.work()
        except Exception as error:
            self.error = error

    def __enter__(self) -> Working:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._broker.runtime.stopping.set()
        self.thread.join(10)
        assert not self.thread.is_alive()


def wake(broker: Broker, number: int = 1, **options: Any) -> list[str]:
    """Rows that nobody rang for."""
    actor: Any = broker.actors["test.job"]
    return [row.id for row in broker.runtime.store.wake([actor.request(**options) for _ in range(number)])]


def lapse(broker: Broker, id_: str) -> None:
    """A row whose worker died an hour ago."""
    store = broker.runtime.store
    [taken] = store.claim([Claim(id_, new_lease_id(), "dead", 1)], now=store.ping() - timedelta(seconds=0))
    assert taken.job is not None
    with store.transaction() as tx:
        tx.execute(
            "UPDATE dramaturg_job SET leased_until = :t WHERE id = :id",
            {"t": clock.micros(store.ping()) - 3_600_000_000, "id": id_},
        )


def ready(broker: Broker, queue: str = "default") -> int:
    return broker.runtime.leases.sizes(queue).ready


def state_of(broker: Broker, id_: str) -> str | None:
    row = broker.runtime.store.read([id_])[0]
    return None if row is None else row.state


# --- offering


def test_what_is_due_is_offered_soon_after_it_was_committed(broker: Broker) -> None:
    with Working(broker):
        wake(broker, 3)
        eventually(lambda: ready(broker) == 3, 5)


def test_rows_of_a_paused_queue_stand_in_nobodys_way(broker: Broker) -> None:
    wake(broker, 3000, queue="paused", priority=1)
    broker.runtime.store.put(Document("queue", "paused", ANY_VERSION, {"paused": True}))
    wake(broker, queue="healthy")
    with Working(broker):
        eventually(lambda: ready(broker, "healthy") == 1, 5)
        assert ready(broker, "paused") == 0


def test_rows_of_a_queue_that_nobody_serves_stand_in_nobodys_way(broker: Broker) -> None:
    wake(broker, 3000, queue="deserted", priority=1)
    wake(broker, queue="healthy")
    with Working(broker):
        eventually(lambda: ready(broker, "healthy") == 1, 5)


def test_the_ready_set_stays_bounded_and_an_urgent_row_gets_in_all_the_same(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconcile, "WATERMARK", 300)
    wake(broker, 1000)
    with Working(broker):
        eventually(lambda: ready(broker) >= 150, 5)
        [urgent] = wake(broker, priority=1)
        eventually(
            lambda: any(
                claimed.member == f"j:{urgent}"
                for claimed in broker.runtime.leases.claim("default", [new_lease_id()], full_ms=1000).taken
            ),
            5,
        )
        time.sleep(0.3)
        assert ready(broker) <= 300 + reconcile.PAGE


def test_a_backlog_is_offered_to_its_last_row(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconcile, "WATERMARK", 200)
    wanted = set(wake(broker, 1500))
    seen: set[str] = set()
    store = broker.runtime.store
    with Working(broker):

        def drain() -> bool:
            tokens = [new_lease_id() for _ in range(100)]
            taken = broker.runtime.leases.claim("default", tokens, full_ms=60_000, short_ms=60_000).taken
            for one in taken:
                seen.add(one.member[2:])
            store.claim([Claim(one.member[2:], one.token, "here", 60) for one in taken])
            return seen >= wanted

        eventually(drain, 20, "every row to be offered")


# --- the term


def test_a_stop_ends_the_shift_soon_and_gives_the_term_back(broker: Broker) -> None:
    with Working(broker) as working:
        eventually(lambda: broker.runtime.health.idle_for("scheduler") < 1, 5)
        broker.runtime.stopping.set()
        working.thread.join(3)
        assert not working.thread.is_alive()
    assert broker.runtime.store.lead(SCHEDULER_ACTOR, "another", 5).held
    assert broker.runtime.leases.sizes("scheduler").ready == 1, "the next shift is called"


def test_whoever_has_lost_the_term_offers_nothing_and_waits(broker: Broker) -> None:
    store = broker.runtime.store
    assert store.lead(SCHEDULER_ACTOR, "another", 30).held
    with Working(broker):
        wake(broker)
        time.sleep(0.5)
        assert ready(broker) == 0
        store.resign(SCHEDULER_ACTOR, "another")
        eventually(lambda: ready(broker) == 1, 6)


def test_a_shift_ends_by_itself_and_calls_the_next(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconcile, "SHIFT", 0.5)
    working = Working(broker)
    working.thread.start()
    working.thread.join(5)
    assert not working.thread.is_alive()
    assert working.error is None
    assert broker.runtime.leases.sizes("scheduler").ready == 1


def test_two_leaders_at_once_do_no_harm(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Shift, "_lead", lambda self: setattr(self, "_term_at", time.monotonic() + 5) or HELD)
    ids = wake(broker, 20)
    lapse(broker, ids[0])
    with Working(broker), Working(broker):
        eventually(lambda: ready(broker) == 19, 5)
        eventually(lambda: state_of(broker, ids[0]) == "queued", 5)
    row = broker.runtime.store.read([ids[0]])[0]
    assert row is not None
    assert row.retries == 1


class _Held:
    held = settled = True


HELD = _Held()


def test_a_worker_that_leads_no_more_is_not_ill(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconcile, "SHIFT", 0.3)
    health = broker.runtime.health
    working = Working(broker)
    working.thread.start()
    working.thread.join(5)
    now = clock.elapsed()
    monkeypatch.setattr("store.clock.elapsed", lambda: now + LOOP_LIMIT + 5)  # others lead from now on
    health.sign("consumer default")
    health.sign("store")
    health.write()
    try:
        assert judge(broker.runtime.settings.home).reasons == []
    finally:
        health.remove()


# --- reclaiming


def test_what_a_dead_worker_left_is_taken_back(broker: Broker) -> None:
    [id_] = wake(broker)
    lapse(broker, id_)
    with Working(broker):
        eventually(lambda: state_of(broker, id_) == "queued", 10)
    row = broker.runtime.store.read([id_])[0]
    assert row is not None
    assert (row.retries, row.failure_code) == (1, "worker_lost")


def test_after_an_outage_of_the_store_workers_get_time_to_renew(broker: Broker) -> None:
    store = unsteady(broker)
    [id_] = wake(broker)
    with Working(broker):
        eventually(lambda: broker.runtime.health.idle_for("scheduler") < 1, 5)
        store.away.add("*")
        time.sleep(1.5)
        store._store.read([id_])
        store.away.clear()
        back = time.monotonic()
        lapse(broker, id_)
        eventually(lambda: state_of(broker, id_) == "queued", 10)
        assert time.monotonic() - back >= broker.runtime.worker.renew_every / 2


def test_a_valkey_that_is_away_keeps_nothing_from_being_taken_back(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    [id_, _] = wake(broker, 2)
    lapse(broker, id_)

    def away(*_: Any, **__: Any) -> None:
        raise ValkeyUnavailable("away in this test")

    monkeypatch.setattr(broker.runtime.leases, "offer", away)
    with Working(broker):
        eventually(lambda: state_of(broker, id_) == "queued", 10)


def test_rows_that_can_not_be_taken_back_keep_no_others_from_it(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lost, "RECLAIM_MOST", 2)
    ids = sorted(wake(broker, 3))
    for id_ in ids:
        lapse(broker, id_)
    with sqlite3.connect(tmp_path / "jobs.db") as connection:
        connection.execute(
            "CREATE TRIGGER stubborn BEFORE UPDATE ON dramaturg_job "
            f"WHEN old.id IN ('{ids[0]}', '{ids[1]}') AND new.state <> 'processing' "
            "BEGIN SELECT RAISE(ABORT, 'no'); END"
        )
    connection.close()
    with Working(broker):
        eventually(lambda: state_of(broker, ids[2]) == "queued", 6, "the row that can be taken back")


# --- recurring jobs that something is wrong with


def _zone(zone: Any) -> Callable[[Broker], None]:
    def put(broker: Broker) -> None:
        body = Policy("test.recurring", periodic="* * * * *").document() | {"zone": zone}
        broker.runtime.store.put(Document("policy", "test.recurring", ANY_VERSION, body))

    return put


def _list_for_a_policy(broker: Broker) -> None:
    with broker.runtime.store.transaction() as tx:
        tx.execute(
            "INSERT INTO dramaturg_document (kind, key, version, body, updated_at) "
            "VALUES ('policy', 'test.recurring', 1, '[1]', 1)"
        )


def _list_for_a_tick(broker: Broker) -> None:
    _zone("UTC")(broker)
    with broker.runtime.store.transaction() as tx:
        tx.execute(
            "INSERT INTO dramaturg_document (kind, key, version, body, updated_at) "
            "VALUES ('schedule', 'test.recurring', 1, '[1]', 1)"
        )


@pytest.mark.parametrize(
    "trouble",
    [_zone("Mars/Phobos"), _zone("Europe"), _zone("../etc/passwd"), _zone(5), _list_for_a_policy, _list_for_a_tick],
    ids=["no such zone", "a folder of zones", "a path", "a number", "a policy that is a list", "a tick that is a list"],
)
def test_a_schedule_that_is_unusable_stops_neither_offers_nor_reclaim_nor_other_schedules(
    broker: Broker, trouble: Callable[[Broker], None]
) -> None:
    trouble(broker)
    store = broker.runtime.store
    good = Policy("test.job", periodic="* * * * *")
    store.put(Document("policy", "test.job", ANY_VERSION, good.document()))
    store.put(
        Document("schedule", "test.job", ANY_VERSION, {"last_tick": clock.micros(store.ping() - timedelta(minutes=5))})
    )
    [id_] = wake(broker)
    lapse(broker, id_)
    with Working(broker) as working:
        eventually(lambda: state_of(broker, id_) == "queued" or working.error is not None, 10)
        assert working.error is None, f"the shift ended with {type(working.error).__name__}"
        document = eventually(
            lambda: found if (found := store.get("schedule", "test.job")) is not None and found.version > 1 else None,
            5,
            "the good schedule to fire",
        )
        assert document.version >= 2


@pytest.mark.parametrize("options", [{"zone": "Mars/Phobos"}, {"zone": "Europe"}, {"zone": 5}, {"interrupt": "no"}])
def test_a_wrong_option_is_refused_where_it_is_written(broker: Broker, options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        job(broker, lambda payload, run: None, "test.wrong", payload=Tick, periodic="* * * * *", **options)


def test_an_error_that_nobody_expects_ends_one_look_and_not_the_shift(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: Any) -> None:
        raise TypeError

    [id_, due] = wake(broker, 2)
    lapse(broker, id_)
    with Working(broker) as working:
        monkeypatch.setattr(working.shift._recurring, "fire", lambda: broken(1))
        eventually(lambda: state_of(broker, id_) == "queued" or working.error is not None, 10)
        assert working.error is None
    assert state_of(broker, due) == "queued"
