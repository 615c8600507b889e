"""Our bare copy of a repository, and the three proposals between its branches that ``up`` shows."""

from __future__ import annotations

import shutil
from pathlib import Path

from actors.proposals.git import DemoBranches, Repository, clone_bare, commit_file, create_demo_branches
from actors.proposals.ledger import Proposals
from actors.proposals.model import Proposal
from ops.up.source import EMPTY, Source
from store.contract import Store
from store.errors import UsageError
from store.identity import new_id

#: What is proposed against the base: (field of DemoBranches, title).
_PROPOSED = (
    ("ahead", "One commit ahead of its base"),
    ("behind", "Behind its base, with nothing of its own"),
    ("conflict", "In conflict with its base"),
)


def bare_copy(source: Source, home: Path) -> Path:
    """Our copy under ``home``, made if it is not there. Raises CloneFailed, and UsageError for an empty repository."""
    target = home / "repositories" / source.folder
    if target.exists():
        return target
    with clone_bare(source.origin, target) as repository:
        empty = repository.default_branch() is None
    if empty:
        shutil.rmtree(target)
        raise UsageError(f"the repository of --repo {EMPTY}")
    return target


class Tracked:
    """The proposals of one copy."""

    def __init__(self, store: Store, copy: Path) -> None:
        self.copy = copy
        self.name = copy.stem
        self.branches = DemoBranches()
        self._proposals = Proposals(store)

    def open(self) -> None:
        """Make the branches and open the proposals that are missing. Raises what git and the store raise."""
        with Repository(self.copy) as repository:
            self.branches = create_demo_branches(repository)
        self._proposals.add_repository(self.name, self.copy)
        there = {(proposal.base, proposal.head) for proposal in self.all()}
        for field, title in _PROPOSED:
            head = getattr(self.branches, field)
            if (self.branches.base, head) not in there:
                self._proposals.open(self.name, self.branches.base, head, title)

    def all(self) -> list[Proposal]:
        """All proposals of the copy."""
        return self._proposals.list(repository=self.name)

    def push(self, branch: str) -> str:
        """Put one more commit onto a branch, as a push would; answers its id."""
        with Repository(self.copy) as repository:
            return commit_file(repository, branch, f"pushed-{new_id()}.md", "Pushed.\n", "Push one more commit")
