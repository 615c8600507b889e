"""Merging in two steps, so that a crash between them is seen and settled, never guessed.

First the proposal is marked: merging, which commits, since when. Then git moves the branch by compare-and-set, and the
outcome is recorded. Whoever finds the mark without an outcome repeats the same merge: the same commits and the same
moment make the same merge commit, so either the branch holds it already, or it is made now, or it can't be made any
more, and then nothing was merged.
"""

from __future__ import annotations

import time

from actors.proposals import lifecycle
from actors.proposals.book import Book
from actors.proposals.changing import check_same, commits_of, keep, read, wake
from actors.proposals.errors import BranchMissing, BranchMoved, BranchRefused, CommitMissing, MergeRefused
from actors.proposals.lifecycle import Action
from actors.proposals.model import Change, Merging, Proposal, State
from actors.proposals.refusals import MergeUncertain, ProposalRefused
from actors.proposals.view import OpenView, View
from store.contract import Store
from store.errors import Refused

#: After one of these the branch does not hold the merge. Anything else leaves that open.
_NOT_MERGED = (BranchMissing, BranchMoved, BranchRefused, CommitMissing, MergeRefused)

#: Seconds between two looks at a branch that another writer has locked.
_PAUSES = (0.02, 0.05, 0.1, 0.2, 0.2)


class Merger:
    """Merges proposals of one store."""

    def __init__(self, store: Store, book: Book, view: OpenView) -> None:
        self._store = store
        self._book = book
        self._view = view

    def merge(self, proposal_id: str) -> Proposal:
        """Merge an open proposal, or settle a merge whose end is not known; answers the merged proposal.

        Raises ProposalMissing, ProposalRefused, RepositoryReplaced, RepositoryMissing; MergeRefused, BranchMoved,
        BranchMissing, BranchRefused and CommitMissing when it can't be merged: then it is open again;
        RepositoryUnreadable and MergeUncertain when that is not known.
        """
        proposal = read(self._store, self._book, proposal_id)
        if proposal.state is not State.MERGING:
            lifecycle.decide(proposal, Action.MERGE)
        with self._view(proposal.repository.path) as git:
            check_same(git, proposal)
            if proposal.state is not State.MERGING:
                proposal = self._begin(git, proposal)
            assert proposal.merging is not None
            try:
                commit = _merged(git, proposal, proposal.merging)
            except _NOT_MERGED as error:
                self._give_up(proposal, error)
                raise
        return self._record(proposal, commit)

    def _begin(self, git: View, proposal: Proposal) -> Proposal:
        base, head = commits_of(git, proposal.repository.name, proposal.base, proposal.head)
        try:
            _check_mergeable(git, proposal, base, head)
        except MergeRefused:
            # Perhaps the branches hold what somebody else merged since we read the proposal: its mark was there first.
            now = read(self._store, self._book, proposal.id)
            if now.state is State.MERGING:
                return now
            lifecycle.decide(now, Action.MERGE)
            raise
        with self._store.transaction() as tx:
            now = keep(self._book, tx, proposal.id)
            if now.state is State.MERGING:
                return now  # somebody else began it at this moment: both make the same merge
            state, change = lifecycle.decide(now, Action.MERGE)
            if (now.base, now.head) != (proposal.base, proposal.head):
                raise ProposalRefused(f"proposal {now.id} got other branches meanwhile: look at it, and merge it again")
            # The moment is the database's, and read back with the row.
            marked = now._replace(state=state, merging=Merging(base, head, now.updated_at))
            self._book.change(tx, marked, change, commits=(base, head))
            return keep(self._book, tx, proposal.id)

    def _give_up(self, proposal: Proposal, error: Refused) -> None:
        with self._store.transaction() as tx:
            now = keep(self._book, tx, proposal.id)
            if now.merging == proposal.merging:
                reopened = now._replace(state=State.OPEN, merging=None)
                self._book.change(tx, reopened, Change.MERGE_REFUSED, code=error.code)
                wake(self._book, tx, now.id)

    def _record(self, proposal: Proposal, commit: str) -> Proposal:
        with self._store.transaction() as tx:
            now = keep(self._book, tx, proposal.id)
            if now.merge_commit == commit:
                return now  # somebody else settled the same merge
            if now.merging != proposal.merging:
                raise ProposalRefused(
                    f"proposal {now.id} is {now.state} by now, though {commit} is its merge: look at its feed"
                )
            merging = proposal.merging
            assert merging is not None
            merged = now._replace(state=State.MERGED, merging=None, merge_commit=commit)
            self._book.change(tx, merged, Change.MERGED, commits=(merging.base_commit, merging.head_commit))
            return wake(self._book, tx, now.id)


def _check_mergeable(git: View, proposal: Proposal, base: str, head: str) -> None:
    """Refuse what is known not to work before anything is marked."""
    name = proposal.repository.name
    if not git.bare:
        raise BranchRefused(f"the repository {name} has a working tree; we write to bare ones only: merge it with git")
    found = git.compare(base, head)
    if found.merge_base is None:
        raise MergeRefused(f"proposal {proposal.id}: the histories of its branches have nothing in common")
    if not found.ahead:
        raise MergeRefused(
            f"proposal {proposal.id}: there is nothing to merge, {proposal.base!r} holds its head already"
        )
    if found.conflicts:
        raise MergeRefused(
            f"proposal {proposal.id}: {found.conflicts} path(s) conflict; solve that on its branch first"
        )


def _merged(git: View, proposal: Proposal, merging: Merging) -> str:
    message = f"Merge {proposal.head} into {proposal.base}\n\n{proposal.title}\n\nProposal: {proposal.id}\n"

    def attempt() -> str:
        return git.merge(
            proposal.base,
            base_commit=merging.base_commit,
            head_commit=merging.head_commit,
            message=message,
            at=merging.since,
        )

    # Refused by a branch that was seen elsewhere, it is not merged. Refused by one that still stands where it stood, it
    # is locked, perhaps by somebody who settles the same merge at this moment: that has to be waited for.
    moved = False
    for pause in _PAUSES:
        try:
            return attempt()
        except BranchMoved:
            if moved:
                raise
        moved = git.heads((proposal.base,))[proposal.base] != merging.base_commit
        time.sleep(0.0 if moved else pause)
    if moved:
        return attempt()
    raise MergeUncertain(
        f"branch {proposal.base!r} of {proposal.repository.name} is locked by another writer, so it is not known yet "
        f"whether proposal {proposal.id} is merged: merge it again; if no git command is running, delete the .lock file"
    )
