"""A worker process' life: what happens at its boot and at its graceful stop, and the scheduler's lane."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any, cast

import dramatiq
from dramatiq.middleware import Middleware
from dramatiq.worker import ConsumerThread, WorkerThread

from middleware import logs
from middleware.delivery import Delivery, JobDelivery, Lane
from middleware.heartbeat import Heartbeat
from middleware.stopping import FLUSH_SECONDS, see_out
from store import clock
from store.errors import Refused, StoreUnavailable
from store.settings import take_secrets

if TYPE_CHECKING:
    from middleware.broker import Broker

#: Seconds that a claimed row waits for its start at most: it was meant to be a tenth of one.
WAITING_MOST = 1.0

#: Seconds that a worker's threads may take to begin.
BEGIN_SECONDS = 10.0


class WorkerLife(Middleware):
    """Boot: logs, schema, policies, slots, heartbeat. Stop: no more claims, rows marked, runs get their time."""

    def __init__(self, scheduler_queue: str) -> None:
        self._scheduler_queue = scheduler_queue
        self._lane = Lane()
        self._heartbeat: Heartbeat | None = None

    def after_process_boot(self, broker: Broker) -> None:  # type: ignore[override]
        """Dramatiq has just set its logging up: ours takes over its handlers."""
        logs.configure(broker.runtime.worker.log_level, broker.runtime.worker.log_format)
        logs.take_last_words()
        runtime = broker.runtime
        missing = {
            variable: policy.job_type
            for policy in runtime.policies.values()
            for variable in runtime.credentials.missing(policy.credentials)
        }
        for variable, job_type in sorted(missing.items()):
            logs.log.critical("refused_to_start", variable=variable, message=f"{job_type} wants it: name a file")
        if missing:
            raise SystemExit(1)
        _ = runtime.boundary  # the last that reads a secret of the environment
        take_secrets()

    def before_worker_boot(self, broker: Broker, worker: dramatiq.Worker) -> None:  # type: ignore[override]
        """Refuse a schema that we can't work with; a store that is away is waited for."""
        runtime = broker.runtime
        runtime.boot()
        try:
            runtime.store.check_schema(runtime.subjects)
            runtime.publish()  # before the first claim: a type that nobody published does not run
        except Refused as error:
            logs.log.critical("refused_to_start", code=error.code, message=str(error))
            raise SystemExit(1) from None
        except StoreUnavailable as error:
            logs.trouble("queue_unavailable", error)
        worker.worker_threads = runtime.worker.concurrency
        worker.work_queue = cast(Any, Lane())
        worker.worker_timeout = min(worker.worker_timeout, 1000)
        _ignore_second_signal()

    def after_worker_boot(self, broker: Broker, worker: dramatiq.Worker) -> None:  # type: ignore[override]
        """The scheduler's shift gets a thread of its own, so that it takes no job slot and no job keeps it waiting."""
        lane = WorkerThread(
            broker=broker,
            consumers=worker.consumers,
            work_queue=cast(Any, self._lane),
            worker_timeout=worker.worker_timeout,
        )
        lane.start()
        worker.workers.append(lane)
        self._heartbeat = Heartbeat(broker, lambda: _give_back_waiting(worker))
        self._heartbeat.start()

    def after_consumer_thread_boot(self, broker: dramatiq.Broker, thread: ConsumerThread) -> None:
        """Called before the consumer takes anything: the shift's messages go to its lane.

        Dramatiq looks into its queue of delayed messages after each message; ours wait in Valkey, so that it is always
        empty, and asking a Lane costs a tenth.
        """
        thread.delay_queue = cast(Any, Lane())
        if thread.queue_name == self._scheduler_queue:
            thread.work_queue = cast(Any, self._lane)

    def before_worker_shutdown(self, broker: Broker, worker: dramatiq.Worker) -> None:  # type: ignore[override]
        """No more claims; rows in hand are marked; what was not started goes back; runs get their time."""
        runtime = broker.runtime
        runtime.stopping.set()
        runtime.slots.close()
        if self._heartbeat is not None:
            self._heartbeat.mark_stopping()
        for lane in (cast(Lane, worker.work_queue), self._lane):
            _give_back(worker, lane, lambda item: True)
        threading.Thread(target=see_out, args=(runtime,), name="stop", daemon=True).start()
        _wait_for_threads(worker)

    def after_worker_shutdown(self, broker: Broker, worker: dramatiq.Worker) -> None:  # type: ignore[override]
        """The last finishes become durable; only then do the leases stop being renewed."""
        _give_back(worker, self._lane, lambda item: True)  # what a consumer had been waiting for as we began to stop
        broker.runtime.completion.close(FLUSH_SECONDS)
        if self._heartbeat is not None:
            self._heartbeat.stop(FLUSH_SECONDS)


def _wait_for_threads(worker: dramatiq.Worker) -> None:
    """Wait until each thread of ``worker`` hears a stop: Dramatiq's say that they run as they begin, and one that was
    told to stop before that would run on."""
    deadline = clock.elapsed() + BEGIN_SECONDS
    threads: list[WorkerThread | ConsumerThread] = [*worker.workers, *worker.consumers.values()]
    for thread in threads:
        while thread.is_alive() and not thread.running and clock.elapsed() < deadline:
            time.sleep(0.001)


def _give_back(worker: dramatiq.Worker, lane: Lane, wanted: Callable[[Any], bool]) -> None:
    for item in lane.take_out(wanted):
        worker.consumers[item.message.queue_name].requeue_messages([item.message])
        lane.task_done()


def _give_back_waiting(worker: dramatiq.Worker) -> None:
    """What was claimed to start soon and did not, since long jobs came before it: others may run it."""
    moment = clock.elapsed()

    def waited(item: Any) -> bool:
        return isinstance(item.message, (Delivery, JobDelivery)) and moment - item.message.taken > WAITING_MOST

    _give_back(worker, cast(Lane, worker.work_queue), waited)


def _ignore_second_signal() -> None:
    """The first signal to stop is obeyed; more of them, of whatever kind, change nothing."""
    if threading.current_thread() is not threading.main_thread():
        return
    once = _Once({number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)})
    for number, first in once.handlers.items():
        if callable(first) and not isinstance(first, _Once):
            signal.signal(number, once)


class _Once:
    def __init__(self, handlers: dict[signal.Signals, Any]) -> None:
        self.handlers = handlers
        self._seen = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if not self._seen:
            self._seen = True
            self.handlers[signal.Signals(number)](number, frame)
