from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

IDENTITY = {
    "GIT_AUTHOR_NAME": "Someone",
    "GIT_AUTHOR_EMAIL": "someone@example.invalid",
    "GIT_COMMITTER_NAME": "Someone",
    "GIT_COMMITTER_EMAIL": "someone@example.invalid",
    "GIT_CONFIG_GLOBAL": "/dev/null",
}


def git(folder: Path, *words: str) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    subprocess.run(["git", *words], cwd=folder, env=kept | IDENTITY, check=True, capture_output=True)


@pytest.fixture
def empty_repository(tmp_path: Path) -> Path:
    folder = tmp_path / "empty"
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch", "main")
    return folder


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A checkout with a single commit."""
    folder = tmp_path / "project"
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch", "main")
    (folder / "readme").write_text("hello\n")
    git(folder, "add", "readme")
    git(folder, "commit", "--quiet", "--message", "first")
    return folder


@pytest.fixture
def in_git() -> Callable[..., None]:
    return git
