"""The scan at start-up: every repository with tracked proposals has its job, whatever happened to the job rows.

It reads our own tables, a page of registrations at a time, and opens no repository. A job that waits, runs or is held
is left alone, and so is one that an operator cancelled: his word stands until somebody changes a proposal.
"""

from __future__ import annotations

from collections.abc import Callable

from actors.proposals.book import FIRST, Book
from actors.proposals.model import Registration
from actors.proposals.passes import Position
from middleware.job import Payload
from middleware.run import Run
from store.contract import Store
from store.events import Wake
from store.job import State
from store.outcome import Again, Done, Outcome

#: Registrations of one run at most.
PAGE = 200

#: A job in one of these states does nothing more by itself, and nobody asked it to stop.
_OVER = frozenset({State.COMPLETED, State.FAILED})


class Scan(Payload):
    """There is nothing to say: the scan is of everything."""


class Scanner:
    """``request`` makes the wake of a registration's job."""

    def __init__(self, store: Store, request: Callable[[Registration, bool], Wake], *, page: int = PAGE) -> None:
        self._store = store
        self._request = request
        self._page = page
        self._book = Book(store.dialect)

    def work(self, run: Run) -> Outcome:
        """See to one page of registrations. Raises StoreUnavailable."""
        position = Position.read(run.checkpoint, woken=run.woken)
        with self._store.transaction() as tx:
            page = self._book.with_work(tx, position.after or FIRST, self._page)
        with_work = [registration for registration, works in page if works]
        jobs = self._store.read([self._request(registration, True).id for registration in with_work])
        wanted = [
            self._request(registration, job is None)
            for registration, job in zip(with_work, jobs, strict=True)
            if job is None or job.state in _OVER
        ]
        if wanted:
            self._store.wake(wanted)
            run.count("woken", len(wanted))
        if len(page) == self._page:
            return position.go_on(page[-1][0].id)
        return Again(checkpoint=None) if position.woken else Done()
