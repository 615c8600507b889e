"""The few writes that we make, into bare repositories of our own: a branch, a file, a merge.

A branch moves by compare-and-set under git's own lock of its reference: whoever finds it moved changes nothing.
"""

from __future__ import annotations

from datetime import datetime

import pygit2
from pygit2.enums import BranchType, FileMode

from actors.proposals.errors import BranchMissing, BranchMoved, BranchRefused, MergeRefused
from actors.proposals.git.comparison import Limits, common_ancestor, conflicting_paths, merge_in_memory
from actors.proposals.git.repository import Repository, git_failures, reference_name
from store.errors import UsageError

AUTHOR = ("Dramaturg demo", "demo@example.invalid")


def create_branch(repository: Repository, branch: str, commit_id: str) -> None:
    """Makes a branch at a commit. Raises BranchRefused when there is one of this name, or one that stands in its way
    (``a`` and ``a/b`` exclude each other), or when the name isn't possible; CommitMissing without the commit."""
    name = _writable_name(repository, branch)
    commit = repository.commit(commit_id)
    obstacle = _obstacle(repository, branch)
    if obstacle is not None:
        raise BranchRefused(f"{repository.path}: branch {branch!r} can't be made, {obstacle!r} stands in its way")
    with git_failures(repository.path, "making a branch"):
        try:
            repository.raw.create_reference_direct(name, commit.id, False)
        except pygit2.AlreadyExistsError as error:
            raise BranchRefused(f"{repository.path}: someone else has just made the branch {branch!r}") from error


def commit_file(repository: Repository, branch: str, path: str, text: str, message: str) -> str:
    """Puts a commit that sets one file onto a branch; answers its id.

    Raises BranchMissing, BranchMoved when someone else moved the branch meanwhile, UsageError for a path that can't be
    a file's."""
    tip = repository.heads([branch])[branch]
    if tip is None:
        raise BranchMissing(f"{repository.path}: there is no branch {branch!r}")
    commit_id = write_commit(repository, tip, path, text, message)
    _move(repository, branch, old=tip, new=commit_id)
    return commit_id


def write_commit(repository: Repository, parent_id: str, path: str, text: str, message: str) -> str:
    """Writes a commit on top of a parent, on no branch yet, that sets one file; answers its id."""
    parts = path.split("/")
    if any(part.lower() in ("", ".", "..", ".git") for part in parts):
        raise UsageError(f"{path!r} can't be the path of a file: give one like docs/notes.md")
    for value in (path, text, message):
        _check_text(value)
    parent = repository.commit(parent_id)
    with git_failures(repository.path, "writing a commit"):
        raw = repository.raw
        tree = _with_file(raw, parent.tree, parts, raw.create_blob(text.encode("utf-8")))
        author = pygit2.Signature(*AUTHOR)
        return str(raw.create_commit(None, author, author, message, tree, [parent.id]))


def merge(
    repository: Repository,
    branch: str,
    *,
    base_commit: str,
    head_commit: str,
    message: str,
    at: datetime,
    limits: Limits | None = None,
) -> str:
    """Merges ``head_commit`` into ``branch``, which must stand at ``base_commit``, and answers the merge commit's id.

    The same arguments always make the same commit, so a merge whose answer was lost is repeated safely: when the branch
    holds that commit already, nothing changes and its id is the answer. ``at`` is the time that the commit carries.

    Raises BranchMissing, CommitMissing; BranchMoved when the branch stands elsewhere; MergeRefused for a conflict, for
    histories that have nothing in common, when there is nothing to merge, and when it would cost more than the limits.
    """
    _check_text(message)
    _writable_name(repository, branch)
    base, head = repository.commit(base_commit), repository.commit(head_commit)
    raw, path = repository.raw, repository.path
    with git_failures(path, "merging"):
        fork = common_ancestor(raw, base, head)
        if fork is None:
            raise MergeRefused(f"{path}: the two histories have nothing in common")
        if fork.id == head.id:
            raise MergeRefused(f"{path}: there is nothing to merge, {branch!r} holds {head_commit} already")
        merged = merge_in_memory(raw, fork, base, head, limits or Limits())
        if merged is None:
            raise MergeRefused(f"{path}: this merge is too large to be made here; make it with git")
        conflicts = len(conflicting_paths(merged))
        if conflicts:
            raise MergeRefused(f"{path}: {conflicts} path(s) conflict; solve that on the proposal's branch first")
        author = pygit2.Signature(*AUTHOR, time=int(at.timestamp()), offset=0)
        commit = raw.create_commit(None, author, author, message, merged.write_tree(raw), [base.id, head.id])
    tip = repository.heads([branch])[branch]
    if tip is None:
        raise BranchMissing(f"{path}: there is no branch {branch!r}")
    with git_failures(path, "reading the history"):
        already = tip == str(commit) or raw.descendant_of(tip, commit)
    if not already:
        _move(repository, branch, old=base_commit, new=str(commit))
    return str(commit)


def _move(repository: Repository, branch: str, *, old: str, new: str) -> None:
    name = _writable_name(repository, branch)
    with git_failures(repository.path, "moving a branch"):
        with repository.raw.transaction() as transaction:
            try:
                transaction.lock_ref(name)
            except pygit2.GitError as error:
                raise BranchMoved(
                    f"{repository.path}: branch {branch!r} is locked by another writer; try again, and if no git "
                    "command is running, delete its .lock file"
                ) from error
            if repository.heads([branch])[branch] != old:
                raise BranchMoved(f"{repository.path}: branch {branch!r} has moved; read it again")
            transaction.set_target(name, new)


def _writable_name(repository: Repository, branch: str) -> str:
    name = reference_name(branch)
    if name is None:
        raise BranchRefused(f"{branch[:100]!r} can't be the name of a branch: see git check-ref-format")
    if not repository.bare:
        raise BranchRefused(f"{repository.path}: this repository has a working tree; we write to bare ones only")
    return name


def _obstacle(repository: Repository, branch: str) -> str | None:
    """A branch that is the same, above or below: git keeps branches like files in folders."""
    with git_failures(repository.path, "listing its branches"):
        present = [raw.decode("utf-8", "replace") for raw in repository.raw.raw_listall_branches(BranchType.LOCAL)]
    return next(
        (other for other in present if f"{branch}/".startswith(f"{other}/") or other.startswith(f"{branch}/")), None
    )


def _with_file(raw: pygit2.Repository, tree: pygit2.Tree | None, parts: list[str], blob: pygit2.Oid) -> pygit2.Oid:
    """The tree with a file set; only the trees along its path are read, however large the repository is."""
    builder = raw.TreeBuilder(tree) if tree else raw.TreeBuilder()
    name, rest = parts[0], parts[1:]
    present = builder.get(name)
    if present is not None and isinstance(present, pygit2.Tree) != bool(rest):
        raise UsageError(f"{name!r} is a file where the path needs a directory, or the other way round")
    if rest:
        below = present if isinstance(present, pygit2.Tree) else None
        builder.insert(name, _with_file(raw, below, rest, blob), FileMode.TREE)
    else:
        builder.insert(name, blob, FileMode.BLOB)
    return builder.write()


def _check_text(value: str) -> None:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise UsageError("the text holds a lone surrogate, which git can't keep: leave it out") from error
    if "\x00" in value:
        raise UsageError("the text holds U+0000, which git can't keep: leave it out")
