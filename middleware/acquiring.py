"""From the rows into a program's hands, without Valkey: what is due, in order, claimed under its own leases."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from store.clock import EPOCH
from store.contract import Due
from store.errors import StoreUnavailable
from store.events import Claim
from store.job import Job

if TYPE_CHECKING:
    from middleware.runtime import Runtime

#: Rows looked at beyond those that are wanted, since others may be faster; rows of a page and pages of one look where
#: rows are picked out by domain or type.
SPARE: Final = 16
PAGE: Final = 100
PAGES_MOST: Final = 20

#: The place before every row of a queue.
_START: Final = Due("00000000-0000-0000-0000-000000000000", "", 0, EPOCH)


class Where(NamedTuple):
    """Which rows a program takes: those that match every field that is not None."""

    queues: tuple[str, ...] | None = None
    types: tuple[str, ...] | None = None
    domain: str | None = None


class ClaimInDoubt(StoreUnavailable):
    """The store did not say whether ``claims`` were done: claimed again, they answer the same rows."""

    def __init__(self, text: str, claims: Sequence[Claim]) -> None:
        super().__init__(text)
        self.claims = claims


class Acquirer:
    """Looks for rows and claims them. Safe to share between threads."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._lock = threading.Lock()
        self._further: dict[Where, dict[str, Due]] = {}  # where a look had to end, the next one goes on

    def take(self, lease_ids: Sequence[str], where: Where, seconds: float) -> list[Job]:
        """Claim the most urgent rows, one for each lease id at most, in the order (priority, run_at, id).

        Raises ClaimInDoubt, StoreUnavailable, Refused.
        """
        store, free = self._runtime.store, list(lease_ids)
        found = self._due(where, len(free) + SPARE) if free else []
        taken: list[Job] = []
        ours: list[Claim] = []
        while free and found:
            some, found = found[: len(free)], found[len(free) :]
            claims = [
                Claim(due.id, lease_id, self._runtime.name, seconds)
                for due, lease_id in zip(some, free, strict=False)
            ]  # fmt: skip
            try:
                answers = store.claim(claims)
            except StoreUnavailable as error:
                raise ClaimInDoubt(str(error), [*ours, *claims]) from None
            for claim, answer in zip(claims, answers, strict=True):
                if answer.job is not None:
                    free.remove(claim.lease_id)
                    ours.append(claim)
                    taken.append(answer.job)
        return taken

    def _due(self, where: Where, wanted: int) -> list[Due]:
        store = self._runtime.store
        picks = where.types is not None or where.domain is not None
        limit = max(PAGE, wanted) if picks else wanted
        after = None if where.queues is None else {queue: _START._replace(queue=queue) for queue in where.queues}
        if not picks:
            return sorted(store.due(limit=limit, after=after), key=_order)[:wanted]
        found: list[Due] = []
        with self._lock:
            further = self._further.pop(where, None)
        for number in range(PAGES_MOST):
            page = store.due(limit=limit, after=after)
            found = sorted(found + self._picked(where, page), key=_order)[:wanted]
            # A queue is read on while a row of its rest could still come before one that was found.
            last = {queue: rows[-1] for queue, rows in _by_queue(page).items() if len(rows) == limit}
            after = {
                queue: due for queue, due in last.items() if len(found) < wanted or _order(due) < _order(found[-1])
            }
            if number == 0 and further is not None and not found:
                after = further
            if not after:
                return found
        with self._lock:
            self._further[where] = after or {}
        return found

    def _picked(self, where: Where, page: list[Due]) -> list[Due]:
        rows = self._runtime.store.read([due.id for due in page])
        return [
            due
            for due, row in zip(page, rows, strict=True)
            if row is not None
            and (where.types is None or row.job_type in where.types)
            and (where.domain is None or row.domain == where.domain)
        ]


def _order(due: Due) -> tuple[int, datetime, str]:
    return due.priority, due.run_at, due.id


def _by_queue(page: list[Due]) -> dict[str, list[Due]]:
    queues: dict[str, list[Due]] = {}
    for due in page:
        queues.setdefault(due.queue, []).append(due)
    return queues
