"""One thread a process that keeps what is in hand: renews leases, looks for cancels, writes progress, signs health.

A lease is renewed at a quarter of its length, in the row first and then in Valkey, as long as the run keeps to its
type's time limit; only the row's refusal tells a run that it has lost. Runs of more than a second are looked at once a
second, so that a cancel is seen and progress is written.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from middleware import logs
from middleware.holding import Holding
from middleware.interrupts import Cancelled, LeaseLost
from store import clock
from store.contract import Renewal, Renewed
from store.errors import StoreUnavailable, ValkeyUnavailable
from store.valkey.entries import Ack
from store.valkey.entries import Renewal as LeaseRenewal
from store.valkey.leases import Leases

if TYPE_CHECKING:
    from middleware.broker import Broker

E = TypeVar("E")

#: Seconds between two looks.
TICK = 1.0

#: Seconds between two calls for the scheduler's shift, and between two tries to publish the policies.
CALL_EVERY = 10.0

#: Seconds between two writings of the health file.
SIGN_EVERY = 2.0


class Heartbeat:
    """Started when a worker boots, ended after its last finish is written."""

    def __init__(self, broker: Broker, give_back_waiting: Callable[[], object] = bool) -> None:
        self._broker = broker
        self._give_back_waiting = give_back_waiting
        self._runtime = broker.runtime
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._work, name="heartbeat", daemon=True)
        self._call_at = self._sign_at = 0.0

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """End, and take the signs of life away."""
        self._end.set()
        self._thread.join(timeout)
        self._runtime.health.remove()

    def _work(self) -> None:
        tick = min(TICK, self._runtime.worker.lease_seconds / 8)
        while not self._end.wait(tick):
            try:
                self.beat(clock.elapsed())
            except Exception as error:  # noqa: BLE001 - this thread must not end: it is told, and the next beat tries again
                logs.trouble("heartbeat_failed", error)

    def beat(self, moment: float) -> None:
        """What is to be done at ``moment`` (on clock.elapsed)."""
        self._keep_rows(moment)
        self._keep_messages(moment)
        self._runtime.slots.stuck = sum(
            1 for one in self._runtime.in_hand.rows() if one.thread is not None and one.ran_for(moment) > TICK
        )
        self._give_back_waiting()
        if moment >= self._sign_at:
            self._sign_at = moment + SIGN_EVERY
            try:
                self._runtime.health.write()
            except OSError as error:
                logs.trouble("health_unwritable", error)
        if moment >= self._call_at and not self._runtime.stopping.is_set():
            self._call_at = moment + CALL_EVERY
            self._runtime.publish()
            self._broker.call_scheduler()

    def mark_stopping(self) -> None:
        """Tell the rows in hand that this worker is being stopped: a kill that follows counts as a deploy."""
        holdings = self._runtime.in_hand.rows()
        try:
            self._renewed(holdings, [self._renewal(one, clock.elapsed())._replace(stopping=True) for one in holdings])
        except StoreUnavailable as error:
            logs.trouble("queue_unavailable", error)

    def _keep_rows(self, moment: float) -> None:
        asked: list[Holding] = []
        renewals: list[Renewal] = []
        for holding in self._runtime.in_hand.rows():
            renewal = self._renewal(holding, moment)
            looked_at = holding.ran_for(moment) > TICK and not holding.lost
            if renewal.seconds is not None or renewal.progress is not None or looked_at:
                asked.append(holding)
                renewals.append(renewal)
        if not asked:
            return
        try:
            self._renewed(asked, renewals)
        except StoreUnavailable as error:
            # Until the store answers nobody can take these rows: their leases are the database's to judge.
            logs.trouble("queue_unavailable", error)
            for holding, renewal in zip(asked, renewals, strict=True):
                holding.progress = holding.progress or renewal.progress
            return
        self._keep_leases([one for one, renewal in zip(asked, renewals, strict=True) if renewal.seconds is not None])

    def _renewal(self, holding: Holding, moment: float) -> Renewal:
        job, worker = holding.job, self._runtime.worker
        seconds = None
        within = holding.ran_for(moment) < holding.policy.time_limit
        if moment >= holding.renew_at and within:
            seconds = worker.lease_seconds
        progress, holding.progress = holding.progress, None
        return Renewal(job.id, holding.lease_id, job.attempt, seconds, progress)

    def _renewed(self, holdings: list[Holding], renewals: list[Renewal]) -> None:
        worker = self._runtime.worker
        answers: list[Renewed] = self._runtime.store.renew(renewals)
        self._runtime.health.sign("store")
        lost: dict[str, list[Ack]] = {}
        for holding, renewal, answer in zip(holdings, renewals, answers, strict=True):
            if renewal.seconds is not None:
                holding.renew_at = clock.elapsed() + worker.renew_every + worker.renew_jitter * random.random()
            if holding.ended:
                continue
            if not answer.held:
                if not holding.lost:
                    lost.setdefault(holding.job.queue, []).append(Ack(holding.member, holding.lease_id))
                holding.tell(lost=True)
                if holding.policy.interrupt:
                    holding.interrupt(LeaseLost)
            elif answer.cancelled and not holding.cancelled:
                holding.tell(cancelled=True)
                if holding.policy.interrupt:
                    holding.interrupt(Cancelled)
        # A run that has lost its row must not keep others from it while its handler goes on.
        self._in_valkey(lost, Leases.ack)

    def _keep_leases(self, holdings: list[Holding]) -> None:
        queues: dict[str, list[LeaseRenewal]] = {}
        for holding in holdings:
            renewal = LeaseRenewal(holding.member, holding.lease_id, round(self._runtime.worker.lease_seconds * 1000))
            queues.setdefault(holding.job.queue, []).append(renewal)
        self._in_valkey(queues, Leases.renew)

    def _keep_messages(self, moment: float) -> None:
        queues: dict[str, list[LeaseRenewal]] = {}
        for queue, member, token, seconds in self._runtime.in_hand.messages_to_renew(moment):
            queues.setdefault(queue, []).append(LeaseRenewal(member, token, round(seconds * 1000)))
        self._in_valkey(queues, Leases.renew)

    def _in_valkey(self, queues: dict[str, list[E]], verb: Callable[[Leases, str, list[E]], object]) -> None:
        try:
            for queue, entries in queues.items():
                verb(self._runtime.leases, queue, entries)
        except ValkeyUnavailable as error:
            logs.trouble("valkey_error", error)
            self._runtime.revive_valkey()
