"""The frame of every change to a proposal: its row is kept, what became of it is written, its job is woken."""

from __future__ import annotations

from actors.proposals.book import Book
from actors.proposals.checks import check_proposal_id
from actors.proposals.errors import BranchMissing
from actors.proposals.job import request
from actors.proposals.model import Proposal
from actors.proposals.refusals import ProposalMissing, RepositoryReplaced
from actors.proposals.view import View
from store.contract import Store, Tx


def read(store: Store, book: Book, proposal_id: str) -> Proposal:
    """One proposal. Raises ProposalMissing, UsageError."""
    proposal_id = check_proposal_id(proposal_id)
    with store.transaction() as tx:
        return _there(book.proposal(tx, proposal_id), proposal_id)


def keep(book: Book, tx: Tx, proposal_id: str) -> Proposal:
    """One proposal that nobody else changes until the transaction ends. Raises ProposalMissing."""
    return _there(book.proposal(tx, proposal_id, to_change=True), proposal_id)


def wake(book: Book, tx: Tx, proposal_id: str) -> Proposal:
    """Wake the job of a proposal that was written in this transaction; answers it as it is now."""
    proposal = _there(book.proposal(tx, proposal_id), proposal_id)
    tx.wake([request(proposal.repository)])
    return proposal


def commits_of(git: View, name: str, base: str, head: str) -> tuple[str, str]:
    """Where two branches of the repository ``name`` stand. Raises BranchMissing."""
    heads = git.heads((base, head))
    found = heads[base], heads[head]
    if found[0] is None or found[1] is None:
        missing = base if found[0] is None else head
        raise BranchMissing(f"the repository {name} has no branch {missing!r}")
    return found[0], found[1]


def check_same(git: View, proposal: Proposal) -> None:
    """Raise RepositoryReplaced where another repository stands at the path by now."""
    if git.incarnation != proposal.repository.incarnation:
        raise RepositoryReplaced(
            f"the repository {proposal.repository.name} was made anew since proposal {proposal.id} was opened: open a "
            "new one"
        )


def _there(found: Proposal | None, proposal_id: str) -> Proposal:
    if found is None:
        raise ProposalMissing(f"there is no proposal {proposal_id}")
    return found
