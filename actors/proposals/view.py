"""What tracking and merging see of a git repository. A test counts or breaks what passes here."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from actors.proposals import git
from actors.proposals.git import Comparison, Repository


class View(Protocol):
    """One opened repository; all of it raises the errors of ``errors.py``."""

    @property
    def incarnation(self) -> str:
        """Which repository it is."""
        ...

    @property
    def bare(self) -> bool:
        """Whether branches of it may be written."""
        ...

    def heads(self, branches: Iterable[str]) -> dict[str, str | None]:
        """Where branches stand; None for one that isn't there."""
        ...

    def compare(self, base_commit: str, head_commit: str) -> Comparison:
        """How two commits stand to each other."""
        ...

    def merge(self, branch: str, *, base_commit: str, head_commit: str, message: str, at: datetime) -> str:
        """Merge by compare-and-set of the branch; the same arguments make the same commit, and its id is the answer."""
        ...


#: Opens a path, or what else is registered as one. Raises RepositoryMissing, RepositoryUnreadable.
OpenView = Callable[[str], AbstractContextManager[View]]


class GitView:
    """The view of a real repository."""

    def __init__(self, path: Path | str) -> None:
        self._repository = Repository(path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._repository.close()

    @property
    def incarnation(self) -> str:
        return self._repository.incarnation

    @property
    def bare(self) -> bool:
        return self._repository.bare

    def heads(self, branches: Iterable[str]) -> dict[str, str | None]:
        return self._repository.heads(branches)

    def compare(self, base_commit: str, head_commit: str) -> Comparison:
        return git.compare(self._repository, base_commit, head_commit)

    def merge(self, branch: str, *, base_commit: str, head_commit: str, message: str, at: datetime) -> str:
        return git.merge(
            self._repository, branch, base_commit=base_commit, head_commit=head_commit, message=message, at=at
        )
