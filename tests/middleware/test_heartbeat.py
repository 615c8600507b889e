"""What is in hand is kept alive and told what it must know, whatever else goes wrong in the process."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dramatiq
import pytest

from middleware import logs
from middleware.broker import SCHEDULER_QUEUE, Broker
from middleware.build import build_broker
from middleware.consumer import LANE_LEASE
from middleware.heartbeat import Heartbeat
from middleware.interrupts import Cancelled, LeaseLost, Stopped
from middleware.job import Payload
from middleware.run import Run
from middleware.settings import WorkerSettings
from scheduler.reconcile import declare_shift
from store.engines.valkey import Valkey
from store.errors import UsageError
from store.events import Cancel
from store.filters import Filter
from store.operations import apply, reclaim
from store.settings import StoreSettings
from tests.endtoend.house import eventually
from tests.middleware.test_fence import Hands, job, unsteady

Start = Callable[[], dramatiq.Worker]


@pytest.fixture
def broker(working_broker: Broker) -> Iterator[Broker]:
    yield working_broker
    working_broker.runtime.completion.close(5)


def taken(broker: Broker, number: int = 1, **options: Any) -> tuple[Hands, list[Any]]:
    """So many claimed rows, not yet run."""
    actor = job(broker, lambda payload, run: None, **options)
    broker.runtime.slots.concurrency = number
    for _ in range(number):
        actor.send()
    hands = Hands(broker)
    return hands, [hands.take() for _ in range(number)]


def leased_until(broker: Broker, id_: str) -> Any:
    row = broker.runtime.store.read([id_])[0]
    assert row is not None
    return row.leased_until


def test_leases_are_renewed_in_the_row_and_in_valkey_when_it_is_time(broker: Broker) -> None:
    hands, [message] = taken(broker)
    holding, heartbeat = message.holding, Heartbeat(broker)
    first = leased_until(broker, holding.job.id)
    time.sleep(0.02)
    heartbeat.beat(holding.renew_at - 0.01)
    assert leased_until(broker, holding.job.id) == first
    heartbeat.beat(holding.renew_at)
    assert leased_until(broker, holding.job.id) > first
    assert holding.renew_at > time.monotonic() + 1
    hands.consumer.requeue([message])


def test_renewal_ends_with_the_types_time_limit_and_not_for_what_only_waits(broker: Broker) -> None:
    hands, [runs, waits] = taken(broker, 2, time_limit=60)
    heartbeat = Heartbeat(broker)
    runs.holding.begin()
    later = time.monotonic() + 61
    before = [leased_until(broker, one.holding.job.id) for one in (runs, waits)]
    time.sleep(0.02)
    heartbeat.beat(later)
    assert leased_until(broker, runs.holding.job.id) == before[0]
    assert leased_until(broker, waits.holding.job.id) > before[1]
    runs.holding.leave()
    hands.consumer.requeue([runs, waits])


@pytest.mark.parametrize("interrupt", [False, True])
def test_a_cancel_is_told_and_interrupts_only_who_asked_for_it(broker: Broker, interrupt: bool) -> None:
    _, [message] = taken(broker, interrupt=interrupt)
    holding = message.holding
    apply(broker.runtime.store, Filter(ids=(holding.job.id,)), Cancel())
    holding.begin()
    struck = False
    try:
        Heartbeat(broker).beat(time.monotonic() + 1.5)
        for _ in range(1000):
            pass
    except Cancelled:
        struck = True
    finally:
        holding.leave()
    assert (holding.cancelled, struck) == (True, interrupt)
    with pytest.raises(Cancelled):
        Run(holding, broker.runtime).check()


def test_a_lost_lease_is_told_and_valkey_is_free_for_the_next(broker: Broker) -> None:
    from datetime import timedelta

    _, [message] = taken(broker)
    store, holding = broker.runtime.store, message.holding
    assert len(reclaim(store, now=store.ping() + timedelta(hours=1)).taken) == 1
    holding.begin()
    heartbeat = Heartbeat(broker)
    heartbeat.beat(time.monotonic() + 1.5)
    heartbeat.beat_in_valkey(time.monotonic() + 1.5)
    holding.leave()
    with pytest.raises(LeaseLost):
        Run(holding, broker.runtime).check()
    assert broker.runtime.leases.sizes("default").in_flight == 0


def test_a_store_that_is_away_takes_no_lease_and_no_progress_from_anybody(broker: Broker) -> None:
    hands, [message] = taken(broker)
    store, holding, heartbeat = unsteady(broker), message.holding, Heartbeat(broker)
    holding.begin()
    Run(holding, broker.runtime).progress(40, "almost half")
    store.away.add("*")
    heartbeat.beat(time.monotonic() + 1.5)
    assert not holding.lost
    store.away.clear()
    heartbeat.beat(time.monotonic() + 1.5)
    row = store.read([holding.job.id])[0]
    assert (row.progress_percent, row.progress_message) == (40, "almost half")
    holding.leave()
    hands.consumer.requeue([message])


def test_odd_progress_is_refused_where_it_is_reported(broker: Broker) -> None:
    hands, [odd] = taken(broker, 1)
    for message in ("caf\udce9", "a\x00b", "two\nlines", "x" * 501):  # a path that is no UTF-8, as Python spells it
        with pytest.raises(UsageError):
            Run(odd.holding, broker.runtime).progress(10, message)
    assert odd.holding.progress is None
    hands.consumer.requeue([odd])


def test_a_row_that_refuses_to_be_renewed_keeps_no_neighbour_from_it(broker: Broker, tmp_path: Path) -> None:
    import sqlite3

    hands, [bad, neighbour] = taken(broker, 2)
    before = leased_until(broker, neighbour.holding.job.id)
    with sqlite3.connect(tmp_path / "jobs.db") as connection:
        connection.execute(
            "CREATE TRIGGER stubborn BEFORE UPDATE ON dramaturg_job "
            f"WHEN old.id = '{bad.holding.job.id}' AND new.leased_until > old.leased_until "
            "BEGIN SELECT RAISE(ABORT, 'no'); END"
        )
    connection.close()
    time.sleep(0.02)
    try:
        Heartbeat(broker).beat(time.monotonic() + 2)
    except Exception as error:
        pytest.fail(f"the whole beat fails with {type(error).__name__}: no lease of this process is renewed")
    assert leased_until(broker, neighbour.holding.job.id) > before
    hands.consumer.requeue([bad, neighbour])


def test_a_stop_is_carried_through_though_the_marks_can_not_be_written(broker: Broker, start_worker: Start) -> None:
    broker.runtime.worker = WorkerSettings.model_validate(
        {"WORKER_CONCURRENCY": 1, "JOBS_LEASE_SECONDS": 5, "JOBS_SHUTDOWN_WAIT_FOR_LEASES_SEC": 0}
    )
    begun = threading.Event()
    seen: list[str] = []

    def handler(payload: Payload, run: Run) -> None:
        begun.set()
        deadline = time.monotonic() + 6
        try:
            while time.monotonic() < deadline:
                time.sleep(0.01)
            seen.append("went on to its end")
        except Stopped:
            seen.append("stopped")
            raise

    store = unsteady(broker)
    id_ = job(broker, handler).send().id
    worker = start_worker()
    assert begun.wait(10)

    def broken(*_: Any, **__: Any) -> Any:
        raise TypeError("not what anybody expects")

    store.renew = broken
    worker.stop()
    assert seen == ["stopped"]
    row = store.read([id_])[0]
    assert (row.state, row.retries) == ("queued", 0)


def test_messages_are_renewed_while_they_are_in_hand_and_not_afterwards(broker: Broker) -> None:
    @dramatiq.actor(broker=broker)
    def plain() -> None:
        pass

    plain.send()
    hands = Hands(broker)
    message = hands.take()
    in_hand = broker.runtime.in_hand
    assert in_hand.messages_to_renew(time.monotonic()) == []
    assert len(in_hand.messages_to_renew(time.monotonic() + 10)) == 1
    hands.run(message)
    assert in_hand.messages_to_renew(time.monotonic() + 1000) == []


def test_a_shift_that_hangs_is_not_held_for_ever(broker: Broker) -> None:
    broker.call_scheduler()
    message = Hands(broker, SCHEDULER_QUEUE).take()
    assert message.actor_name == "scheduler.reconcile"
    later = time.monotonic() + 10 * LANE_LEASE + 60
    kept = broker.runtime.in_hand.messages_to_renew(later)
    assert kept == [], "a shift lasts a minute: one that hangs keeps the whole fleet without a scheduler"


def test_a_valkey_that_hangs_costs_no_run_its_row(tmp_path: Path, fresh_home: Path) -> None:
    server = Valkey(fresh_home / "valkey").start()
    made = build_broker(
        StoreSettings.model_validate(
            {"JOBS_HOME": tmp_path, "JOBS_DB_URL": f"sqlite:///{tmp_path}/jobs.db", "JOBS_VALKEY_URL": server.url}
        ),
        WorkerSettings.model_validate({"WORKER_CONCURRENCY": 1, "JOBS_LEASE_SECONDS": 4}),
    )
    made.runtime.store.migrate()
    begun, gate = threading.Event(), threading.Event()

    def handler(payload: Payload, run: Run) -> None:
        begun.set()
        gate.wait(30)

    declare_shift(made)
    id_ = job(made, handler).send().id
    worker = dramatiq.Worker(made, worker_timeout=100)
    worker.start()
    try:
        assert begun.wait(15)
        os.kill(server.pid, signal.SIGSTOP)
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            assert leased_until(made, id_) > made.runtime.store.ping(), "the row's lease ran out: a rival may take it"
            time.sleep(0.1)
    finally:
        os.kill(server.pid, signal.SIGCONT)
        gate.set()
        worker.stop()
        made.close()
        server.stop()


def test_a_beat_that_fails_is_told_and_the_next_one_is_made(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    beats: list[int] = []
    heartbeat = Heartbeat(broker)

    def bad(_: float) -> None:
        beats.append(1)
        raise TypeError

    monkeypatch.setattr(heartbeat, "beat", bad)
    broker.runtime.worker = WorkerSettings.model_validate({"JOBS_LEASE_SECONDS": 1})
    heartbeat.start()
    eventually(lambda: len(beats) >= 3, 10)
    heartbeat.stop(5)


def test_a_failure_of_another_kind_is_told_though_one_was_told_just_now(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []

    class Log:
        def error(self, event: str, **fields: Any) -> None:
            told.append(fields["code"])

    monkeypatch.setattr(logs, "log", Log())
    monkeypatch.setattr(logs, "_THROTTLE", logs.Throttle())
    for error in (TypeError(), TypeError(), KeyError()):
        logs.trouble("heartbeat_failed", error)
    assert told == ["TypeError", "KeyError"]


def test_a_run_beyond_its_time_limit_hears_of_it_and_counts_as_a_failure(broker: Broker) -> None:
    def handler(payload: Payload, run: Run) -> None:
        run.check()
        Heartbeat(broker).beat(time.monotonic() + 5)
        run.progress(50)

    id_ = job(broker, handler, time_limit=1).send().id
    hands = Hands(broker)
    hands.run()
    row = hands.row(id_)
    assert row is not None
    assert (row.state, row.retries, row.failure_code) == ("queued", 1, "time_limit")


def test_the_last_report_of_progress_is_not_lost_with_the_finish(broker: Broker) -> None:
    def handler(payload: Payload, run: Run) -> None:
        run.progress(100, "all of it")

    id_ = job(broker, handler).send().id
    hands = Hands(broker)
    hands.run()
    row = hands.row(id_)
    assert row is not None
    assert (row.state, row.progress_percent, row.progress_message) == ("completed", 100, "all of it")
