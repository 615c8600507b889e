"""Which repository ``up`` takes, and what it refuses before anything is made."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ops.up.source import find_source
from store.errors import UsageError
from tests.up.programs import ROOT, environment


def test_the_checkout_around_where_one_stands_is_taken(repository: Path) -> None:
    below = repository / "a" / "b"
    below.mkdir(parents=True)
    assert find_source(None, below).origin == str(repository)
    assert find_source(None, below) == find_source(str(repository), Path("/"))


def test_a_bare_repository_is_taken(repository: Path, tmp_path: Path, in_git: Callable[..., None]) -> None:
    in_git(tmp_path, "clone", "--quiet", "--bare", str(repository), "bare.git")
    assert find_source(str(tmp_path / "bare.git"), Path("/")).origin == str(tmp_path / "bare.git")


def test_a_detached_head_without_a_branch_is_taken(repository: Path, in_git: Callable[..., None]) -> None:
    in_git(repository, "checkout", "--quiet", "--detach")
    in_git(repository, "branch", "--quiet", "--delete", "--force", "main")
    assert find_source(str(repository), Path("/")).origin == str(repository)


@pytest.mark.parametrize("url", ["https://example.invalid/a/b.git", "git@example.invalid:a/b.git", "file:///no/such"])
def test_a_url_is_for_git_to_judge(url: str) -> None:
    assert find_source(url, Path("/")).origin == url


def test_copies_of_different_origins_never_share_a_folder() -> None:
    origins = ["https://example.invalid/a.git", "https://example.invalid/b/a.git", "ssh://example.invalid/a"]
    folders = {find_source(origin, Path("/")).folder for origin in origins}
    assert len(folders) == 3
    assert all(re.fullmatch(r"a-[0-9a-f]{8}\.git", folder) for folder in folders)


def test_what_git_tells_its_hooks_does_not_mislead(
    repository: Path, empty_repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_DIR", str(empty_repository / ".git"))
    assert find_source(str(repository), Path("/")).origin == str(repository)


def test_a_plain_folder_inside_a_checkout_is_no_repository_when_it_is_named(repository: Path) -> None:
    (repository / "docs").mkdir()
    with pytest.raises(UsageError, match="not a git repository"):
        find_source(str(repository / "docs"), Path("/"))


@pytest.mark.parametrize("repo", ["", "  ", "a\x00b", "a\x1b[0m", "a\udcff", "/no/such/place"])
def test_what_can_not_be_a_repository_is_refused(repo: str) -> None:
    with pytest.raises(UsageError):
        find_source(repo, Path("/"))


def refusal(home: Path, standing_in: Path, *words: str) -> str:
    """What ``up`` says on standard error as it refuses; it must have made nothing."""
    done = subprocess.run(
        [sys.executable, "-m", "ops.cli.main", "up", *words],
        cwd=standing_in,
        env=environment(home),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert not home.exists()
    return done.stderr


def test_up_outside_of_any_repository_says_so_in_one_line(tmp_path: Path) -> None:
    said = refusal(tmp_path / "home", tmp_path)
    assert "--repo" in said
    assert len(said.splitlines()) == 1


def test_up_refuses_an_empty_repository_and_changes_nothing(tmp_path: Path, empty_repository: Path) -> None:
    said = refusal(tmp_path / "home", ROOT, "--repo", str(empty_repository))
    assert "no commit" in said
    assert len(said.splitlines()) == 1


SECRETIVE = (
    "https://user:hunter2@host.invalid/x.git",
    "https://hunter2@host.invalid/x.git",
    "ssh://git:hunter2@host.invalid/x.git",
    "user:hunter2@host.invalid/x.git",
    "ftp://user:hunter2@host.invalid/x",
)


@pytest.mark.parametrize("url", SECRETIVE)
def test_a_url_with_a_credential_is_refused_and_never_repeated(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        find_source(url, Path("/"))
    assert "hunter2" not in str(caught.value)


def test_up_never_prints_a_credential(tmp_path: Path) -> None:
    said = refusal(tmp_path / "home", tmp_path, "--repo", SECRETIVE[0])
    assert "credential helper" in said
    assert "hunter2" not in said
