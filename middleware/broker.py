"""Dramatiq's broker over our leases: ordinary messages live in Valkey, jobs are rows that Valkey only points at."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

import dramatiq
from dramatiq.errors import BrokerConnectionError, QueueJoinTimeout, QueueNotFound
from dramatiq.middleware import (
    AgeLimit,
    Callbacks,
    GroupCallbacks,
    Middleware,
    MiddlewareError,
    Pipelines,
    Retries,
    ShutdownNotifications,
    TimeLimit,
)
from dramatiq.results import Results
from periodiq import PeriodiqMiddleware

from middleware import logs
from middleware.consumer import Consumer
from middleware.delivery import JobDelivery
from middleware.ringing import Hint
from middleware.runtime import WATERMARK, Runtime
from store import clock
from store.contract import Woken
from store.errors import UsageError, ValkeyUnavailable
from store.events import Wake
from store.identity import STANDARD_QUEUES, new_id
from store.valkey.entries import Delay, Offer
from store.valkey.scores import message_score

#: The queue of the scheduler's shift, which has a thread of its own in every worker.
SCHEDULER_QUEUE: Final = "scheduler"

#: The actor of the scheduler's shift: its messages are all one and the same.
SCHEDULER_ACTOR: Final = "scheduler.reconcile"


#: Dramatiq's own middleware that has no say in a job's run: its row decides about time, retries, results and what
#: comes next. All others, a developer's above all, see jobs like any message.
NOT_FOR_JOBS: Final = (
    AgeLimit,
    Callbacks,
    GroupCallbacks,
    PeriodiqMiddleware,
    Pipelines,
    Results,
    Retries,
    ShutdownNotifications,
    TimeLimit,
)


class BrokerUnavailable(ValkeyUnavailable, BrokerConnectionError):
    """Valkey did not take a message; a ValkeyUnavailable for us and a ConnectionError for Dramatiq."""


class Broker(dramatiq.Broker):
    """Keeps what Dramatiq promises of its brokers: delay, priorities, dead letters, join, flush, every middleware.

    Delayed messages wait in Valkey, not in a worker's memory. An actor with option ``singleton`` has one message at
    most, whoever sends it and how often; sent while it runs, it runs once more afterwards.
    """

    def __init__(self, runtime: Runtime, middleware: Sequence[Middleware]) -> None:
        self.runtime = runtime
        self._hooks: dict[tuple[str, bool], list[Any]] = {}
        super().__init__(middleware=list(middleware))
        self.queues = {}
        for queue in STANDARD_QUEUES:
            self.declare_queue(queue)

    # --- jobs

    def wake(self, wakes: Sequence[Wake]) -> list[Woken]:
        """Wake jobs in a transaction of their own, and have those rung for that are due. Raises StoreUnavailable."""
        woken = self.runtime.store.wake(wakes, notify=False)
        due = [Hint(wake.queue, row.id, wake.priority) for wake, row in zip(wakes, woken, strict=True) if row.due]
        if due:
            self.runtime.ring_soon(due)
        return woken

    def call_scheduler(self) -> None:
        """Ask for a shift of the scheduler; asking often is the same as asking once. Failures are only logged."""
        if (actor := self.actors.get(SCHEDULER_ACTOR)) is not None:
            try:
                actor.send()
            except ValkeyUnavailable as error:
                logs.trouble("valkey_error", error)

    # --- Dramatiq's side

    def declare_queue(self, queue_name: str) -> None:
        """Declare a queue; again changes nothing."""
        if queue_name not in self.queues:
            self.emit_before("declare_queue", queue_name)
            self.queues[queue_name] = None
            self.emit_after("declare_queue", queue_name)

    def enqueue(self, message: Any, *, delay: int | None = None) -> Any:
        """Enqueue an ordinary message, after ``delay`` milliseconds. Raises QueueNotFound, BrokerUnavailable."""
        queue = message.queue_name
        if queue not in self.queues:
            raise QueueNotFound(queue)  # type: ignore[no-untyped-call]
        moment = clock.micros(clock.wall()) // 1000
        if delay is not None:
            message = message.copy(options={"eta": moment + delay})
        self.emit_before("enqueue", message, delay)
        actor = self.actors.get(message.actor_name)
        if actor is not None and "job" in actor.options:
            raise UsageError(
                f"{message.actor_name} is a job, not a message: use its send(), send_with_options() or wake()"
            )
        if actor is not None and actor.options.get("singleton"):
            # The sender's options (a tick's time) belong to one sending; the message stands for all of them.
            member, carried = f"m:{message.actor_name}", message.copy()
            carried.options.clear()
        else:
            member, carried = f"m:{new_id()}", message
        score = message_score(0 if actor is None else actor.priority, moment + (delay or 0))
        try:
            if delay is None or delay <= 0:
                self.runtime.leases.offer(queue, [Offer(member, score, carried.encode())], watermark=WATERMARK)
            else:
                self.runtime.leases.delay(queue, [Delay(member, int(delay), score, carried.encode())])
        except ValkeyUnavailable as error:
            self.runtime.revive_valkey()
            raise BrokerUnavailable(str(error)) from None  # type: ignore[no-untyped-call]
        self.emit_after("enqueue", message, delay)
        return message

    def consume(self, queue_name: str, prefetch: int = 1, timeout: int = 30_000) -> Consumer:
        """A consumer of a declared queue; what it takes in hand is decided by the process' slots, not ``prefetch``."""
        if queue_name not in self.queues:
            raise QueueNotFound(queue_name)  # type: ignore[no-untyped-call]
        return Consumer(self, queue_name, timeout / 1000, own_lane=queue_name == SCHEDULER_QUEUE)

    def flush(self, queue_name: str) -> None:
        """Drop what waits in Valkey. Rows are not touched: due jobs are offered again."""
        self.runtime.leases.flush(queue_name)

    def flush_all(self) -> None:
        """``flush`` for every declared queue."""
        for queue in self.queues:
            self.flush(queue)

    def join(self, queue_name: str, *, timeout: int | None = None) -> None:
        """Wait until Valkey holds nothing more of the queue: for tests. Raises QueueJoinTimeout, QueueNotFound."""
        if queue_name not in self.queues:
            raise QueueNotFound(queue_name)  # type: ignore[no-untyped-call]
        deadline = None if timeout is None else clock.elapsed() + timeout / 1000
        while True:
            sizes = self.runtime.leases.sizes(queue_name)
            if not (sizes.ready or sizes.delayed or sizes.in_flight):
                return
            if deadline is not None and clock.elapsed() >= deadline:
                raise QueueJoinTimeout(queue_name)  # type: ignore[no-untyped-call]
            time.sleep(0.01)

    def close(self) -> None:
        """Let go of every connection."""
        self.runtime.close()

    # --- hooks: the same as Dramatiq's, but only those that a middleware has

    def add_middleware(self, middleware: Middleware, **where: Any) -> None:
        """Add a middleware, as in Dramatiq."""
        self._hooks = {}
        super().add_middleware(middleware, **where)
        self._hooks = {}

    def emit_before(self, signal: str, *args: Any, **kwargs: Any) -> None:
        """Call each middleware's hook in order; a MiddlewareError stops, any other error is logged and passed over."""
        for hook in self._hooks_of("before_" + signal, args):
            try:
                hook(self, *args, **kwargs)
            except MiddlewareError:
                raise
            except Exception:
                self.logger.critical("Unexpected failure in before_%s of %r.", signal, hook, exc_info=True)

    def emit_after(self, signal: str, *args: Any, **kwargs: Any) -> None:
        """Call each middleware's hook in reverse order; errors are logged and passed over."""
        for hook in reversed(self._hooks_of("after_" + signal, args)):
            try:
                hook(self, *args, **kwargs)
            except Exception:
                self.logger.critical("Unexpected failure in after_%s of %r.", signal, hook, exc_info=True)

    def _hooks_of(self, name: str, args: tuple[Any, ...]) -> list[Any]:
        job = bool(args) and isinstance(args[0], JobDelivery)
        hooks = self._hooks.get((name, job))
        if hooks is None:
            plain = getattr(Middleware, name, None)
            asked = [one for one in self.middleware if not (job and isinstance(one, NOT_FOR_JOBS))]
            hooks = [getattr(one, name) for one in asked if getattr(type(one), name, plain) is not plain]
            self._hooks[name, job] = hooks
        return hooks
