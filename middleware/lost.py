"""Rows whose worker is gone: taken back in bounded steps, with or without a scheduler of Dramatiq's."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from middleware import logs
from store import clock
from store.contract import Store
from store.errors import Refused, StoreUnavailable
from store.identity import new_lease_id
from store.operations import Swept, reclaim

if TYPE_CHECKING:
    from middleware.runtime import Runtime

#: Rows taken back in one step at most.
RECLAIM_MOST: Final = 100

#: Seconds between two steps at most: a quarter of a lease where that is less.
RECLAIM_EVERY_MOST: Final = 5.0

#: The term under which loops without a scheduler take rows back, so that of many one does.
TERM: Final = "jobs.reclaim"


def take_back(store: Store, *, after_id: str | None = None) -> Swept:
    """Take back up to RECLAIM_MOST rows whose lease has run out, and tell of each. Raises StoreUnavailable."""
    swept = reclaim(store, limit=RECLAIM_MOST, after_id=after_id)
    for row in swept.refused:
        logs.job_unsettled(row, Refused("the database refuses to take the row back"))
    for settled in swept.taken:
        if settled.job is not None and settled.decision is not None:
            logs.job_reclaimed(settled.job, settled.decision.state)
    return swept


class LostLeases:
    """The step for programs with their own loop. Safe to share between threads.

    It begins one renewal interval after this program first reached the store, and again after an outage: what lapsed
    while the store was away is not what dead workers left.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._store = runtime.store
        self._grace = runtime.worker.renew_every
        self._every = min(RECLAIM_EVERY_MOST, runtime.worker.lease_seconds / 4)
        self._holder = new_lease_id()
        self._next = clock.elapsed() + self._grace
        self._swept: str | None = None
        self._busy = threading.Lock()

    def step(self) -> None:
        """Take back a few rows, if it is time and nobody else's turn. Raises StoreUnavailable."""
        if clock.elapsed() < self._next or not self._busy.acquire(blocking=False):
            return
        try:
            self._next = clock.elapsed() + self._every
            if self._store.lead(TERM, self._holder, 3 * self._every).held:
                self._swept = take_back(self._store, after_id=self._swept).last_id
        except StoreUnavailable:
            self.put_off()
            raise
        finally:
            self._busy.release()

    def put_off(self) -> None:
        """The store was away: those who still run get their time to renew."""
        self._next = clock.elapsed() + self._grace

    def resign(self) -> None:
        """Leave it to others. Raises StoreUnavailable."""
        self._store.resign(TERM, self._holder)
