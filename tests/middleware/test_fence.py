"""Whatever happens around a handler, its row is settled once, under its own lease, and nothing else is touched."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from queue import PriorityQueue
from typing import Any

import dramatiq
import pytest
import redis
from dramatiq.middleware import Middleware, MiddlewareError, SkipMessage
from dramatiq.worker import ConsumerThread, WorkerThread

from middleware import completion as completion_module
from middleware.broker import Broker
from middleware.delivery import JobDelivery
from middleware.fence import Fence, JobFailed
from middleware.heartbeat import Heartbeat
from middleware.interrupts import Cancelled, LeaseLost, Stopped
from middleware.job import JobActor, Payload, declare
from middleware.ringing import Hint
from middleware.run import Run
from middleware.settings import WorkerSettings
from store.contract import Store
from store.errors import StoreUnavailable, UsageError
from store.events import Cancel
from store.filters import Filter
from store.job import Job
from store.operations import apply
from store.outcome import Again, Done, Fail, Park, Retry
from tests.endtoend.house import eventually

SECRET = "hunter2-of-the-customer"


class Hands:
    """A worker without threads of its own: it claims, runs and settles when it is told to."""

    def __init__(self, broker: Broker, queue: str = "default") -> None:
        broker.declare_queue(queue)
        broker.runtime.publish()
        self.broker, self.runtime = broker, broker.runtime
        self._consumer = broker.consume(queue, timeout=100)
        self._work: PriorityQueue[Any] = PriorityQueue()
        keeper = ConsumerThread(broker=broker, queue_name=queue, prefetch=1, work_queue=self._work, worker_timeout=100)
        keeper.consumer = self._consumer
        self.keeper = keeper
        self._thread = WorkerThread(broker=broker, consumers={queue: keeper}, work_queue=self._work, worker_timeout=100)

    @property
    def consumer(self) -> Any:
        """What takes from the queue, once all that was sent has been rung for."""
        assert self.runtime.ringing.flush(10)
        return self._consumer

    def take(self) -> Any:
        """The next delivery."""
        return eventually(lambda: next(self.consumer), 40, "a delivery")

    def run(self, message: Any | None = None) -> None:
        """Process one delivery as a worker thread does, in this thread."""
        self.keeper.handle_message(self.take() if message is None else message)
        self._thread.process_message(self._work.get(timeout=5).message)

    def row(self, id_: str) -> Job | None:
        """The row, once all that was handed over is written."""
        assert self.runtime.completion.flush(10)
        return self.runtime.store.read([id_])[0]

    def nothing_left(self) -> None:
        """No slot, no row and no message is in hand, and no ordinary message was made of a job."""
        eventually(lambda: not self.runtime.in_hand.rows(), 2, "no row in hand")
        eventually(lambda: self.runtime.slots.in_hand == 0, 2, "all slots to be free")
        assert not self.runtime.in_hand._messages
        sizes = self.runtime.leases.sizes("default")
        assert (sizes.delayed, sizes.dead) == (0, 0), "a job was enqueued as if it were an ordinary message"


class Unsteady:
    """The store, some of whose verbs do not answer: before they did anything, or after they did it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.away: set[str] = set()
        self.deaf: set[str] = set()
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._store, name)
        if not callable(verb):
            return verb

        def call(*args: Any, **kwargs: Any) -> Any:
            self.calls.append(name)
            if name in self.away or "*" in self.away:
                raise StoreUnavailable("the database is away in this test")
            answer = verb(*args, **kwargs)
            if name in self.deaf:
                raise StoreUnavailable("the answer of the database was lost in this test")
            return answer

        return call


def unsteady(broker: Broker) -> Unsteady:
    """Put an unsteady store into the broker's process."""
    made = Unsteady(broker.runtime.store)
    broker.runtime.__dict__["store"] = made
    return made


@pytest.fixture
def broker(working_broker: Broker) -> Iterator[Broker]:
    yield working_broker
    working_broker.runtime.completion.close(5)


def job(broker: Broker, handler: Callable[..., Any], job_type: str = "test.job", **options: Any) -> JobActor[Any, Any]:
    return declare(broker, handler, job_type, options.pop("payload", Payload), None, options)


def everything_in(valkey_url: str) -> bytes:
    found = []
    with redis.Redis.from_url(valkey_url) as client:
        for key in client.scan_iter("*"):
            if client.type(key) == b"hash":
                found += [part for pair in client.hgetall(key).items() for part in pair]
            elif client.type(key) == b"zset":
                found += client.zrange(key, 0, -1)
    return b"\n".join(found)


# --- outcomes


@pytest.mark.parametrize(
    ("outcome", "state", "retries", "code"),
    [
        (None, "completed", 0, None),
        (Done({"a": 1}), "completed", 0, None),
        (Again(hours=1), "queued", 0, None),
        (Again(), "queued", 0, None),
        (Park(), "queued", 0, None),
        (Retry("not_yet"), "queued", 1, "not_yet"),
        (Fail("never"), "failed", 1, "never"),
        ("a text", "queued", 1, "outcome_unknown"),
        (Done(object()), "queued", 1, "payload_invalid"),
    ],
)
def test_an_answer_becomes_the_state_of_the_row(
    broker: Broker, outcome: Any, state: str, retries: int, code: str | None
) -> None:
    id_ = job(broker, lambda payload, run: outcome).send().id
    hands = Hands(broker)
    hands.run()
    row = hands.row(id_)
    assert row is not None
    assert (row.state, row.retries, row.failure_code) == (state, retries, code)
    hands.nothing_left()


class Own(BaseException):
    pass


@pytest.mark.parametrize(
    "error", [ValueError, SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError, Own]
)
def test_whatever_a_handler_raises_is_one_coded_failure_with_backoff(
    broker: Broker, valkey_url: str, error: type[BaseException]
) -> None:
    def handler(payload: Payload, run: Run) -> None:
        raise error(SECRET)

    id_ = job(broker, handler).send().id
    hands = Hands(broker)
    hands.run()
    row = hands.row(id_)
    assert row is not None
    assert SECRET.encode() not in everything_in(valkey_url)
    assert (row.state, row.retries) == ("queued", 1), "it must not be released to run again at once, uncounted"
    hands.nothing_left()


def test_an_error_that_can_not_even_be_described_is_a_failure_too(broker: Broker) -> None:
    class Awkward(Exception):
        @property
        def response(self) -> None:
            raise RuntimeError

    def handler(payload: Payload, run: Run) -> None:
        raise Awkward

    id_ = job(broker, handler).send().id
    hands = Hands(broker)
    hands.run()
    row = hands.row(id_)
    assert row is not None
    assert (row.state, row.retries) == ("queued", 1)
    hands.nothing_left()


def test_an_error_whose_number_is_none_is_a_failure_too(broker: Broker) -> None:
    def handler(payload: Payload, run: Run) -> None:
        raise OSError(["no number"], "text")

    id_ = job(broker, handler).send().id
    hands = Hands(broker)
    hands.run()
    row = hands.row(id_)
    assert row is not None
    assert (row.state, row.retries) == ("queued", 1)
    hands.nothing_left()


def test_counting_under_odd_names_never_makes_a_job_run_in_a_loop(broker: Broker) -> None:
    def handler(payload: Payload, run: Run) -> None:
        run.count("rows")
        run.count(404)  # type: ignore[arg-type]

    id_ = job(broker, handler).send().id
    hands = Hands(broker)
    hands.run()
    row = hands.row(id_)
    assert row is not None
    assert row.state == "completed" or row.retries == 1, "released at once, uncounted: it would run for ever"
    hands.nothing_left()


@pytest.mark.parametrize("payload", ["[]", "5", "null", '{"unknown": 1}'])
def test_a_payload_that_fits_no_more_is_a_coded_failure(broker: Broker, payload: str) -> None:
    actor = job(broker, lambda payload, run: None)
    wake = actor.request()._replace(payload=payload)
    broker.wake([wake])
    hands = Hands(broker)
    hands.run()
    row = hands.row(wake.id)
    assert row is not None
    assert (row.state, row.retries, row.failure_code) == ("queued", 1, "payload_invalid")
    hands.nothing_left()


def test_nobody_can_enqueue_a_job_as_if_it_were_an_ordinary_message(broker: Broker) -> None:
    job(broker, lambda payload, run: None)
    message: Any = dramatiq.Message("default", "test.job", (), {}, {})
    with pytest.raises(UsageError):  # as somebody's own kind of Retries might try
        broker.enqueue(message, delay=1000)


def test_a_job_that_is_called_without_a_fence_does_not_run(broker: Broker) -> None:
    ran = []
    actor = job(broker, lambda payload, run: ran.append(1))
    with pytest.raises(JobFailed):
        actor()
    assert not ran


# --- other middleware


class Awkward(Middleware):
    """Does something in one hook."""

    def __init__(self, hook: str, deed: Callable[[Any], None]) -> None:
        self._deed = deed
        setattr(type(self), hook, lambda self, broker, message, *rest, **more: self._deed(message))


def _skip(_: Any) -> None:
    raise SkipMessage


def _error(_: Any) -> None:
    raise ValueError(SECRET)


def _refuse(_: Any) -> None:
    raise MiddlewareError(SECRET)


@pytest.mark.parametrize("place", ["before", "after"])
@pytest.mark.parametrize(
    ("hook", "deed"),
    [
        ("before_process_message", _skip),
        ("before_process_message", _error),
        ("before_process_message", _refuse),
        ("before_process_message", lambda message: message.fail()),
        ("after_process_message", _error),
        ("after_process_message", _refuse),
        ("after_skip_message", _error),
        ("before_ack", _error),
        ("before_ack", _refuse),
        ("after_ack", _error),
    ],
)
def test_middleware_that_skips_fails_or_raises_loses_neither_row_nor_slot(
    broker: Broker, valkey_url: str, place: str, hook: str, deed: Callable[[Any], None]
) -> None:
    class Other(Awkward):
        pass

    where: dict[str, Any] = {place: Fence}
    broker.add_middleware(Other(hook, deed), **where)
    id_ = job(broker, lambda payload, run: None).send().id
    hands = Hands(broker)
    hands.run()
    row = hands.row(id_)
    assert row is not None
    assert row.state in ("queued", "completed")
    assert row.retries == 0
    assert SECRET.encode() not in everything_in(valkey_url)
    hands.nothing_left()


def test_a_message_of_a_job_has_an_age_that_other_middleware_can_reckon_with(broker: Broker) -> None:
    job(broker, lambda payload, run: None).send()
    hands = Hands(broker)
    message = hands.take()
    assert abs(time.time() * 1000 - message.message_timestamp) < 60_000
    hands.consumer.requeue([message])


def test_an_interrupt_that_strikes_while_a_failure_is_being_handled_loses_nothing(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    from middleware.holding import Holding

    leave, calls = Holding.leave, []

    def struck(self: Holding) -> None:
        calls.append(1)
        if len(calls) == 1:
            raise Stopped  # as one that was sent a moment before and is raised in here
        leave(self)

    def handler(payload: Payload, run: Run) -> None:
        raise ValueError(SECRET)

    monkeypatch.setattr(Holding, "leave", struck)
    id_ = job(broker, handler).send().id
    hands = Hands(broker)
    hands.run()
    row = hands.row(id_)
    assert row is not None
    assert row.state == "queued"
    kinds = [entry.code for entry in broker.runtime.store.history(id_)]
    assert "skipped" not in kinds, "the handler did run: its end is a failure or a stop, not a skip"
    hands.nothing_left()


def test_nobody_can_interrupt_the_thread_of_a_run_that_some_middleware_skipped(broker: Broker) -> None:
    class Other(Awkward):
        pass

    broker.add_middleware(Other("before_process_message", _skip), after=Fence)
    job(broker, lambda payload, run: None).send()
    hands = Hands(broker)
    message = hands.take()
    hands.run(message)
    assert message.holding.thread is None


def test_nobody_can_interrupt_the_thread_of_a_run_whose_payload_did_not_fit(broker: Broker) -> None:
    wake = job(broker, lambda payload, run: None).request()._replace(payload="[]")
    broker.wake([wake])
    hands = Hands(broker)
    message = hands.take()
    hands.run(message)
    assert message.holding.thread is None


def test_a_stop_that_strikes_before_the_handler_leaves_the_row_unpunished(broker: Broker, valkey_url: str) -> None:
    class Other(Awkward):
        pass

    def strike(message: Any) -> None:
        message.holding.interrupt(Stopped)
        for _ in range(1000):
            pass

    broker.add_middleware(Other("before_process_message", strike), after=Fence)
    ran: list[int] = []
    id_ = job(broker, lambda payload, run: ran.append(1)).send().id
    hands = Hands(broker)
    hands.run()
    row = hands.row(id_)
    assert row is not None
    assert row.retries == 0
    hands.nothing_left()


def test_an_interrupt_that_comes_too_late_strikes_nobody(broker: Broker) -> None:
    seen: list[Any] = []

    def handler(payload: Payload, run: Run) -> None:
        seen.append(run._holding)

    id_ = job(broker, handler).send().id
    hands = Hands(broker)
    hands.run()
    seen[0].interrupt(Stopped)
    for _ in range(1000):
        pass
    row = hands.row(id_)
    assert row is not None
    assert row.state == "completed"


# --- what a run is told


def _held(broker: Broker, **options: Any) -> tuple[Hands, JobDelivery, Run]:
    job(broker, lambda payload, run: None, **options).send()
    hands = Hands(broker)
    message = hands.take()
    return hands, message, Run(message.holding, broker.runtime)


@pytest.mark.parametrize(("told", "raised"), [("cancelled", Cancelled), ("lost", LeaseLost)])
def test_a_cancel_and_a_lost_lease_wake_a_run_that_sleeps(
    broker: Broker, told: str, raised: type[BaseException]
) -> None:
    hands, message, run = _held(broker)
    teller = threading.Timer(0.05, lambda: message.holding.tell(**{told: True}))
    teller.start()
    began = time.monotonic()
    with pytest.raises(raised):
        run.sleep(30)
    assert time.monotonic() - began < 5
    teller.join()
    hands.consumer.requeue([message])


def test_a_run_still_sleeps_while_its_worker_is_being_stopped(broker: Broker) -> None:
    hands, message, run = _held(broker)
    run.sleep(0.001)
    message.holding.tell(stopped=True)
    assert run.stopping
    began = time.monotonic()
    for _ in range(3):
        run.sleep(0.1)  # a handler that polls something must not do it as fast as it can
    assert time.monotonic() - began >= 0.2
    hands.consumer.requeue([message])


def test_a_cancel_that_a_wake_withdrew_lets_the_woken_run_happen(broker: Broker) -> None:
    ids: list[str] = []
    runs: list[int] = []

    def handler(payload: Payload, run: Run) -> None:
        runs.append(1)
        if len(runs) == 1:
            apply(broker.runtime.store, Filter(ids=(ids[0],)), Cancel())
            Heartbeat(broker).mark_stopping()  # any look tells of the cancel
            actor.send_with_options(key="k")
            run.check()

    actor = job(broker, handler)
    ids.append(actor.send_with_options(key="k").id)
    hands = Hands(broker)
    hands.run()
    row = hands.row(ids[0])
    assert row is not None
    assert (row.state, row.retries) == ("queued", 0)
    hands.run()
    row = hands.row(ids[0])
    assert row is not None
    assert row.state == "completed"
    assert len(runs) == 2
    hands.nothing_left()


def test_a_run_whose_row_was_taken_over_changes_nothing_any_more(broker: Broker) -> None:
    from store.operations import reclaim

    def handler(payload: Payload, run: Run) -> Done:
        store = broker.runtime.store
        from datetime import timedelta

        assert len(reclaim(store, now=store.ping() + timedelta(hours=1)).taken) == 1
        return Done({"mine": True})

    id_ = job(broker, handler).send().id
    hands = Hands(broker)
    hands.run()
    row = hands.row(id_)
    assert row is not None
    assert (row.state, row.failure_code, row.result) == ("queued", "worker_lost", None)
    hands.nothing_left()


# --- a transaction of the run's own


def test_a_run_ends_with_its_own_writes_or_not_at_all(broker: Broker) -> None:
    def handler(payload: Payload, run: Run) -> None:
        with run.transaction(Done(1)) as tx:
            tx.execute("CREATE TABLE effects (n INTEGER)")
            tx.execute("INSERT INTO effects VALUES (1)")
            if run.attempt == 1:
                raise ValueError

    id_ = job(broker, handler, backoff_first=0.001).send().id
    hands = Hands(broker)
    hands.run()
    row = hands.row(id_)
    assert row is not None
    assert (row.state, row.retries) == ("queued", 1)
    broker.runtime.ring([Hint("default", id_, 5)])
    hands.run()
    row = hands.row(id_)
    assert row is not None
    assert (row.state, row.retries, row.result) == ("completed", 0, "1")
    hands.nothing_left()


@pytest.mark.parametrize("error", [ValueError, Stopped, Cancelled, LeaseLost, SystemExit])
def test_what_is_raised_after_the_transaction_counts_for_nothing(broker: Broker, error: type[BaseException]) -> None:
    def handler(payload: Payload, run: Run) -> None:
        with run.transaction():
            pass
        raise error

    id_ = job(broker, handler).send().id
    hands = Hands(broker)
    hands.run()
    row = hands.row(id_)
    assert row is not None
    assert (row.state, row.retries, row.failure_code) == ("completed", 0, None)
    hands.nothing_left()


def test_a_commit_whose_answer_was_lost_is_neither_repeated_nor_a_failure(broker: Broker) -> None:
    def handler(payload: Payload, run: Run) -> None:
        with run.transaction(Done("once")):
            pass
        raise StoreUnavailable("the answer to the commit was lost")

    def with_lost_answer(payload: Payload, run: Run) -> None:
        try:
            handler(payload, run)
        finally:
            run._holding.settled = None  # as where the commit itself raised

    id_ = job(broker, with_lost_answer).send().id
    hands = Hands(broker)
    hands.run()
    row = hands.row(id_)
    assert row is not None
    assert (row.state, row.retries, row.result) == ("completed", 0, '"once"')
    hands.nothing_left()


def test_a_transaction_under_a_lost_lease_writes_nothing(broker: Broker) -> None:
    from datetime import timedelta

    from store.operations import reclaim

    def handler(payload: Payload, run: Run) -> None:
        store = broker.runtime.store
        assert len(reclaim(store, now=store.ping() + timedelta(hours=1)).taken) == 1
        with run.transaction() as tx:
            tx.execute("CREATE TABLE effects (n INTEGER)")

    id_ = job(broker, handler).send().id
    hands = Hands(broker)
    hands.run()
    row = hands.row(id_)
    assert row is not None
    assert (row.state, row.failure_code) == ("queued", "worker_lost")
    with broker.runtime.store.transaction() as tx:
        assert tx.execute("SELECT count(*) FROM sqlite_master WHERE name = 'effects'") == [(0,)]
    hands.nothing_left()


def test_what_follows_the_runs_own_transaction_is_not_disturbed(broker: Broker) -> None:
    tidied: list[int] = []

    def handler(payload: Payload, run: Run) -> None:
        with run.transaction():
            pass
        run._holding.renew_at = 0
        Heartbeat(broker)._keep_rows(time.monotonic() + 2)  # a look of the heartbeat while the handler tidies up
        for _ in range(1000):
            pass
        tidied.append(1)

    job(broker, handler, interrupt=True).send()
    hands = Hands(broker)
    hands.run()
    assert tidied, "the row is finished, not lost: nothing is to be interrupted"
    hands.nothing_left()


@pytest.mark.parametrize("outcome", [Retry("not_yet"), Fail("never")])
def test_a_failure_that_a_transaction_wrote_is_told_as_one(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, outcome: Any
) -> None:
    told: list[str] = []
    for name in ("job_completed", "job_retry"):
        monkeypatch.setattr(completion_module.logs, name, lambda *rest, name=name: told.append(name))

    def handler(payload: Payload, run: Run) -> None:
        with run.transaction(outcome):
            pass

    job(broker, handler).send()
    hands = Hands(broker)
    hands.run()
    assert hands.runtime.completion.flush(5)
    assert told == ["job_retry"]


# --- stops, in a real worker


def test_a_stop_is_no_failure_of_a_coroutine_that_takes_its_time_to_end(
    working_broker: Broker, start_worker: Callable[[], dramatiq.Worker]
) -> None:
    working_broker.runtime.worker = WorkerSettings.model_validate(
        {"WORKER_CONCURRENCY": 1, "JOBS_LEASE_SECONDS": 5, "JOBS_SHUTDOWN_WAIT_FOR_LEASES_SEC": 0}
    )
    begun, ended = threading.Event(), threading.Event()

    async def handler(payload: Payload, run: Run) -> None:
        begun.set()
        try:
            await asyncio.sleep(30)
        finally:
            await asyncio.sleep(1.5)
            ended.set()

    class Patient(Middleware):
        def after_worker_shutdown(self, broker: Any, worker: Any) -> None:
            ended.wait(10)  # before the event loop is stopped under the coroutine, which would haunt a later test

    working_broker.add_middleware(Patient())
    id_ = job(working_broker, handler).send().id
    worker = start_worker()
    assert begun.wait(10)
    worker.stop()
    row = working_broker.runtime.store.read([id_])[0]
    assert row is not None
    assert (row.state, row.retries, row.failure_code) == ("queued", 0, None)
