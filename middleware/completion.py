"""Finishes in batches: the database first, the ack to Valkey after it, with back-pressure.

A worker thread hands its event over and goes on to the next job. One thread writes whatever has gathered while it
wrote the batch before: alone on an idle system, by the hundred under load, and no timer in between.
"""

from __future__ import annotations

import random
import threading
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from middleware import logs
from middleware.holding import Holding
from store import clock
from store.clock import PARKED
from store.errors import StoreUnavailable, ValkeyUnavailable
from store.events import Event, Finish, GiveBack, Kind
from store.job import State
from store.operations import Item, Settled, settle
from store.transitions import Answer
from store.valkey.entries import Ack
from store.valkey.scores import job_score

if TYPE_CHECKING:
    from middleware.runtime import Runtime

#: Finishes of one statement at most.
BATCH = 250

#: Finishes that may wait before worker threads have to.
WAITING_MOST = 1_000

#: Seconds to wait after a failure of the store: from the first to the last, doubling.
_FIRST_PAUSE, _LAST_PAUSE = 0.05, 2.0


class _Ended(NamedTuple):
    holding: Holding
    event: Event


class Completion:
    """The way out of a process for all that it has in hand. Safe to share between threads."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._waiting: deque[_Ended] = deque()
        self._changed = threading.Condition()
        self._unheard: deque[tuple[str, list[Ack]]] = deque(maxlen=WAITING_MOST)
        self._writing = 0
        self._thread: threading.Thread | None = None
        self._closing = False

    def put(self, holding: Holding, event: Event) -> None:
        """Settle ``holding`` with ``event``; returns at once unless too much is waiting. Only the first call counts."""
        with self._changed:
            if holding.ended:
                return
            holding.ended = True  # before any wait: of several that want to settle it the first one does
            while len(self._waiting) >= WAITING_MOST and not self._closing:
                self._changed.wait(1.0)
            self._waiting.append(_Ended(holding, event))
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="completion", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def drop(self, holding: Holding) -> None:
        """The row is somebody else's by now: nothing is written, the lease in Valkey is given up by its token."""
        with self._changed:
            if holding.ended:
                return
            holding.ended = True
        logs.job_stale(holding.job, "lost")
        self._runtime.in_hand.drop((holding.lease_id,))
        self._ack([(holding, False, "")])

    def settled(self, holding: Holding) -> None:
        """The row was finished by the run's own transaction: what is left is the lease in Valkey."""
        with self._changed:
            if holding.ended or holding.settled is None:
                return
            holding.ended = True
        finish, result = holding.settled
        self._runtime.in_hand.drop((holding.lease_id,))
        self._ack([(holding, *_wanted_again(result))])
        _tell(_Ended(holding, finish), result)

    def flush(self, timeout: float) -> bool:
        """Wait until everything that was put is durable; False if ``timeout`` seconds weren't enough."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting and not self._writing, timeout)

    def close(self, timeout: float) -> bool:
        """Flush, then end the thread. What could not be written is left to its leases."""
        done = self.flush(timeout)
        with self._changed:
            self._closing = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join(timeout)
        return done

    def _work(self) -> None:
        pause = _FIRST_PAUSE
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closing)
                if self._closing:
                    return
                batch = [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]
                self._writing = len(batch)
            try:
                left = self._write(batch)
                pause = _FIRST_PAUSE
            except StoreUnavailable as error:
                logs.trouble("queue_unavailable", error)
                left = batch
            except Exception:  # noqa: BLE001 - one bad row never holds up its neighbours: they go one by one
                left = [end for end in batch if not self._write_alone(end)]
            with self._changed:
                self._waiting.extendleft(reversed(left))
                self._writing = 0
                self._changed.notify_all()
                if left and not self._closing:
                    self._changed.wait(pause * (1 + random.random()))
                    pause = min(pause * 2, _LAST_PAUSE)

    def _write_alone(self, end: _Ended) -> bool:
        """False: try it again. What can't be written at all is told and left to its lease, which ends."""
        try:
            return not self._write([end])
        except StoreUnavailable as error:
            logs.trouble("queue_unavailable", error)
            return False
        except Exception as error:  # noqa: BLE001 - this thread must not end
            logs.job_unsettled(end.holding.job, error)
            self._runtime.in_hand.drop((end.holding.lease_id,))
            return True

    def _write(self, batch: list[_Ended]) -> list[_Ended]:
        items = [Item(end.holding.job.id, end.event, end.holding.policy, end.holding.job) for end in batch]
        left: list[_Ended] = []
        acks: list[tuple[Holding, bool, str]] = []
        for end, result in zip(batch, settle(self._runtime.store, items), strict=True):
            if result.decision is None:
                left.append(end)
                continue
            again, score = _wanted_again(result)
            acks.append((end.holding, again, score))
            _tell(end, result)
        self._runtime.in_hand.drop(holding.lease_id for holding, _, _ in acks)
        self._ack(acks)
        return left

    def ack_again(self) -> None:
        """Acks that a Valkey which was away has not heard. Raises ValkeyUnavailable."""
        for _ in range(len(self._unheard)):
            queue, entries = self._unheard[0]
            self._runtime.leases.ack(queue, entries)
            self._unheard.popleft()

    def _ack(self, acks: list[tuple[Holding, bool, str]]) -> None:
        queues: dict[str, list[Ack]] = {}
        for holding, again, score in acks:
            queues.setdefault(holding.job.queue, []).append(Ack(holding.member, holding.lease_id, again, score))
        for queue, entries in queues.items():
            try:
                self._runtime.leases.ack(queue, entries)
            except ValkeyUnavailable as error:
                # The rows are right. What is left in Valkey runs out by itself; saying it again is only sooner.
                logs.trouble("valkey_error", error)
                self._runtime.revive_valkey()
                self._unheard.append((queue, entries))


def _wanted_again(result: Settled) -> tuple[bool, str]:
    """Whether the row is due at once, as far as this process can tell: a hint, the row decides."""
    decision, job = result.decision, result.job
    if decision is None or decision.write is None or job is None or decision.state != State.QUEUED:
        return False, ""
    woken = job.run_at != PARKED and job.run_at <= clock.wall()
    if decision.write.run_in != 0 and not woken:
        return False, ""
    return True, job_score(job.priority, clock.micros(clock.wall()) // 1000)


def _tell(end: _Ended, result: Settled) -> None:
    """Log what became of a run, once it is durable."""
    holding, event, decision = end.holding, end.event, result.decision
    assert decision is not None
    if decision.answer in (Answer.STALE, Answer.GONE):
        logs.job_stale(holding.job, decision.answer)
    elif decision.answer is Answer.REPEATED:
        logs.job_completed(holding.job, decision.state, _took(holding))  # the first telling went unheard
    elif isinstance(event, Finish):
        if event.failure is not None:
            retries = decision.write.set.get("retries", 0) if decision.write is not None else 0
            logs.job_retry(holding.job, event.failure, decision.state, retries)
        elif event.kind is Kind.CANCELLED:
            logs.job_stopped(holding.job, "cancelled", decision.state)
        else:
            logs.job_completed(holding.job, decision.state, _took(holding))
    else:
        why = event.code if isinstance(event, GiveBack) else "released"
        logs.job_stopped(holding.job, why, decision.state)


def _took(holding: Holding) -> float:
    return 0.0 if holding.started is None else clock.elapsed() - holding.started
