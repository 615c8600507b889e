"""Proposals as people handle them: what the command line, a web server or a test calls.

Each change is one transaction: the proposal, its snapshot, its feed event, and the wake of its repository's job. Git is
read before it begins, never inside it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from actors.proposals import changing, lifecycle
from actors.proposals.book import FIRST, Book
from actors.proposals.checks import (
    check_branches,
    check_incarnation,
    check_limit,
    check_name,
    check_path,
    check_proposal_id,
    check_title,
)
from actors.proposals.job import request
from actors.proposals.lifecycle import Action
from actors.proposals.merging import Merger
from actors.proposals.model import Ended, FeedEvent, Proposal, Registration, Snapshot, State
from actors.proposals.refusals import RepositoryUnknown
from actors.proposals.view import GitView, OpenView
from store.contract import Store, Tx
from store.errors import UsageError
from store.identity import DEFAULT_DOMAIN
from store.identity import check_name as check_identity

#: What one call lists at most.
LIST_MOST = 1000


class Proposals:
    """Proposals in one store. Safe to share between threads.

    Beside what the methods say, all of them raise StoreUnavailable, and UsageError for values that can't be; then
    nothing was changed, nor was it where they raise Refused or one of its branches.
    """

    def __init__(self, store: Store, *, view: OpenView = GitView) -> None:
        self._store = store
        self._view = view
        self._book = Book(store.dialect)

    # --- repositories

    def add_repository(
        self, name: str, path: Path | str, incarnation: str | None = None, domain: str = DEFAULT_DOMAIN
    ) -> Registration:
        """Register a repository, or tell where one has moved; again changes nothing.

        ``incarnation`` None has it read at ``path``. Another incarnation under a known name takes the name over: the
        job of the one before is woken, archives what it tracked, and retires. Raises RepositoryMissing,
        RepositoryUnreadable.
        """
        check_name(name)
        check_identity("domain", domain)
        where = check_path(path)
        if incarnation is None:
            with self._view(where) as git:
                incarnation = git.incarnation
        check_incarnation(incarnation)
        with self._store.transaction() as tx:
            return self._register(tx, domain, name, where, incarnation)

    def remove_repository(self, name: str, domain: str = DEFAULT_DOMAIN) -> Registration:
        """Take a repository off the register: its job archives what it tracked, and retires. Nothing is deleted.

        Raises RepositoryUnknown.
        """
        check_name(name)
        check_identity("domain", domain)
        with self._store.transaction() as tx:
            registration = self._book.registration_of(tx, domain, name)
            if registration is None or registration.ended:
                raise _unknown(name)
            registration = self._book.end(tx, registration, Ended.REMOVED)
            tx.wake([request(registration)])
        return registration

    def repository(self, name: str, domain: str = DEFAULT_DOMAIN) -> Registration:
        """The repository of a name; where none stands, the one that was replaced last. Raises RepositoryUnknown."""
        check_name(name)
        check_identity("domain", domain)
        with self._store.transaction() as tx:
            registration = self._book.registration_of(tx, domain, name)
        if registration is None:
            raise _unknown(name)
        return registration

    def repository_at(self, path: Path | str, domain: str = DEFAULT_DOMAIN) -> Registration | None:
        """The repository that is registered at a path."""
        with self._store.transaction() as tx:
            return self._book.registration_at(tx, domain, check_path(path))

    # --- changing

    def open(
        self,
        repository: str,
        base: str,
        head: str,
        title: str,
        draft: bool = False,
        domain: str = DEFAULT_DOMAIN,
        *,
        path: Path | str | None = None,
    ) -> Proposal:
        """Propose to merge branch ``head`` into branch ``base`` of a repository.

        It is registered already, or lies at ``path`` and is registered by this; one that was made anew at its path is
        registered anew. Raises RepositoryUnknown, BranchMissing, RepositoryMissing, RepositoryUnreadable.
        """
        check_title(title)
        check_branches(base, head)
        check_name(repository)
        check_identity("domain", domain)
        with self._store.transaction() as tx:
            known = self._book.registration_of(tx, domain, repository)
        if known is None and path is None:
            raise _unknown(repository)
        where = known.path if path is None and known is not None else check_path(path or "")
        with self._view(where) as git:
            commits, incarnation = changing.commits_of(git, repository, base, head), git.incarnation
        state = State.DRAFT if draft else State.OPEN
        with self._store.transaction() as tx:
            registration = self._register(tx, domain, repository, where, incarnation)
            proposal_id = self._book.insert(tx, registration, title, base, head, state, commits)
            return changing.wake(self._book, tx, proposal_id)

    def update(
        self, proposal_id: str, *, title: str | None = None, base: str | None = None, head: str | None = None
    ) -> Proposal:
        """Give a draft or an open proposal another title or other branches.

        Raises ProposalMissing, ProposalRefused, RepositoryReplaced, and what ``open`` raises for branches.
        """
        given: dict[str, Any] = {"title": title, "base": base, "head": head}
        given = {name: value for name, value in given.items() if value is not None}
        if not given:
            raise UsageError("there is nothing to change: give a title, a base or a head")
        before = self.get(proposal_id)
        lifecycle.decide(before, Action.UPDATE)
        wanted = before._replace(**given)
        check_title(wanted.title)
        check_branches(wanted.base, wanted.head)
        commits = None
        if base is not None or head is not None:
            with self._view(before.repository.path) as git:
                changing.check_same(git, before)
                commits = changing.commits_of(git, before.repository.name, wanted.base, wanted.head)
        with self._store.transaction() as tx:
            now = changing.keep(self._book, tx, before.id)
            state, change = lifecycle.decide(now, Action.UPDATE)
            self._book.change(tx, now._replace(**given, state=state), change, commits=commits)
            return changing.wake(self._book, tx, before.id)

    def mark_ready(self, proposal_id: str) -> Proposal:
        """A draft becomes an open proposal. Raises ProposalMissing, ProposalRefused, RepositoryReplaced."""
        return self._act(proposal_id, Action.READY)

    def close(self, proposal_id: str) -> Proposal:
        """Stop tracking a proposal. Raises ProposalMissing, ProposalRefused."""
        return self._act(proposal_id, Action.CLOSE)

    def reopen(self, proposal_id: str) -> Proposal:
        """Track a closed proposal again. Raises ProposalMissing, ProposalRefused, RepositoryReplaced."""
        return self._act(proposal_id, Action.REOPEN)

    def archive(self, proposal_id: str) -> Proposal:
        """Put a proposal away. Raises ProposalMissing, ProposalRefused."""
        return self._act(proposal_id, Action.ARCHIVE)

    def merge(self, proposal_id: str) -> Proposal:
        """Merge an open proposal, or settle a merge whose end is not known: see ``Merger.merge``."""
        return Merger(self._store, self._book, self._view).merge(proposal_id)

    def _register(self, tx: Tx, domain: str, name: str, path: str, incarnation: str) -> Registration:
        registered, *replaced = self._book.register(tx, domain, name, path, incarnation)
        tx.wake([request(former) for former in replaced])
        return registered

    def _act(self, proposal_id: str, action: Action) -> Proposal:
        proposal_id = check_proposal_id(proposal_id)
        with self._store.transaction() as tx:
            now = changing.keep(self._book, tx, proposal_id)
            state, change = lifecycle.decide(now, action)
            self._book.change(tx, now._replace(state=state, merging=None), change)
            return changing.wake(self._book, tx, proposal_id)

    # --- reading

    def get(self, proposal_id: str) -> Proposal:
        """One proposal. Raises ProposalMissing."""
        return changing.read(self._store, self._book, proposal_id)

    def snapshots(self, proposal_id: str, *, after: int = 0, limit: int = 100) -> list[Snapshot]:
        """Versions of a proposal beyond ``after``, oldest first."""
        check_limit(limit, LIST_MOST)
        proposal_id = check_proposal_id(proposal_id)
        with self._store.transaction() as tx:
            return self._book.snapshots(tx, proposal_id, after, limit)

    def feed(self, proposal_id: str, *, after: int = 0, limit: int = 100) -> list[FeedEvent]:
        """Changes of a proposal beyond version ``after``, oldest first."""
        check_limit(limit, LIST_MOST)
        proposal_id = check_proposal_id(proposal_id)
        with self._store.transaction() as tx:
            return self._book.feed(tx, proposal_id, after, limit)

    def list(
        self,
        *,
        repository: str | None = None,
        domain: str | None = None,
        state: State | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> list[Proposal]:
        """Proposals that match, by id, those beyond ``after``; at most ``limit`` (1..1000)."""
        check_limit(limit, LIST_MOST)
        beyond = FIRST if after is None else check_proposal_id(after)
        if repository is not None:
            check_name(repository)
        if domain is not None:
            check_identity("domain", domain)
        with self._store.transaction() as tx:
            return self._book.proposals(tx, domain=domain, name=repository, state=state, after=beyond, limit=limit)


def _unknown(name: str) -> RepositoryUnknown:
    return RepositoryUnknown(f"no repository is registered as {name!r}: register it, or name its path")
