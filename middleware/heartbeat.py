"""What keeps work in hand: renews leases, looks for cancels, writes progress, signs health.

A lease is renewed at a quarter of its length, in the row first and then in Valkey, as long as the run keeps to its
type's time limit; only the row's refusal tells a run that it has lost. Runs of more than a second are looked at once a
second, so that a cancel is seen and progress is written.
"""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from middleware import logs
from middleware.holding import Holding
from middleware.interrupts import Cancelled, LeaseLost, TimeLimitExceeded
from store import clock
from store.contract import Renewal, Renewed
from store.errors import Refused, StoreUnavailable, ValkeyUnavailable
from store.valkey.entries import Ack
from store.valkey.entries import Renewal as LeaseRenewal
from store.valkey.leases import Leases

if TYPE_CHECKING:
    from middleware.runtime import Runtime

E = TypeVar("E")


class Home(Protocol):
    """Whose work is kept alive: a broker, or a loop without one."""

    @property
    def runtime(self) -> Runtime:
        """What the process works with."""
        ...

    def call_scheduler(self) -> None:
        """Ask for what a scheduler does; raises nothing."""
        ...


#: Seconds between two looks.
TICK = 1.0

#: Seconds between two calls for the scheduler's shift, and between two tries to publish the policies.
CALL_EVERY = 10.0

#: Seconds between two looks whether the published policies are still ours.
PUBLISH_EVERY = 60.0

#: Things that wait to be said to a Valkey that is away; the oldest, which its clock has made moot, are dropped.
VALKEY_WAITING_MOST = 1_000

#: Seconds between two writings of the health file.
SIGN_EVERY = 2.0


class Heartbeat:
    """Started when a worker boots, ended after its last finish is written.

    What concerns the store and what concerns Valkey have a thread each: one that hangs must not cost leases in the
    other.
    """

    def __init__(self, home: Home, give_back_waiting: Callable[[], object] = bool) -> None:
        self._home = home
        self._give_back_waiting = give_back_waiting
        self._runtime = home.runtime
        self._end = threading.Event()
        self._threads = [
            threading.Thread(target=self._work, args=(part,), name=name, daemon=True)
            for part, name in (
                (lambda moment: self.beat(moment), "heartbeat"),
                (lambda moment: self.beat_in_valkey(moment), "heartbeat-valkey"),
            )
        ]
        self._in_valkey: deque[Callable[[], object]] = deque(maxlen=VALKEY_WAITING_MOST)
        self._call_at = self._sign_at = self._publish_at = 0.0

    def start(self) -> None:
        """Begin."""
        for thread in self._threads:
            thread.start()

    def stop(self, timeout: float) -> None:
        """End, and take the signs of life away."""
        self._end.set()
        for thread in self._threads:
            thread.join(timeout)
        self._runtime.health.remove()

    def _work(self, part: Callable[[float], None]) -> None:
        tick = min(TICK, self._runtime.worker.lease_seconds / 8)
        while True:  # at once: a worker that boots calls for the shift
            self._guarded(lambda: part(clock.elapsed()))
            if self._end.wait(tick):
                return

    def beat(self, moment: float) -> None:
        """What the store and this machine are to hear at ``moment`` (on clock.elapsed). Raises nothing."""
        self._guarded(lambda: self._keep_rows(moment))
        self._runtime.slots.stuck = self._runtime.running_longer_than(TICK, moment)
        if moment >= self._sign_at:
            self._sign_at = moment + SIGN_EVERY
            self._guarded(self._runtime.health.write)
        if moment >= self._publish_at and not self._runtime.stopping.is_set():
            self._publish_at = moment + (CALL_EVERY if not self._runtime.published else PUBLISH_EVERY)
            self._guarded(self._runtime.publish)

    def beat_in_valkey(self, moment: float) -> None:
        """What Valkey is to hear at ``moment``. Raises nothing."""
        while self._in_valkey and self._guarded(self._in_valkey[0]):
            self._in_valkey.popleft()
        self._guarded(lambda: self._keep_messages(moment))
        self._guarded(self._give_back_waiting)
        self._guarded(self._runtime.completion.ack_again)
        if moment >= self._call_at and not self._runtime.stopping.is_set():
            self._call_at = moment + CALL_EVERY
            self._home.call_scheduler()

    def _guarded(self, step: Callable[[], object]) -> bool:
        """Do one step; False where Valkey was away. No error of one step keeps the others from being done."""
        try:
            step()
        except StoreUnavailable as error:
            logs.trouble("queue_unavailable", error)
        except ValkeyUnavailable as error:
            logs.trouble("valkey_error", error)
            self._runtime.revive_valkey()
            return False
        except Exception as error:  # noqa: BLE001 - these threads must not end: it is told, and the next beat tries again
            logs.trouble("heartbeat_failed", error)
        return True

    def mark_stopping(self) -> None:
        """Tell the rows in hand that this worker is being stopped: a kill that follows counts as a deploy."""
        holdings = self._runtime.in_hand.rows()
        renewals = [self._renewal(one, clock.elapsed())._replace(stopping=True) for one in holdings]
        self._guarded(lambda: self._renewed(holdings, renewals))

    def _keep_rows(self, moment: float) -> None:
        asked: list[Holding] = []
        renewals: list[Renewal] = []
        for holding in self._runtime.in_hand.rows():
            renewal = self._renewal(holding, moment)
            looked_at = holding.ran_for(moment) > TICK and not holding.lost
            if renewal.seconds is not None or renewal.progress is not None or looked_at:
                asked.append(holding)
                renewals.append(renewal)
        if asked:
            self._renewed(asked, renewals)
            kept = [one for one, renewal in zip(asked, renewals, strict=True) if renewal.seconds is not None]
            self._keep_leases(kept)

    def _ask(self, renewals: list[Renewal]) -> list[Renewed]:
        """The store's answers. What it refuses is asked row by row, at last without the progress: one odd message
        must not cost the others their leases."""
        store = self._runtime.store
        try:
            return store.renew(renewals)
        except Refused as error:
            logs.trouble("renewal_refused", error)
        answers = []
        for renewal in renewals:
            try:
                answers += store.renew([renewal._replace(progress=None)])
            except Refused:
                answers.append(Renewed(held=True))  # nobody said that it is lost
        return answers

    def _renewal(self, holding: Holding, moment: float) -> Renewal:
        job, worker = holding.job, self._runtime.worker
        seconds = None
        within = holding.ran_for(moment) < holding.policy.time_limit
        if not within and not holding.overdue and holding.thread is not None:
            holding.tell(overdue=True)
            if holding.policy.interrupt:
                holding.interrupt(TimeLimitExceeded)
        if moment >= holding.renew_at and within:
            seconds = worker.lease_seconds
        progress, holding.progress = holding.progress, None
        return Renewal(job.id, holding.lease_id, job.attempt, seconds, progress)

    def _renewed(self, holdings: list[Holding], renewals: list[Renewal]) -> None:
        worker = self._runtime.worker
        try:
            answers = self._ask(renewals)
        except StoreUnavailable:
            # Until the store answers nobody can take these rows: their leases are the database's to judge.
            for holding, renewal in zip(holdings, renewals, strict=True):
                holding.progress = holding.progress or renewal.progress
            raise
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
        self._send(lost, Leases.ack)

    def _keep_leases(self, holdings: list[Holding]) -> None:
        queues: dict[str, list[LeaseRenewal]] = {}
        for holding in holdings:
            renewal = LeaseRenewal(holding.member, holding.lease_id, round(self._runtime.worker.lease_seconds * 1000))
            queues.setdefault(holding.job.queue, []).append(renewal)
        self._send(queues, Leases.renew)

    def _keep_messages(self, moment: float) -> None:
        queues: dict[str, list[LeaseRenewal]] = {}
        for queue, member, token, seconds in self._runtime.in_hand.messages_to_renew(moment):
            queues.setdefault(queue, []).append(LeaseRenewal(member, token, round(seconds * 1000)))
        for queue, renewals in queues.items():
            self._runtime.leases.renew(queue, renewals)

    def _send(self, queues: dict[str, list[E]], verb: Callable[[Leases, str, list[E]], object]) -> None:
        """Leave it to Valkey's thread."""
        for queue, entries in queues.items():
            self._in_valkey.append(partial(self._say, verb, queue, entries))

    def _say(self, verb: Callable[[Leases, str, list[E]], object], queue: str, entries: list[E]) -> None:
        verb(self._runtime.leases, queue, entries)
