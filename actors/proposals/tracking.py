"""The run of ``proposal.repository``: one page of one repository's tracked proposals.

Branch heads are read once a page. Only where they moved (or the last comparison failed) is anything else of the
repository read, and what is found out is written by compare-and-set: whoever wrote the proposal meanwhile has also
woken this job.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from actors.proposals.book import FIRST, Book
from actors.proposals.errors import BranchMissing, RepositoryMissing
from actors.proposals.model import Change, Ended, Reference, Registration, State
from actors.proposals.passes import Position
from actors.proposals.refusals import RepositoryHidden
from actors.proposals.view import GitView, OpenView, View
from middleware import logs
from middleware.failures import describe
from middleware.job import Payload
from middleware.run import Run
from store.contract import Store
from store.events import Failure
from store.outcome import Again, Done, Outcome

#: Proposals of one run at most.
PAGE = 50


class RepositoryRef(Payload):
    """A repository in one incarnation; its domain is the job's."""

    repository: str
    incarnation: str


class Tracker:
    """``interval`` lies between two passes, in seconds; ``draw`` answers 0..1."""

    def __init__(
        self,
        store: Store,
        interval: float,
        *,
        view: OpenView = GitView,
        page: int = PAGE,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._store = store
        self._interval = interval
        self._view = view
        self._page = page
        self._draw = draw
        self._book = Book(store.dialect)

    def work(self, ref: RepositoryRef, run: Run) -> Outcome:
        """Bring one page up to date. Raises RepositoryHidden, RepositoryUnreadable, StoreUnavailable."""
        position = Position.read(run.checkpoint, woken=run.woken)
        with self._store.transaction() as tx:
            registration = self._book.registration(tx, run.domain, ref.repository, ref.incarnation)
            if registration is None:
                return Done()
            if registration.ended is None:
                page = self._book.references(tx, registration, position.after or FIRST, self._page)
        if registration.ended is not None:
            return self._retire(registration, run)
        if not page:
            return Done() if position.after is None else position.finish(self._interval, self._draw())
        try:
            with self._view(registration.path) as git:
                if git.incarnation == ref.incarnation:
                    return self._bring_up_to_date(git, page, position, run)
        except RepositoryMissing:
            raise RepositoryHidden(
                f"the repository {registration.name} can't be found at {registration.path}: give this worker access to "
                "it, register its new path, or remove it"
            ) from None
        with self._store.transaction() as tx:
            registration = self._book.end(tx, registration, Ended.REPLACED)
        return self._retire(registration, run)

    def _bring_up_to_date(self, git: View, page: list[Reference], position: Position, run: Run) -> Outcome:
        heads = git.heads(sorted({branch for row in page for branch in (row.base, row.head)}))
        for row in page:
            base, head = heads[row.base], heads[row.head]
            if not row.current(base, head):
                run.check()
                if run.stopping:
                    return position.go_on(position.after)
                position = self._compare(git, row, base, head, position, run)
            position = position._replace(after=row.id)
        if len(page) == self._page:
            return position.go_on(position.after)
        return position.finish(self._interval, self._draw())

    def _compare(
        self, git: View, row: Reference, base: str | None, head: str | None, position: Position, run: Run
    ) -> Position:
        if base is None or head is None:
            return self._failed(row, Failure(BranchMissing.__name__, BranchMissing.code), position, run)
        try:
            found = git.compare(base, head)
        except Exception as error:  # noqa: BLE001 - one proposal must not keep the others; it becomes a coded failure
            return self._failed(row, describe(error), position, run)
        with self._store.transaction() as tx:
            if self._book.set_compared(tx, row, (base, head), found):
                run.count("compared")
        return position

    def _failed(self, row: Reference, failure: Failure, position: Position, run: Run) -> Position:
        """The failure stands on the proposal; one that stands there already is not written, told or counted again."""
        if (row.trouble_kind, row.trouble_code) != (failure.kind, failure.code):
            logs.log.warning(
                "proposal_failed",
                job_id=run.id,
                proposal_id=row.id,
                error=failure.kind,
                code=failure.code,
                place=failure.place,
            )
            with self._store.transaction() as tx:
                if self._book.set_trouble(tx, row, failure):
                    run.count("failed")
        return position.failing(failure.code)

    def _retire(self, registration: Registration, run: Run) -> Outcome:
        """The repository is not this one any more: what was tracked of it is archived, and the job is done."""
        with self._store.transaction() as tx:
            left = self._book.left_over(tx, registration, self._page)
            for proposal in left:
                archived = proposal._replace(state=State.ARCHIVED)
                self._book.change(tx, archived, Change.ARCHIVED, code=f"repository_{registration.ended}")
        if left:
            run.count("archived", len(left))
        return Again(checkpoint=None) if len(left) == self._page else Done()
