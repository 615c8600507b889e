"""How two commits stand to each other: what a proposal shows of its base and its head."""

from __future__ import annotations

from dataclasses import dataclass

import pygit2
from pygit2.enums import DiffFind, FileMode, MergeFlag

from actors.proposals.git.repository import Repository, git_failures

_PATH_CHARACTERS = 300


@dataclass(frozen=True, slots=True)
class Limits:
    """What one comparison may cost. Walking the history has no limit of its own: it takes time in proportion to the
    commits in which the two differ (a few seconds for 300,000) and reads no file."""

    files: int = 20_000
    """Changed files on one side, up to which renames and conflicts are looked for."""
    content: int = 64 * 1024 * 1024
    """Bytes of file content that looking for renames, or merging, may read."""
    conflict_paths: int = 20
    """Paths in conflict that a comparison names."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """``head`` seen from ``base``; ids are 40 hex digits."""

    merge_base: str | None
    """The commit at which they parted; None when their histories have nothing in common."""
    ahead: int
    """Commits of head that base has not."""
    behind: int
    """Commits of base that head has not."""
    files_changed: int
    """Files that differ between the merge base and head, a renamed one counted once; without a merge base, every file
    of head."""
    conflicts: int | None
    """Paths in which a merge would conflict; None when finding out would cost more than the limits allow."""
    conflict_paths: tuple[str, ...] = ()
    """The first of these paths in order, as text: bytes that are not UTF-8 are replaced."""

    @property
    def mergeable(self) -> bool | None:
        """Whether head can be merged into base as they are; None when it isn't known."""
        if self.merge_base is None:
            return False
        return None if self.conflicts is None else self.conflicts == 0


def compare(repository: Repository, base_commit: str, head_commit: str, limits: Limits | None = None) -> Comparison:
    """Compares two commits by their full ids. Nothing is written, no branch is read.

    Raises CommitMissing when one isn't there, RepositoryUnreadable when the repository can't be read."""
    limits = limits or Limits()
    base, head = repository.commit(base_commit), repository.commit(head_commit)
    with git_failures(repository.path, "comparing two commits"):
        # First, because it walks without holding the interpreter's lock and leaves the commits in libgit2's cache.
        ahead, behind = repository.raw.ahead_behind(head.id, base.id)
        fork = _merge_base(repository.raw, base, head, ahead, behind)
        if fork is None:
            files_changed = len(head.tree.diff_to_tree(swap=True))
            return Comparison(None, ahead, behind, files_changed, conflicts=None)
        files_changed = len(_renames_found(repository.raw, fork.tree.diff_to_tree(head.tree), limits))
        if not ahead or not behind:
            return Comparison(str(fork.id), ahead, behind, files_changed, conflicts=0)
        merged = merge_in_memory(repository.aside, fork, base, head, limits)
        if merged is None:
            return Comparison(str(fork.id), ahead, behind, files_changed, conflicts=None)
        paths = conflicting_paths(merged)
        return Comparison(
            str(fork.id), ahead, behind, files_changed, len(paths), tuple(sorted(paths)[: limits.conflict_paths])
        )


def merge_in_memory(
    raw: pygit2.Repository, fork: pygit2.Commit, base: pygit2.Commit, head: pygit2.Commit, limits: Limits
) -> pygit2.Index | None:
    """Head merged into base, as an index; None when that would cost too much.

    Moves nothing, but files that changed on both sides are written to ``raw`` as objects. Renames are followed unless
    the limits forbid it. Raises what libgit2 raises."""
    sides = [fork.tree.diff_to_tree(side.tree) for side in (base, head)]
    if any(len(side) > limits.files for side in sides):
        return None
    shared = _paths(sides[0]) & _paths(sides[1])
    contested = [delta for side in sides for delta in side.deltas if delta.new_file.raw_path in shared]
    if _content(raw, contested) > limits.content:
        return None
    cheap = sum(_content(raw, _rename_candidates(side)) for side in sides) <= limits.content
    return raw.merge_commits(base, head, flags=MergeFlag.FIND_RENAMES if cheap else MergeFlag(0))


def conflicting_paths(merged: pygit2.Index) -> set[str]:
    """The paths of an index that are in conflict, as text."""
    entries = (ancestor or ours or theirs for ancestor, ours, theirs in merged.conflicts or ())
    return {_text(str(entry.path)) for entry in entries}


def common_ancestor(raw: pygit2.Repository, base: pygit2.Commit, head: pygit2.Commit) -> pygit2.Commit | None:
    """The merge base of two commits, None without one. Raises what libgit2 raises."""
    return _merge_base(raw, base, head, *raw.ahead_behind(head.id, base.id))


def _merge_base(
    raw: pygit2.Repository, base: pygit2.Commit, head: pygit2.Commit, ahead: int, behind: int
) -> pygit2.Commit | None:
    if not ahead:
        return head
    if not behind:
        return base
    found: pygit2.Oid | None = raw.merge_base(base.id, head.id)
    return None if found is None else raw[found].peel(pygit2.Commit)


def _renames_found(raw: pygit2.Repository, diff: pygit2.Diff, limits: Limits) -> pygit2.Diff:
    if len(diff) <= limits.files and _content(raw, _rename_candidates(diff)) <= limits.content:
        diff.find_similar(flags=DiffFind.FIND_RENAMES)
    return diff


def _rename_candidates(diff: pygit2.Diff) -> list[pygit2.DiffDelta]:
    return [delta for delta in diff.deltas if delta.status_char() in "AD"]


def _paths(diff: pygit2.Diff) -> set[bytes]:
    return {delta.new_file.raw_path for delta in diff.deltas}


def _content(raw: pygit2.Repository, deltas: list[pygit2.DiffDelta]) -> int:
    """Bytes of the files on both sides of these changes, from the objects' headers alone."""
    sides = (side for delta in deltas for side in (delta.old_file, delta.new_file))
    return sum(
        raw.odb.read_header(side.id)[1]
        for side in sides
        if side.id and side.mode not in (FileMode.UNREADABLE, FileMode.COMMIT)
    )


def _text(path: str) -> str:
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")[:_PATH_CHARACTERS]
