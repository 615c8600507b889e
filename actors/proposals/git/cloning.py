"""Our own bare copy of a repository, made by the git command.

By git and not by libgit2, because git brings what people have set up (credential helpers, proxies, ssh), copes with
shallow and borrowed checkouts, links a local repository's objects instead of packing them anew, and, being a child
process, can be stopped at a deadline.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
import uuid
from pathlib import Path
from urllib.parse import urlsplit

from actors.proposals.errors import CloneFailed, RepositoryMissing
from actors.proposals.git import incarnation
from actors.proposals.git.repository import HEADS, Repository, git_failures
from store.errors import UsageError

_SCHEMES = ("file", "https", "http", "ssh", "git")
_UNFIT = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")
_REMOTE = re.compile(r"[^/]*:")  # git's own rule: a colon before the first slash
_NOT_FOUND = 127  # env's exit code when there is no such command
# What git sets for its hooks: inherited (we may be started by one), it would point the child at another repository.
_HOOK_VARIABLES = (
    "GIT_DIR",
    "GIT_COMMON_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_PREFIX",
    "GIT_SHALLOW_FILE",
    "GIT_GRAFT_FILE",
    "GIT_NAMESPACE",
    "GIT_CONFIG",
)


def clone_bare(source: str | Path, target: Path, *, timeout_seconds: float = 600.0) -> Repository:
    """Copies a repository's branches and tags to ``target``, which appears complete or not at all, and opens it.

    ``source`` is a path or a URL (https, http, ssh, git, file, or ``host:path``). The copy has an incarnation of its
    own, and its HEAD names a branch whenever there is a commit at all: a source of which only a detached HEAD exists
    gets the branch ``main``. Raises UsageError for a source that can't be one, or a URL that holds a credential;
    RepositoryMissing for a path where nothing is; CloneFailed for everything else. Nothing is ever asked for."""
    origin = _checked(source)
    if target.exists() and not _is_empty_directory(target):
        raise CloneFailed(f"{target}: there is something already; delete it or choose another place")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        workshop = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    except OSError as error:
        raise CloneFailed(f"{target.parent}: can't be written ({type(error).__name__})") from error
    try:
        made = workshop / "repository"
        _run_git(origin, made, timeout_seconds)
        _settle(made)
        made.rename(target)
    except OSError as error:
        raise CloneFailed(f"{target}: can't be written ({type(error).__name__})") from error
    finally:
        shutil.rmtree(workshop, ignore_errors=True)
    return Repository(target)


def _checked(source: str | Path) -> str:
    text = str(source)
    if not text.strip() or _UNFIT.search(text):
        raise UsageError("the repository to copy needs a path or a URL, in UTF-8 and without control characters")
    if not _REMOTE.match(text) or Path(text).exists():
        path = Path(text).expanduser().absolute()
        if not path.exists():
            raise RepositoryMissing(f"{path}: there is nothing to copy")
        return str(path)
    if "://" in text:
        try:
            parts = urlsplit(text)
            secretive = parts.password is not None or (parts.scheme in ("http", "https") and "@" in parts.netloc)
        except ValueError as error:
            raise UsageError("the URL of the repository can't be read") from error
        if parts.scheme not in _SCHEMES:
            raise UsageError(f"a repository is copied by {', '.join(_SCHEMES)}, not by {parts.scheme!r}")
        if secretive:  # a token often stands where the user's name does
            raise UsageError("the URL of the repository holds a credential: give it to git by a credential helper")
    return text


def _run_git(origin: str, made: Path, timeout_seconds: float) -> None:
    command = ["env", *(word for name in _HOOK_VARIABLES for word in ("-u", name))]
    command += ["GIT_TERMINAL_PROMPT=0", f"GIT_ALLOW_PROTOCOL={':'.join(_SCHEMES)}"]
    command += ["git", "clone", "--quiet", "--bare", "--", origin, str(made)]
    # In a session of its own: it can't ask at the terminal, and its helpers die with it.
    child = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        code = child.wait(timeout_seconds)
    except subprocess.TimeoutExpired as error:
        raise CloneFailed(f"git clone took longer than {timeout_seconds:g} s and was stopped") from error
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
    if code == _NOT_FOUND:
        raise CloneFailed("the git command is missing: install git")
    if code != 0:
        raise CloneFailed(
            f"git clone ended with exit code {code}; try the same with git clone --bare, which says why (no access, no "
            "repository there, or one of another user that safe.directory doesn't allow)"
        )


def _settle(made: Path) -> None:
    """Pins the new copy's identity, and gives it a branch to stand on."""
    with Repository(made) as repository:
        raw = repository.raw
        with git_failures(made, "settling the new copy"):
            incarnation.pin(repository.git_dir, uuid.uuid4().hex)
            if raw.head_is_detached and not repository.branches(limit=1):
                raw.create_reference_direct(HEADS + "main", raw.head.target, False)
            branch = repository.default_branch()
            if branch is not None:
                raw.set_head(HEADS + branch)


def _is_empty_directory(path: Path) -> bool:
    return path.is_dir() and not any(path.iterdir())
