"""What we write into our own bare repositories: copies, commits, merges, demo branches."""

from __future__ import annotations

import os
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from actors.proposals.errors import (
    BranchMissing,
    BranchMoved,
    BranchRefused,
    CloneFailed,
    CommitMissing,
    MergeRefused,
    RepositoryMissing,
)
from actors.proposals.git import (
    Limits,
    Repository,
    clone_bare,
    commit_file,
    compare,
    create_branch,
    create_demo_branches,
    merge,
)
from store.errors import UsageError
from tests.proposals.repositories import Workshop, forked, git

AT = datetime(2026, 3, 8, 12, 0, tzinfo=UTC)


# -- copying ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_copy_has_the_branches_of_its_source_and_an_incarnation_of_its_own(tmp_path: Path, scheme: str) -> None:
    workshop = Workshop(tmp_path / "source", bare=False, default="trunk")
    tip = workshop.commit("trunk", {"a": "a"})
    topic = workshop.commit("team/topic", {"b": "b"})
    with clone_bare(f"{scheme}{tmp_path / 'source'}", tmp_path / "deep" / "er" / "copy") as copy:
        assert copy.bare
        assert copy.heads(["trunk", "team/topic"]) == {"trunk": tip, "team/topic": topic}
        assert copy.branches() == ("team/topic", "trunk")
        assert copy.default_branch() == "trunk"
        with Repository(tmp_path / "source") as source:
            assert copy.incarnation != source.incarnation
        with Repository(tmp_path / "deep" / "er" / "copy") as again:
            assert again.incarnation == copy.incarnation
    assert os.listdir(tmp_path / "deep" / "er") == ["copy"]


def test_a_shallow_checkout_with_nothing_but_a_detached_head_becomes_a_repository_with_a_branch(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path / "origin")
    workshop.commit("main", {"a": "1"})
    tip = workshop.commit("main", {"a": "2"})
    (tmp_path / "checkout").mkdir()
    path = tmp_path / "checkout"
    git(path, "init", "-q")
    git(path, "fetch", "-q", "--depth=1", f"file://{tmp_path / 'origin'}", tip)
    git(path, "checkout", "-q", tip)
    with clone_bare(path, tmp_path / "copy") as copy:
        assert copy.default_branch() == "main"
        assert copy.heads(["main"]) == {"main": tip}
        names = create_demo_branches(copy)
        heads = copy.heads([names.base, names.conflict])
        assert compare(copy, str(heads[names.base]), str(heads[names.conflict])).conflicts == 1


def test_a_source_without_a_commit_is_copied_and_has_no_default_branch(tmp_path: Path) -> None:
    Workshop(tmp_path / "source")
    with clone_bare(tmp_path / "source", tmp_path / "copy") as copy:
        assert copy.default_branch() is None
        with pytest.raises(BranchMissing):
            create_demo_branches(copy)


def test_what_git_tells_its_hooks_does_not_lead_a_copy_astray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tip = Workshop(tmp_path / "source").commit("main", {"a": "1"})
    Workshop(tmp_path / "other")
    for name in ("GIT_DIR", "GIT_OBJECT_DIRECTORY"):
        monkeypatch.setenv(name, str(tmp_path / "other"))
    with clone_bare(tmp_path / "source", tmp_path / "copy") as copy:
        assert copy.heads(["main"]) == {"main": tip}
        assert copy.commit(tip)


@pytest.mark.parametrize(
    "source",
    [
        "",
        " ",
        "a\nb",
        "with\x00nul",
        "ftp://example.invalid/r",
        "ext::https://x",
        "https://user:hunter2@example.invalid/r.git",
        "https://hunter2@example.invalid/r.git",
        "ssh://git:hunter2@example.invalid/r.git",
        "https://[hunter2",
    ],
)
def test_a_source_that_can_not_be_one_is_refused_and_no_credential_is_repeated(tmp_path: Path, source: str) -> None:
    with pytest.raises((UsageError, CloneFailed)) as refused:
        clone_bare(source, tmp_path / "copy")
    assert "hunter2" not in str(refused.value)
    assert os.listdir(tmp_path) == []


def test_a_path_where_nothing_is_can_not_be_copied(tmp_path: Path) -> None:
    with pytest.raises(RepositoryMissing):
        clone_bare(tmp_path / "nothing", tmp_path / "copy")


def test_a_copy_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    for source in (str(tmp_path / "plain"), f"file://{tmp_path}/nothing", "-u:y"):
        with pytest.raises(CloneFailed) as refused:
            clone_bare(source, tmp_path / "copy")
        assert refused.value.code == "clone_failed"
        assert "fatal" not in str(refused.value)
    assert os.listdir(tmp_path) == ["plain"]


def test_a_copy_never_replaces_what_is_there(tmp_path: Path) -> None:
    Workshop(tmp_path / "source").commit("main", {"a": "1"})
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "mine").write_text("keep")
    with pytest.raises(CloneFailed, match="something already"):
        clone_bare(tmp_path / "source", tmp_path / "copy")
    assert (tmp_path / "copy" / "mine").read_text() == "keep"
    (tmp_path / "empty").mkdir()
    clone_bare(tmp_path / "source", tmp_path / "empty").close()


def test_a_copy_stops_at_its_deadline_with_everything_that_it_started(tmp_path: Path) -> None:
    # A repository whose upload command never answers: git waits, and so would we.
    Workshop(tmp_path / "source").commit("main", {"a": "1"})
    (tmp_path / "bin").mkdir()
    started = tmp_path / "started"
    fake = tmp_path / "bin" / "git-upload-pack"
    fake.write_text(f"#!/bin/sh\necho $$ > {started}\nexec sleep 60\n")
    fake.chmod(0o755)
    environment = pytest.MonkeyPatch()
    environment.setenv("GIT_EXEC_PATH", _exec_path_with(tmp_path / "bin"))
    try:
        with pytest.raises(CloneFailed, match="longer than"):
            clone_bare(f"file://{tmp_path / 'source'}", tmp_path / "copy", timeout_seconds=2.0)
    finally:
        environment.undo()
    assert not (tmp_path / "copy").exists()
    process, deadline = Path("/proc") / started.read_text().strip() / "stat", time.monotonic() + 10
    while process.exists() and ") Z " not in process.read_text():
        assert time.monotonic() < deadline, "the command that git started is still running"
        time.sleep(0.01)


def _exec_path_with(folder: Path) -> str:
    """Git's own commands, but for those in the folder."""
    real = Path(subprocess.run(["git", "--exec-path"], capture_output=True, text=True, check=True).stdout.strip())
    for command in real.iterdir():
        if not (folder / command.name).exists():
            (folder / command.name).symlink_to(command)
    return str(folder)


# -- commits and branches ---------------------------------------------------------------------------------------------


def test_a_commit_sets_one_file_and_nothing_else(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path / "r")
    first = workshop.commit("main", {"a": "a", "d/e/f": "f", "d/g": "g"})
    with Repository(tmp_path / "r") as repository:
        commit_file(repository, "main", "d/e/new", "new\n", "A new file")
        commit_file(repository, "main", "d/e/f", "changed\n", "A changed file")
        second = commit_file(repository, "main", "x/y/z", "z\n", "A file in new folders")
        assert repository.heads(["main"]) == {"main": second}
        assert compare(repository, first, second).ahead == 3
    assert git(tmp_path / "r", "diff", "--name-status", first, "main").splitlines() == [
        "M\td/e/f",
        "A\td/e/new",
        "A\tx/y/z",
    ]
    assert git(tmp_path / "r", "show", "main:d/e/f") == "changed"
    assert git(tmp_path / "r", "log", "-1", "--format=%an <%ae> %s") == (
        "Dramaturg demo <demo@example.invalid> A file in new folders"
    )
    assert git(tmp_path / "r", "fsck", "--strict") == ""


@pytest.mark.parametrize(
    "path", ["", "/a", "a//b", "a/../b", "./a", ".git/config", "d/.GIT/x", "a/", "a/b", "d", "\x00"]
)
def test_a_path_that_can_not_be_a_files_is_refused(tmp_path: Path, path: str) -> None:
    tip = Workshop(tmp_path / "r").commit("main", {"a": "a", "d/e": "e"})
    with Repository(tmp_path / "r") as repository:
        with pytest.raises(UsageError):
            commit_file(repository, "main", path, "text", "message")
        assert repository.heads(["main"]) == {"main": tip}


@pytest.mark.parametrize("text", ["\ud800", "a\x00b"])
def test_text_that_git_can_not_keep_is_refused(tmp_path: Path, text: str) -> None:
    Workshop(tmp_path / "r").commit("main", {"a": "a"})
    with Repository(tmp_path / "r") as repository:
        for arguments in ((text, "message"), ("text", text)):
            with pytest.raises(UsageError):
                commit_file(repository, "main", "b", *arguments)


def test_commits_need_a_branch_and_a_bare_repository(tmp_path: Path) -> None:
    Workshop(tmp_path / "bare").commit("main", {"a": "a"})
    tip = Workshop(tmp_path / "checkout", bare=False).commit("main", {"a": "a"})
    with Repository(tmp_path / "bare") as bare, pytest.raises(BranchMissing):
        commit_file(bare, "nowhere", "b", "b", "message")
    with Repository(tmp_path / "checkout") as checkout:
        with pytest.raises(BranchRefused):
            commit_file(checkout, "main", "b", "b", "message")
        with pytest.raises(BranchRefused):
            create_demo_branches(checkout)
        assert checkout.heads(["main"]) == {"main": tip}
        assert checkout.branches() == ("main",)


@pytest.mark.parametrize("name", ["main", "main/below", "team", "a b", "", "x\x00y", "a..b"])
def test_a_branch_that_can_not_be_made_is_refused(tmp_path: Path, name: str) -> None:
    workshop = Workshop(tmp_path / "r")
    tip = workshop.commit("main", {"a": "a"})
    workshop.branch("team/topic", tip)
    git(tmp_path / "r", "pack-refs", "--all")
    with Repository(tmp_path / "r") as repository:
        with pytest.raises(BranchRefused) as refused:
            create_branch(repository, name, tip)
        assert refused.value.code == "branch_refused"
        assert repository.branches() == ("main", "team/topic")
        with pytest.raises(CommitMissing):
            create_branch(repository, "fine", "0" * 40)


def test_a_branch_locked_by_another_writer_is_left_alone(tmp_path: Path) -> None:
    tip = Workshop(tmp_path / "r").commit("main", {"a": "a"})
    lock = tmp_path / "r" / "refs" / "heads" / "main.lock"
    lock.touch()
    with Repository(tmp_path / "r") as repository:
        with pytest.raises(BranchMoved, match="locked"):
            commit_file(repository, "main", "b", "b", "message")
        assert repository.heads(["main"]) == {"main": tip}
        lock.unlink()
        assert commit_file(repository, "main", "b", "b", "message")


# -- merging ----------------------------------------------------------------------------------------------------------


def _merge(repository: Repository, base: str, head: str, limits: Limits | None = None) -> str:
    return merge(repository, "main", base_commit=base, head_commit=head, message="Merge feature", at=AT, limits=limits)


def test_a_merge_is_a_commit_with_both_parents_and_the_changes_of_both(tmp_path: Path) -> None:
    _, _, base, head = forked(tmp_path / "r")
    with Repository(tmp_path / "r") as repository:
        made = _merge(repository, base, head)
        assert repository.heads(["main", "feature"]) == {"main": made, "feature": head}
    assert git(tmp_path / "r", "log", "-1", "--format=%P %s %at", made) == (
        f"{base} {head} Merge feature {int(AT.timestamp())}"
    )
    assert git(tmp_path / "r", "show", f"{made}:a.txt") == "ONE\ntwo\nTHREE"
    assert git(tmp_path / "r", "ls-tree", "-r", "--name-only", made).split() == [
        "a.txt",
        "d.txt",
        "docs/c.txt",
        "docs/e.txt",
    ]
    assert git(tmp_path / "r", "fsck", "--strict") == ""


def test_a_head_that_is_only_ahead_is_merged_by_a_commit_too(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path / "r")
    base = workshop.commit("main", {"a": "1"})
    head = workshop.commit("feature", {"a": "2"}, parents=[base])
    with Repository(tmp_path / "r") as repository:
        made = _merge(repository, base, head)
    assert git(tmp_path / "r", "log", "-1", "--format=%P", made) == f"{base} {head}"


def test_a_merge_repeated_changes_nothing_and_answers_the_same(tmp_path: Path) -> None:
    _, _, base, head = forked(tmp_path / "r")
    with Repository(tmp_path / "r") as repository:
        made = _merge(repository, base, head)
        assert _merge(repository, base, head) == made
        later = commit_file(repository, "main", "later", "later", "Later")
        assert _merge(repository, base, head) == made
        assert repository.heads(["main"]) == {"main": later}


def test_a_merge_into_a_branch_that_has_moved_is_refused(tmp_path: Path) -> None:
    _, _, base, head = forked(tmp_path / "r")
    with Repository(tmp_path / "r") as repository:
        moved = commit_file(repository, "main", "x", "x", "Moved")
        with pytest.raises(BranchMoved) as refused:
            _merge(repository, base, head)
        assert refused.value.code == "branch_moved"
        assert repository.heads(["main"]) == {"main": moved}
        assert _merge(repository, moved, head)


def test_a_merge_that_conflicts_has_nothing_to_merge_or_nothing_in_common_is_refused(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path / "r")
    fork = workshop.commit("main", {"a": "1\n"})
    base = workshop.commit("main", {"a": "2\n"})
    conflicting = workshop.commit("feature", {"a": "3\n"}, parents=[fork])
    strange = workshop.commit("strange", {"z": "z"})
    with Repository(tmp_path / "r") as repository:
        for head, reason in (
            (conflicting, r"1 path\(s\) conflict"),
            (fork, "nothing to merge"),
            (base, "nothing to merge"),
            (strange, "nothing in common"),
        ):
            with pytest.raises(MergeRefused, match=reason) as refused:
                _merge(repository, base, head)
            assert refused.value.code == "merge_refused"
        with pytest.raises(MergeRefused, match="too large"):
            _merge(repository, base, conflicting, Limits(content=0))
        assert repository.heads(["main"]) == {"main": base}


# -- the demo ---------------------------------------------------------------------------------------------------------


def _demo_tells(copy: Repository) -> None:
    names = create_demo_branches(copy)
    heads = copy.heads([names.base, names.ahead, names.behind, names.conflict])
    base, *rest = (str(heads[name]) for name in (names.base, names.ahead, names.behind, names.conflict))
    seen = [(found.ahead, found.behind, found.conflicts) for found in (compare(copy, base, head) for head in rest)]
    assert seen == [(1, 0, 0), (0, 1, 0), (1, 1, 1)]


@pytest.mark.parametrize("commits", [1, 5])
def test_demo_branches_are_ahead_behind_and_in_conflict_in_any_repository(tmp_path: Path, commits: int) -> None:
    workshop = Workshop(tmp_path / "source", bare=False)
    for number in range(commits):
        tip = workshop.commit("main", {f"f{number}": "x", "dramaturg-demo": "a file of this name"})
    with clone_bare(tmp_path / "source", tmp_path / "copy") as copy:
        _demo_tells(copy)
        assert copy.heads(["main"]) == {"main": tip}
        before = copy.heads(copy.branches())
        _demo_tells(copy)
        assert copy.heads(copy.branches()) == before
    with Repository(tmp_path / "source") as source:
        assert source.branches() == ("main",)
    # A demo of a demo, in which everything was merged.
    git(tmp_path / "copy", "symbolic-ref", "HEAD", "refs/heads/dramaturg/base")
    with clone_bare(tmp_path / "copy", tmp_path / "second") as second:
        git(tmp_path / "second", "branch", "-m", "dramaturg/base", "trunk")
        for name in ("ahead", "behind", "conflict"):
            git(tmp_path / "second", "branch", "-D", f"dramaturg/{name}")
        _demo_tells(second)


def test_a_demo_branch_that_exists_stays_and_one_that_is_missing_comes_back(tmp_path: Path) -> None:
    Workshop(tmp_path / "r").commit("main", {"a": "1"})
    with Repository(tmp_path / "r") as repository:
        names = create_demo_branches(repository)
        pushed = commit_file(repository, names.ahead, "more", "more", "More")
        git(tmp_path / "r", "branch", "-D", names.conflict)
        create_demo_branches(repository)
        heads = repository.heads([names.base, names.ahead, names.conflict])
        assert heads[names.ahead] == pushed
        assert compare(repository, str(heads[names.base]), str(heads[names.conflict])).conflicts == 1


def test_a_branch_that_stands_in_the_demos_way_is_named(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path / "r")
    workshop.branch("dramaturg", workshop.commit("main", {"a": "1"}))
    with Repository(tmp_path / "r") as repository, pytest.raises(BranchRefused, match="'dramaturg' stands in its way"):
        create_demo_branches(repository)
