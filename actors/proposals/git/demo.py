"""Branches that show what proposals are like, in a bare copy of any repository that has a commit."""

from __future__ import annotations

from dataclasses import dataclass

from actors.proposals.errors import BranchMissing
from actors.proposals.git.repository import Repository
from actors.proposals.git.writing import create_branch, write_commit


@dataclass(frozen=True, slots=True)
class DemoBranches:
    """Branch names. ``ahead``, ``behind`` and ``conflict`` are heads to be proposed against ``base``."""

    base: str = "dramaturg/base"
    ahead: str = "dramaturg/ahead"
    behind: str = "dramaturg/behind"
    conflict: str = "dramaturg/conflict"


def create_demo_branches(repository: Repository) -> DemoBranches:
    """Makes the branches that are missing and leaves the others, and the default branch, as they are.

        default branch ── behind ── base ── ahead
                              └──── conflict

    Behind stands where the default branch stands. Base has one commit more, which adds a file; ahead one more again;
    conflict adds the same file with other words. So one commit is enough to start from, and no file of the repository
    is touched. Raises BranchMissing for a repository without a commit, BranchRefused for one with a working tree or
    with a branch named ``dramaturg``."""
    names = DemoBranches()
    default = repository.default_branch()
    heads = repository.heads([names.base, names.ahead, names.behind, names.conflict, *([default] if default else [])])
    start = heads.get(default) if default else None
    if start is None:
        raise BranchMissing(f"{repository.path}: there is no commit on any branch yet; make one first")
    # The file is named after the commit, so it is new in every repository, even in a copy of an earlier demo.
    folder = f"dramaturg-demo-{start[:12]}"
    base = heads[names.base] or write_commit(
        repository, start, f"{folder}/notes.md", "Written on the base.\n", "Add notes on the base"
    )
    commits = {
        names.base: base,
        names.ahead: write_commit(repository, base, f"{folder}/more.md", "One step ahead.\n", "Add one more file"),
        names.behind: start,
        names.conflict: write_commit(
            repository, start, f"{folder}/notes.md", "Written on the branch.\n", "Add notes on the branch"
        ),
    }
    for branch, commit in commits.items():
        if heads[branch] is None:
            create_branch(repository, branch, commit)
    return names
