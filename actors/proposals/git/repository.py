"""One git repository, opened for reading: who it is, which branches it has, where they stand."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import pygit2
from pygit2.enums import BranchType, ObjectType, ReferenceType, RepositoryOpenFlag

from actors.proposals.errors import CommitMissing, RepositoryMissing, RepositoryUnreadable
from actors.proposals.git import incarnation

HEADS = "refs/heads/"
_USUAL_DEFAULTS = ("main", "master")


@contextmanager
def git_failures(path: Path, doing: str) -> Iterator[None]:
    """Turns whatever libgit2 and the system raise into RepositoryUnreadable, without their text."""
    try:
        yield
    except (pygit2.GitError, KeyError, ValueError, OSError) as error:
        kind = type(error).__name__
        raise RepositoryUnreadable(f"{path}: {doing} failed ({kind}); check it with git fsck") from error


def reference_name(branch: str) -> str | None:
    """The full name of a branch's reference, or None when no branch can have this name."""
    name = HEADS + branch
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return None
    # libgit2 reads names as C strings, so it would judge only what stands before a NUL.
    return name if "\x00" not in name and pygit2.reference_is_valid_name(name) else None


class Repository:
    """A repository at ``path``, bare or with a working tree. Not to be shared between threads.

    Use it as a context manager, or call ``close()``: open packs hold file descriptors and mapped memory.
    Raises RepositoryMissing when there is no repository at exactly this path (its parents are not searched), and
    RepositoryUnreadable when there is one that can't be read: damaged, of a format that libgit2 does not know, or
    owned by another user and not allowed by git's ``safe.directory``.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.raw = _opened(self.path)
        with git_failures(self.path, "reading its identity"):
            self.git_dir = _common_directory(self.raw)
            self.incarnation: str = incarnation.read(self.git_dir)
        self._aside: tempfile.TemporaryDirectory[str] | None = None
        self._aside_raw: pygit2.Repository | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Gives back descriptors, mapped memory and what ``aside`` wrote. Closing again does nothing."""
        self.raw.free()
        if self._aside_raw is not None:
            self._aside_raw.free()
            self._aside_raw = None
        if self._aside is not None:
            self._aside.cleanup()
            self._aside = None

    @property
    def bare(self) -> bool:
        """Whether there is no working tree. We write to bare ones only."""
        return self.raw.is_bare

    @property
    def aside(self) -> pygit2.Repository:
        """The same repository, but what is written goes to a temporary directory that ``close`` removes.

        libgit2's merge in memory writes each file that it merged as an object; a repository that we only compare must
        not collect them, and may be read-only. Raises what libgit2 and the system raise."""
        if self._aside_raw is None:
            self._aside = tempfile.TemporaryDirectory(prefix="dramaturg-merge-", ignore_cleanup_errors=True)
            objects = Path(self._aside.name)
            (objects / "info").mkdir()
            (objects / "info" / "alternates").write_text(f"{self.git_dir / 'objects'}\n", encoding="utf-8")
            raw = _opened(self.path)
            raw.set_odb(pygit2.Odb(str(objects)))
            self._aside_raw = raw
        return self._aside_raw

    def heads(self, branches: Iterable[str]) -> dict[str, str | None]:
        """Commit id (40 hex digits) of each branch; None for one that doesn't exist, is unborn or can't exist.

        A branch whose reference is damaged counts as missing, as it does for git itself: one of them must not hold up
        the proposals of the others. Raises RepositoryMissing when the whole repository has gone since it was opened."""
        with git_failures(self.path, "looking for its HEAD"):
            if not (self.git_dir / "HEAD").is_file():
                raise RepositoryMissing(f"{self.path}: the repository has gone while it was being read")
        return {branch: self._head(branch) for branch in branches}

    def branches(self, limit: int = 1000) -> tuple[str, ...]:
        """Names of the local branches in order, ``limit`` at most. Names that are not UTF-8 are left out."""
        with git_failures(self.path, "listing its branches"):
            raw_names = sorted(self.raw.raw_listall_branches(BranchType.LOCAL))
        readable = (name for raw in raw_names if (name := raw.decode("utf-8", "replace")).encode("utf-8") == raw)
        return tuple(name for name, _ in zip(readable, range(limit), strict=False))

    def default_branch(self) -> str | None:
        """The branch that HEAD names; if that one isn't born, main, master or the first; None without any branch."""
        candidates = [*_USUAL_DEFAULTS, *self.branches(limit=1)]
        with git_failures(self.path, "reading its HEAD"):
            head = self.raw.lookup_reference("HEAD")
            if head.type == ReferenceType.SYMBOLIC:
                candidates.insert(0, str(head.target).removeprefix(HEADS))
        heads = self.heads(candidates)
        return next((branch for branch in candidates if heads[branch]), None)

    def commit(self, commit_id: str) -> pygit2.Commit:
        """The commit with this full id. Raises CommitMissing when there is none."""
        with git_failures(self.path, "reading a commit"):
            try:
                found = self.raw[pygit2.Oid(hex=commit_id)]
            except (KeyError, ValueError) as error:
                raise CommitMissing(f"{self.path}: there is no commit {commit_id[:40]!r}") from error
            if found.type != ObjectType.COMMIT:
                raise CommitMissing(f"{self.path}: {commit_id[:40]!r} is not a commit")
            return found.peel(pygit2.Commit)

    def _head(self, branch: str) -> str | None:
        name = reference_name(branch)
        if name is None:
            return None
        try:
            target = self.raw.lookup_reference(name).resolve().target
        except (pygit2.GitError, KeyError, ValueError):  # missing, unborn or damaged: see heads()
            return None
        return str(target)


def adopt(path: Path | str) -> Repository:
    """Opens a repository and pins its incarnation into it, so that it outlives copies, restores and moves.

    Adopting again changes nothing, nor does it change the incarnation that the repository had before. Raises what
    opening raises, and RepositoryUnreadable when its git directory can't be written."""
    repository = Repository(path)
    with git_failures(repository.path, "writing its identity"):
        repository.incarnation = incarnation.pin(repository.git_dir, repository.incarnation)
    return repository


def make_bare(path: Path, identity: str) -> None:
    """Makes an empty bare repository that carries an identity given to it. Raises RepositoryUnreadable."""
    with git_failures(path, "making it"):
        pygit2.init_repository(str(path), bare=True).free()
        incarnation.pin(path, identity)


def _opened(path: Path) -> pygit2.Repository:
    with git_failures(path, "opening it"):
        if not path.is_dir():
            raise RepositoryMissing(f"{path}: there is no such directory")
    try:
        return pygit2.Repository(str(path), RepositoryOpenFlag.NO_SEARCH)
    except (pygit2.GitError, ValueError, OSError) as error:
        if not (path / ".git").exists() and not (path / "HEAD").exists():
            raise RepositoryMissing(f"{path}: this is not a git repository") from error
        raise RepositoryUnreadable(
            f"{path}: opening the repository failed ({type(error).__name__}); it may be damaged, of a newer format, or "
            "belong to another user (then allow it with git config --global --add safe.directory)"
        ) from error


def _common_directory(raw: pygit2.Repository) -> Path:
    """The git directory that all working trees of a repository share."""
    own = Path(raw.path or "")
    link = own / "commondir"
    return (own / link.read_text(encoding="utf-8").strip()).resolve() if link.is_file() else own
