"""What can go wrong with a git repository, as branches of the tree in ``store/errors.py``.

    Refused
    ├── NotFound
    │   ├── RepositoryMissing     there is no repository at that path
    │   ├── BranchMissing         the repository has no such branch
    │   └── CommitMissing         the repository has no such commit
    ├── BranchRefused             a branch that can't be made or written here
    ├── BranchMoved               the branch is no longer where the caller saw it
    └── MergeRefused              these two commits can't be merged here
    Unavailable
    ├── RepositoryUnreadable      it is there, and reading or writing it failed
    └── CloneFailed               the copy was not made

The texts are ours alone. What libgit2, git or the system said is the exception's cause, never part of its text.
"""

from __future__ import annotations

from store.errors import NotFound, Refused, Unavailable


class RepositoryMissing(NotFound):
    """There is no repository at that path."""

    code = "repository_missing"


class BranchMissing(NotFound):
    """The repository has no such branch."""

    code = "branch_missing"


class CommitMissing(NotFound):
    """The repository has no such commit: it was never there, or it was cleaned away after its branch had moved."""

    code = "commit_missing"


class BranchRefused(Refused):
    """A branch can't be made or written here: its name, or the kind of repository, forbids it."""

    code = "branch_refused"


class BranchMoved(Refused):
    """The branch is no longer where the caller saw it; read it again and decide again."""

    code = "branch_moved"


class MergeRefused(Refused):
    """These two commits can't be merged here; the text says why."""

    code = "merge_refused"


class RepositoryUnreadable(Unavailable):
    """The repository is there, but reading or writing it failed."""

    code = "repository_unreadable"


class CloneFailed(Unavailable):
    """The copy of a repository was not made; nothing is left of it."""

    code = "clone_failed"
