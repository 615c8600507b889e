"""What a consumer takes it hands over or gives back: no slot, no row and no message is left in between."""

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
import redis
from dramatiq.worker import WorkerThread

from middleware import heartbeat as heartbeat_module
from middleware.broker import SCHEDULER_QUEUE, Broker
from middleware.build import build_broker
from middleware.consumer import Consumer
from middleware.job import Payload
from middleware.ringing import Hint
from middleware.run import Run
from middleware.settings import WorkerSettings
from middleware.worker import _ignore_second_signal
from scheduler.reconcile import declare_shift
from store.engines.valkey import Valkey
from store.errors import Refused, SchemaTooNew, UsageError, ValkeyUnavailable
from store.settings import StoreSettings
from store.valkey.entries import Offer
from tests.endtoend.house import eventually
from tests.middleware.test_fence import Hands, job, unsteady

Start = Callable[[], dramatiq.Worker]


@pytest.fixture
def broker(working_broker: Broker) -> Iterator[Broker]:
    yield working_broker
    working_broker.runtime.completion.close(5)


def state_of(broker: Broker, id_: str) -> str | None:
    row = broker.runtime.store.read([id_])[0]
    return None if row is None else row.state


# --- claiming


def test_a_bell_that_was_heard_with_every_slot_busy_is_rung_again(broker: Broker) -> None:
    job(broker, lambda payload, run: None).send()
    consumer = broker.consume("default", timeout=50)
    places = broker.runtime.slots.take(0)
    consumer._rung = broker.runtime.leases.block("default", 0.01)
    assert consumer._rung
    assert next(consumer) is None  # raising would take this queue's consumer away for three seconds
    assert broker.runtime.leases.block("default", 0.01), "another process, with a slot free, must hear it"
    broker.runtime.slots.give(places)


def test_a_job_whose_bell_rang_while_another_queue_took_the_slot_starts_when_there_is_room(
    broker: Broker, start_worker: Start
) -> None:
    broker.runtime.worker = WorkerSettings.model_validate({"WORKER_CONCURRENCY": 1, "JOBS_LEASE_SECONDS": 5})
    broker.runtime.slots.concurrency = 1
    gate = threading.Event()
    began: dict[str, float] = {}

    def handler(payload: Payload, run: Run) -> None:
        began[run.queue] = time.monotonic()
        if run.queue == "long":
            gate.wait(15)

    long, short = (job(broker, handler, f"test.{name}", queue=name) for name in ("long", "short"))
    start_worker()
    try:
        time.sleep(0.5)  # every consumer waits for its bell
        long.send()
        eventually(lambda: "long" in began, 10)
        short.send()
        time.sleep(0.5)  # the bell is heard, and for a while there is no slot
        gate.set()
        ended = time.monotonic()
        eventually(lambda: "short" in began, 10)
        assert began["short"] - ended < 1.5
    finally:
        gate.set()


def test_a_claim_is_repeated_under_the_same_lease_while_the_store_is_away(broker: Broker) -> None:
    id_ = job(broker, lambda payload, run: None).send().id
    store = unsteady(broker)
    hands = Hands(broker)
    store.deaf.add("claim")
    restored = threading.Timer(0.2, store.deaf.clear)
    restored.start()
    message = hands.take()
    restored.join()
    assert store.calls.count("claim") > 1
    assert message.holding.job.attempt == 1
    hands.run(message)
    row = hands.row(id_)
    assert row is not None
    assert (row.state, row.retries) == ("completed", 0)
    hands.nothing_left()


def test_a_claim_that_is_in_doubt_at_a_stop_is_not_counted_against_the_job(broker: Broker) -> None:
    id_ = job(broker, lambda payload, run: None).send().id
    store = unsteady(broker)
    hands = Hands(broker)
    store.deaf.add("claim")  # the claim is committed, its answer is lost
    stop = threading.Timer(0.1, broker.runtime.stopping.set)
    stop.start()
    assert next(hands.consumer) is None
    stop.join()
    store.deaf.clear()
    row = hands.row(id_)
    assert row is not None
    assert row.state == "queued" or row.stopping, "its lease will run out and count as the loss of a worker"


def test_a_job_of_a_type_unknown_here_is_given_back_uncounted_and_takes_no_slot(broker: Broker) -> None:
    actor = job(broker, lambda payload, run: None, "test.unknown")
    id_ = actor.send().id
    hands = Hands(broker)
    del broker.actors["test.unknown"]
    assert next(hands.consumer) is None
    row = hands.row(id_)
    assert row is not None
    assert (row.state, row.retries) == ("queued", 0)
    assert [(entry.kind, entry.code) for entry in broker.runtime.store.history(id_)] == [
        ("given_back", "type_unknown_here")
    ]
    hands.nothing_left()


def test_a_row_of_an_unknown_type_is_claimed_once_and_not_each_time_it_is_offered(
    broker: Broker, valkey_url: str
) -> None:
    actor = job(broker, lambda payload, run: None, "test.unknown")
    id_ = actor.send().id
    hands = Hands(broker)
    del broker.actors["test.unknown"]
    assert next(hands.consumer) is None
    assert hands.row(id_)
    with broker.runtime.store.transaction() as tx:
        tx.execute("UPDATE dramaturg_job SET run_at = 0")
    valkey = redis.Redis.from_url(valkey_url)
    for _ in range(3):
        valkey.flushall()
        broker.runtime.ring([Hint("default", id_, 5)])
        assert next(hands.consumer) is None
    row = hands.row(id_)
    assert row is not None
    assert (row.state, row.attempt) == ("queued", 1)
    broker.actors["test.unknown"] = actor  # a module that was imported late
    valkey.flushall()
    valkey.close()
    broker.runtime.ring([Hint("default", id_, 5)])
    hands.run()
    row = hands.row(id_)
    assert row is not None
    assert (row.state, row.attempt) == ("completed", 2)


def test_a_hint_without_a_row_is_dropped(broker: Broker) -> None:
    broker.runtime.ring([Hint("default", "0190f3c2-7d1e-8a6b-9c3d-2f4e5a6b7c8d", 5)])
    hands = Hands(broker)
    assert next(hands.consumer) is None
    sizes = broker.runtime.leases.sizes("default")
    assert (sizes.ready, sizes.in_flight) == (0, 0)
    hands.nothing_left()


def test_many_unknown_rows_in_front_of_one_healthy_job_do_not_keep_it_waiting(
    broker: Broker, start_worker: Start
) -> None:
    strange = job(broker, lambda payload, run: None, "test.unknown", priority=1)
    broker.wake([strange.request() for _ in range(300)])
    broker.runtime.publish()
    broker.runtime._published = False
    del broker.actors["test.unknown"], broker.runtime.policies["test.unknown"]
    id_ = job(broker, lambda payload, run: None).send().id
    start_worker()
    eventually(lambda: state_of(broker, id_) == "completed", 8, "the healthy job")


@pytest.mark.parametrize("trouble", ["refused", "valkey"])
def test_a_message_whose_batch_failed_is_handed_over_or_comes_back(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    @dramatiq.actor(broker=broker)
    def plain() -> None:
        pass

    job(broker, lambda payload, run: None).send()
    plain.send()
    hands = Hands(broker)
    if trouble == "refused":

        def refuse(*_: Any) -> None:
            raise Refused("refused in this test")

        monkeypatch.setattr(broker.runtime.store, "claim", refuse)
    else:

        def away(*_: Any) -> None:
            raise ValkeyUnavailable("away in this test")

        monkeypatch.setattr(Consumer, "_claim_rows", lambda *_: None)
        monkeypatch.setattr(broker.runtime.leases, "release", away)
    try:
        message = next(hands.consumer)
    except Refused:
        message = None
    handed_over = 0 if message is None else 1
    assert broker.runtime.slots.in_hand == handed_over
    kept = broker.runtime.in_hand.messages_to_renew(time.monotonic() + 3600)
    assert len(kept) == handed_over, "nobody has the message, and its lease is renewed for ever"


def test_an_envelope_that_is_no_message_is_buried_and_stops_nobody(broker: Broker) -> None:
    for number, envelope in enumerate((b"{", b"[]", b'{"queue_name": "default"}')):
        broker.runtime.leases.offer("default", [Offer(f"m:{number}", "1", envelope)], watermark=9)
    odd = (
        b'{"queue_name":"default","actor_name":"x","args":[],"kwargs":{},"options":[],"message_id":"1",'
        b'"message_timestamp":1}'
    )
    broker.runtime.leases.offer("default", [Offer("m:odd", "1", odd)], watermark=9)
    broker.runtime.slots.concurrency = 8
    hands = Hands(broker)
    assert next(hands.consumer) is None
    assert broker.runtime.leases.sizes("default").dead == 4
    assert broker.runtime.slots.in_hand == 0


def test_work_that_does_not_start_soon_is_left_to_other_workers(broker: Broker, start_worker: Start) -> None:
    gate = threading.Event()
    actor = job(broker, lambda payload, run: gate.wait(20) and None)
    for _ in range(50):
        broker.runtime.slots.learn(0.001)  # until now all jobs were short
    ids = [woken.id for woken in broker.wake([actor.request() for _ in range(60)])]
    start_worker()
    try:
        eventually(lambda: sum(state_of(broker, id_) == "processing" for id_ in ids) >= 4, 10)
        eventually(
            lambda: sum(state_of(broker, id_) == "processing" for id_ in ids) <= 8,
            4,
            "rows that wait behind long jobs to be there for other workers",
        )
    finally:
        gate.set()


def test_ordinary_messages_that_do_not_start_soon_are_left_to_other_workers_too(
    broker: Broker, start_worker: Start
) -> None:
    gate = threading.Event()

    @dramatiq.actor(broker=broker)
    def slow() -> None:
        gate.wait(20)

    for _ in range(50):
        broker.runtime.slots.learn(0.001)  # the jobs of this worker are short, its messages are not
    for _ in range(60):
        slow.send()
    start_worker()
    leases = broker.runtime.leases
    try:
        eventually(lambda: leases.sizes("default").in_flight >= 4, 10)
        eventually(lambda: leases.sizes("default").in_flight <= 8, 4, "messages that wait to be there for others")
    finally:
        gate.set()
        leases.flush("default")


def test_many_queues_share_few_slots_and_none_starves(broker: Broker, start_worker: Start) -> None:
    broker.runtime.slots.concurrency = 1
    ends: dict[str, float] = {}
    actors = []
    for name in ("a", "b", "c", "d", "e"):

        def handler(payload: Payload, run: Run) -> None:
            time.sleep(0.005)
            ends[run.queue] = time.monotonic()

        actors.append(job(broker, handler, f"test.{name}", queue=name))
    for actor in actors:
        broker.wake([actor.request() for _ in range(100 if actor is actors[0] else 5)])
    start_worker()
    eventually(lambda: len(ends) == 5, 20, "every queue to have had its turn")
    eventually(lambda: broker.runtime.slots.in_hand <= 1, 20)
    assert min(ends, key=lambda name: ends[name]) != "a"


# --- giving back


def test_what_was_prefetched_goes_back_unpunished(broker: Broker) -> None:
    actor = job(broker, lambda payload, run: None)
    ids = [actor.send().id for _ in range(4)]
    hands = Hands(broker)
    in_queue, buffered = hands.take(), 3
    assert len(hands.consumer._buffer) == buffered
    hands.consumer.requeue([in_queue])
    hands.consumer.close()
    for id_ in ids:
        row = hands.row(id_)
        assert row is not None
        assert (row.state, row.retries, row.lease_id) == ("queued", 0, None)
    hands.nothing_left()
    assert broker.runtime.leases.sizes("default").in_flight == 0


def test_closing_a_consumer_twice_gives_no_slot_back_twice(broker: Broker) -> None:
    actor = job(broker, lambda payload, run: None)
    actor.send()
    actor.send()
    hands = Hands(broker)
    hands.take()
    hands.consumer.close()
    hands.consumer.close()
    assert broker.runtime.slots.in_hand == 1


def test_a_stop_gives_prefetched_rows_and_messages_back(broker: Broker, start_worker: Start) -> None:
    gate, began = threading.Event(), threading.Event()

    def handler(payload: Payload, run: Run) -> None:
        began.set()
        gate.wait(20)

    @dramatiq.actor(broker=broker)
    def plain() -> None:
        pass

    actor = job(broker, handler)
    for _ in range(50):
        broker.runtime.slots.learn(0.001)
    ids = [woken.id for woken in broker.wake([actor.request() for _ in range(30)])]
    for _ in range(10):
        plain.send()
    worker = start_worker()
    assert began.wait(10)
    stopper = threading.Thread(target=worker.stop)
    stopper.start()
    eventually(broker.runtime.stopping.is_set)
    time.sleep(0.2)
    gate.set()
    stopper.join(20)
    assert not stopper.is_alive()
    rows = broker.runtime.store.read(ids)
    assert {row.state for row in rows if row is not None} <= {"completed", "queued"}
    assert all(row is not None and row.retries == 0 for row in rows)
    assert sum(row is not None and row.state == "completed" for row in rows) <= 4
    sizes = broker.runtime.leases.sizes("default")
    assert sizes.in_flight == 0
    assert broker.runtime.slots.in_hand == 0


def test_a_shift_message_that_arrives_during_the_stop_is_given_back(broker: Broker) -> None:
    worker = dramatiq.Worker(broker, worker_timeout=100)
    worker.start()
    broker.runtime.stopping.set()
    lane = worker.workers[-1]
    lane.stop()
    lane.join(10)
    worker.consumers[SCHEDULER_QUEUE].stop()
    worker.consumers[SCHEDULER_QUEUE].join(10)
    broker.runtime.leases.flush(SCHEDULER_QUEUE)
    broker.call_scheduler()
    broker.runtime.stopping.clear()
    late = eventually(lambda: next(broker.consume(SCHEDULER_QUEUE, timeout=100)), 10)
    broker.runtime.stopping.set()
    original = worker.consumers[SCHEDULER_QUEUE].stop

    def one_more() -> None:  # a consumer that was waiting for Valkey's answer while the lane was emptied
        worker.consumers[SCHEDULER_QUEUE].handle_message(late)
        original()

    worker.consumers[SCHEDULER_QUEUE].stop = one_more  # type: ignore[method-assign]
    worker.stop()
    sizes = broker.runtime.leases.sizes(SCHEDULER_QUEUE)
    assert sizes.in_flight == 0, "left in the lane: no shift anywhere until its lease runs out"


def test_middleware_that_refuses_an_ack_keeps_no_ordinary_message_for_ever(broker: Broker) -> None:
    from dramatiq.middleware import Middleware, MiddlewareError

    class Refusing(Middleware):
        def before_ack(self, broker: Any, message: Any) -> None:
            raise MiddlewareError

    broker.add_middleware(Refusing())

    @dramatiq.actor(broker=broker)
    def plain() -> None:
        pass

    plain.send()
    hands = Hands(broker)
    hands.run()
    assert broker.runtime.slots.in_hand == 0
    assert not broker.runtime.in_hand._messages


# --- a worker's life


def test_another_worker_may_follow_in_the_same_process(broker: Broker, start_worker: Start) -> None:
    ran: list[int] = []

    def handler(payload: Payload, run: Run) -> None:
        ran.append(1)

    actor = job(broker, handler)
    for number in (1, 2):  # as the fixture of Dramatiq's own guide to testing does, once a test
        worker = start_worker()
        actor.send()
        eventually(lambda number=number: len(ran) == number, 5, f"worker {number} to run the job")
        worker.stop()


def test_a_stop_right_after_the_start_reaches_threads_that_had_not_begun(
    broker: Broker, start_worker: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = threading.Event()
    run = WorkerThread.run

    def late(self: WorkerThread) -> None:
        assert begin.wait(20)
        run(self)

    monkeypatch.setattr(WorkerThread, "run", late)
    worker = start_worker()
    threading.Timer(0.2, begin.set).start()
    worker.stop(timeout=5_000)
    assert not [thread for thread in worker.workers if thread.is_alive()]


def test_what_one_worker_could_not_write_is_not_held_for_ever_by_the_next(
    broker: Broker, start_worker: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    from middleware import worker as worker_module

    monkeypatch.setattr(worker_module, "FLUSH_SECONDS", 0.2)
    broker.runtime.worker = WorkerSettings.model_validate(
        {"WORKER_CONCURRENCY": 1, "JOBS_LEASE_SECONDS": 5, "JOBS_SHUTDOWN_WAIT_FOR_LEASES_SEC": 0.5}
    )
    store = unsteady(broker)
    begun = threading.Event()

    def handler(payload: Payload, run: Run) -> None:
        store.away.add("swap")
        begun.set()

    actor = job(broker, handler)
    worker = start_worker()
    actor.send()
    assert begun.wait(10)
    worker.stop()
    store.away.clear()
    start_worker()
    assert broker.runtime.in_hand.rows() == []


def test_a_second_signal_of_another_kind_changes_nothing_either() -> None:
    handled: list[int] = []
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        for number in before:
            signal.signal(number, lambda number, frame: handled.append(number))
        _ignore_second_signal()
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGTERM):  # a terminal that is closed, a unit's stop
            os.kill(os.getpid(), number)
            time.sleep(0.01)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert len(handled) == 1, "Dramatiq kills the process at its second signal, in the middle of the stop"


def test_a_store_that_is_away_at_boot_is_waited_for(
    broker: Broker, start_worker: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat_module, "CALL_EVERY", 0.2)
    store = unsteady(broker)
    store.away.add("*")
    ran = threading.Event()

    def handler(payload: Payload, run: Run) -> None:
        ran.set()

    actor = job(broker, handler)
    start_worker()
    time.sleep(1.0)
    store.away.clear()
    actor.send()
    assert ran.wait(20)


def test_a_schema_that_a_worker_must_not_touch_is_refused_however_late_the_store_answers(
    broker: Broker, start_worker: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat_module, "CALL_EVERY", 0.2)
    store = unsteady(broker)
    store.away.add("*")
    ran = threading.Event()

    def handler(payload: Payload, run: Run) -> None:
        ran.set()

    actor = job(broker, handler)
    start_worker()

    def too_new(*_: Any) -> None:
        raise SchemaTooNew("in this test")

    store.check_schema = too_new
    store.away.clear()
    actor.send()
    assert not ran.wait(3), "it works on a database that is marked as breaking for it"


def test_a_valkey_that_is_away_at_boot_is_waited_for(
    tmp_path: Path, fresh_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat_module, "CALL_EVERY", 0.2)
    server = Valkey(fresh_home / "valkey")
    made = build_broker(
        StoreSettings.model_validate(
            {"JOBS_HOME": tmp_path, "JOBS_DB_URL": f"sqlite:///{tmp_path}/jobs.db", "JOBS_VALKEY_URL": server.url}
        ),
        WorkerSettings.model_validate({"WORKER_CONCURRENCY": 1}),
    )
    made.runtime.store.migrate()
    declare_shift(made)
    ran = threading.Event()

    def handler(payload: Payload, run: Run) -> None:
        ran.set()

    id_ = job(made, handler).send().id
    worker = dramatiq.Worker(made, worker_timeout=100)
    worker.start()
    try:
        time.sleep(0.5)
        assert state_of(made, id_) == "queued"
        server.start()
        assert ran.wait(20)
    finally:
        worker.stop()
        made.close()
        server.stop()


def test_whoever_owns_the_embedded_valkey_ends_it_whatever_happened_in_between(fresh_home: Path) -> None:
    made = build_broker(
        StoreSettings.model_validate({"JOBS_HOME": fresh_home, "JOBS_DB_URL": f"sqlite:///{fresh_home}/jobs.db"}),
        WorkerSettings(),
    )
    runtime = made.runtime
    runtime.leases.sizes("default")
    assert runtime._engine is not None
    engine = runtime._engine.engine
    assert engine is not None
    try:
        runtime.revive_valkey()  # one reply that was late
        runtime.leases.sizes("default")
        made.close()
        assert not engine.running
    finally:
        engine.stop()


def rung(broker: Broker, id_: str) -> bool:
    """Ring for a row, and say whether Valkey has it: a hint is lost where it meets one that has just gone."""
    broker.runtime.ring([Hint("default", id_, 5)])
    try:
        return broker.runtime.leases.sizes("default").ready > 0
    except ValkeyUnavailable:
        return False


def test_a_valkey_whose_owner_ended_is_brought_up_by_somebody_else(fresh_home: Path) -> None:
    settings = StoreSettings.model_validate({"JOBS_HOME": fresh_home, "JOBS_DB_URL": f"sqlite:///{fresh_home}/jobs.db"})
    owner, other = build_broker(settings, WorkerSettings()), build_broker(settings, WorkerSettings())
    other.runtime.store.migrate()
    try:
        owner.runtime.leases.sizes("default")
        other.runtime.leases.sizes("default")
        owner.close()
        id_ = job(other, lambda payload, run: None).send().id
        eventually(lambda: rung(other, id_), 30, "a Valkey that somebody brought up")
        hands = Hands(other)
        hands.run()
        row = hands.row(id_)
        assert row is not None
        assert row.state == "completed"
    finally:
        other.runtime.completion.close(5)
        other.close()


def test_a_job_may_not_stand_in_the_schedulers_own_queue(broker: Broker) -> None:
    with pytest.raises(UsageError):
        job(broker, lambda payload, run: None, queue=SCHEDULER_QUEUE)
