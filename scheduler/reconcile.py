"""The shift: an actor that keeps Valkey in step with the rows, for about a minute at a time, under a leader's term.

It waits for the store's change signal or a second, reads the rows that are due and offers them; it fires recurring
jobs and takes back what dead workers left. Dispatching a row writes nothing to it. Every worker calls for the shift
now and then, and all of these calls are one message, so there is always one and never two at work.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

import dramatiq

from middleware import logs
from middleware.broker import SCHEDULER_ACTOR, SCHEDULER_QUEUE, Broker
from middleware.lost import RECLAIM_EVERY_MOST, take_back
from middleware.runtime import WATERMARK, Runtime
from scheduler.pauses import Pauses
from scheduler.recurring import Recurring
from scheduler.ticks import cron
from store import clock
from store.contract import Due, Signal, Term
from store.errors import StoreUnavailable, ValkeyUnavailable
from store.identity import new_lease_id
from store.valkey.entries import Offer, Offered
from store.valkey.scores import job_score

#: Seconds of a shift.
SHIFT: Final = 60.0

#: Seconds of a term at most; prolonged at a third of it. A leader's death is noticed within that or a lease.
TERM_MOST: Final = 15.0

#: Seconds between two looks where nothing signals.
LOOK_EVERY: Final = 1.0

#: Seconds between two looks while more is due than the ready set takes: fast workers empty it in a few of these.
BACKLOG_EVERY: Final = 0.05

#: Rows of each queue read in the first page of a look and in further ones, and pages of one look.
PAGE: Final = 100
NEXT_PAGE: Final = 500
PAGES_MOST: Final = 5

#: Seconds between two looks when signals come thick and fast: the first while looks find something new, growing to the
#: second while they don't (under load most commits are finishes, and what is due has been offered already).
BREATH: Final = 0.02
BREATH_MOST: Final = 0.25


def declare_shift(broker: Broker) -> None:
    """Declare the shift's actor on ``broker``, once. The ticker's minute tick calls for it like every worker does."""
    if SCHEDULER_ACTOR in broker.actors:
        return

    def reconcile() -> None:
        Shift(broker).work()

    dramatiq.actor(
        actor_name=SCHEDULER_ACTOR,
        queue_name=SCHEDULER_QUEUE,
        broker=broker,
        singleton=True,
        max_retries=0,  # a shift is called for again by every worker; nothing may put it off
        time_limit=float("inf"),
        periodic=cron("* * * * *"),
    )(reconcile)


class Shift:
    """One shift. It ends by itself: after its minute, when the worker stops, or when it loses the term."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._runtime: Runtime = broker.runtime
        self._holder = new_lease_id()
        self._end_at = clock.elapsed() + SHIFT
        self._term_at = self._reclaim_at = 0.0
        self._grace_until = 0.0
        self._breath = BREATH
        self.hurries = False  # more is due than was offered: the next look comes soon
        self._swept: str | None = None  # how far the last sweep for lost leases came
        self._cursors: dict[str, Due] = {}  # of each queue, how far it was offered
        lease = self._runtime.worker.lease_seconds
        self._term = min(TERM_MOST, lease)
        self._reclaim_every = min(RECLAIM_EVERY_MOST, lease / 4)
        self._recurring = Recurring(self._runtime)
        self._pauses = Pauses(self._runtime)

    def work(self) -> None:
        """Wait for the term, lead until the end, give the term back, and only then call the next shift."""
        signal: Signal | None = None
        try:
            while not self._over():
                try:
                    if not self._lead().held:
                        self._runtime.health.forget("scheduler")
                        self._runtime.stopping.wait(LOOK_EVERY * (1 + random.random()))
                        continue
                    signal = signal or self._runtime.store.changes()
                    self._watch(signal)
                except StoreUnavailable as error:
                    logs.trouble("queue_unavailable", error)
                    # What lapsed while the store was away is not what dead workers left: they get time to renew.
                    self._grace_until = clock.elapsed() + self._runtime.worker.renew_every
                    self._runtime.stopping.wait(LOOK_EVERY)
        finally:
            self._runtime.health.forget("scheduler")
            if signal is not None:
                signal.close()
            self._resign()
        self._broker.call_scheduler()

    def _over(self) -> bool:
        return self._runtime.stopping.is_set() or clock.elapsed() >= self._end_at

    def _lead(self) -> Term:
        term = self._runtime.store.lead(
            SCHEDULER_ACTOR, self._holder, self._term, grace=self._runtime.worker.renew_every
        )
        self._term_at = clock.elapsed() + self._term / 3
        if not term.settled:
            self._grace_until = max(self._grace_until, clock.elapsed() + self._term / 3)
        return term

    def _resign(self) -> None:
        try:
            self._runtime.store.resign(SCHEDULER_ACTOR, self._holder)
        except StoreUnavailable as error:
            logs.trouble("queue_unavailable", error)  # then it runs out

    def _watch(self, signal: Signal) -> None:
        """Look, wait, look again, until the term must be prolonged."""
        signal.wait(0)  # our own term is news on SQLite, and no reason for a second look
        while not self._over() and clock.elapsed() < self._term_at:
            looked_at = clock.elapsed()
            self._guarded("pauses_failed", self._pauses.tell)  # first: what is lost with Valkey comes back before work
            self._guarded("dispatch_failed", self.dispatch)
            self._guarded("recurring_failed", self._recurring.fire)
            self._guarded("reclaim_failed", self._reclaim)
            pace = BACKLOG_EVERY if self.hurries else LOOK_EVERY
            # A term may be prolonged a little late, so that no look is needed for that alone.
            signal.wait(min(pace, max(0.0, self._term_at + self._term / 6 - clock.elapsed())))
            if clock.elapsed() - looked_at > BREATH_MOST:
                self._breath = BREATH  # it has been quiet
            self._runtime.stopping.wait(max(0.0, min(self._breath, pace) - (clock.elapsed() - looked_at)))

    def _guarded(self, trouble: str, step: Callable[[], object]) -> None:
        """One step; what goes wrong in it is told and keeps no other step from being done. Raises StoreUnavailable."""
        try:
            step()
        except StoreUnavailable:
            raise
        except ValkeyUnavailable as error:
            logs.trouble("valkey_error", error)
            self._runtime.revive_valkey()
        except Exception as error:  # noqa: BLE001 - the same error in one step would keep the others from ever being done
            logs.trouble(trouble, error)

    def dispatch(self) -> None:
        """Offer what is due: the first page of each queue always, so that urgent rows never wait behind a full ready
        set, then further pages while it has room, on from where the last look stopped."""
        new, backlog = 0, False
        after: dict[str, Due] | None = None
        for _ in range(PAGES_MOST):
            size = PAGE if after is None else NEXT_PAGE
            rows = self._runtime.store.due(limit=size, after=after)
            self._runtime.health.sign("store")
            queues: dict[str, list[Due]] = {}
            for row in rows:
                queues.setdefault(row.queue, []).append(row)
            onward: dict[str, Due] = {}
            for queue, page in queues.items():
                offered = self._offer(queue, page, force=after is None)
                new += offered.new
                if offered.dropped:
                    backlog = True  # this page is read again once there is room for the rest of it
                    continue
                if len(page) < size:
                    # That was the end. The next look begins anew, and soon where this one came from further ahead:
                    # what has become due behind it meanwhile was passed over.
                    backlog |= self._cursors.pop(queue, None) is not None
                    continue
                if after is not None or offered.new:
                    self._cursors[queue] = page[-1]
                if offered.ready < (WATERMARK if after is not None else WATERMARK // 2):
                    onward[queue] = self._cursors.setdefault(queue, page[-1])
                else:
                    backlog = True
            for queue in (after or {}).keys() - queues.keys():
                self._cursors.pop(queue, None)
            if not onward or self._over():
                break
            after = onward
        else:
            backlog = True
        self.hurries = backlog
        self._breath = BREATH if new else min(self._breath * 2, BREATH_MOST)
        self._runtime.health.sign("scheduler")

    def _offer(self, queue: str, page: list[Due], *, force: bool) -> Offered:
        offers = [Offer(f"j:{row.id}", job_score(row.priority, clock.micros(row.run_at) // 1000)) for row in page]
        return self._runtime.leases.offer(queue, offers, watermark=WATERMARK, force=force)

    def _reclaim(self) -> None:
        moment = clock.elapsed()
        if moment < self._reclaim_at or moment < self._grace_until:
            return
        self._reclaim_at = moment + self._reclaim_every
        self._swept = take_back(self._runtime.store, after_id=self._swept).last_id
