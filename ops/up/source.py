"""Which repository ``up`` works on: looked at with the git command before anything is made."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from store.errors import Unavailable, UsageError

_REMOTE = re.compile(r"[^/]*:")  # git's own rule: a colon before the first slash
_SCHEMES = ("file", "https", "http", "ssh", "git")
_SECRETIVE = re.compile(r"[^/@:]*:[^/@]+@")  # user:password@host/path, a URL that lost its scheme
_UNFIT = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_GIT_TIME = 20.0  # seconds

#: What a person can do about an empty repository; source and copy say the same.
EMPTY = "has no commit on any branch: make one first, or name another repository with --repo (make: REPO=)"


class Source(NamedTuple):
    """Where to copy from: a path that holds a repository with a commit, or a URL, which only git can judge."""

    origin: str
    folder: str  # the name that the copy gets


def find_source(repo: str | None, standing_in: Path) -> Source:
    """What ``--repo`` names, or the checkout around ``standing_in``. Changes nothing.

    Raises UsageError for what is no repository or has no commit and for a URL that holds a credential, and Unavailable
    without a git command.
    """
    if repo is not None and (not repo.strip() or _UNFIT.search(repo)):
        raise UsageError("--repo wants a path or a URL, in UTF-8 and without control characters")
    if repo is not None and _REMOTE.match(repo) and not Path(repo).expanduser().exists():
        _check_remote(repo)
        return _named(repo)
    path = standing_in if repo is None else Path(repo).expanduser().absolute()
    advice = "name one with --repo (make: REPO=)"
    # What the caller names is taken as it is; what he stands in may be any folder of a checkout.
    within = {} if repo is None else {"GIT_CEILING_DIRECTORIES": str(path.parent)}
    found = _git(path, within, "rev-parse", "--absolute-git-dir") if path.is_dir() else None
    if not found:
        where = f"{path} is not" if repo is not None else f"{path} does not stand in"
        raise UsageError(f"{where} a git repository that this user may read: {advice}")
    if not _git(path, within, "for-each-ref", "--count=1", "refs/heads") and not _git(
        path, within, "rev-parse", "--verify", "--quiet", "HEAD^{commit}"
    ):
        raise UsageError(f"{path} {EMPTY}")
    return _named(_git(path, within, "rev-parse", "--show-toplevel") or found)


def _check_remote(url: str) -> None:
    """Raises UsageError for what must not be repeated anywhere: the origin is shown, and read by others."""
    try:
        parts = urlsplit(url) if "://" in url else None
        password = None if parts is None else parts.password
    except ValueError:
        raise UsageError("--repo is a URL that can't be read") from None
    if parts is None:
        secretive = _SECRETIVE.match(url) is not None
    else:  # a token often stands where the user's name does
        secretive = password is not None or (parts.scheme in ("http", "https") and "@" in parts.netloc)
        if parts.scheme not in _SCHEMES:
            raise UsageError(f"--repo wants a path or a URL of {', '.join(_SCHEMES)}")
    if secretive:
        raise UsageError("the URL of --repo holds a credential: give it to git by a credential helper")


def _named(origin: str) -> Source:
    last = re.split(r"[/:]", origin.rstrip("/"))[-1].removesuffix(".git")
    name = re.sub(r"[^A-Za-z0-9._-]", "-", last).strip("-.")[:60] or "repository"
    mark = hashlib.sha256(origin.encode("utf-8")).hexdigest()[:8]
    return Source(origin, f"{name}-{mark}.git")


def _git(path: Path, extra: dict[str, str], *words: str) -> str:
    """The first line that git answers; empty where it refuses."""
    # What git sets for its hooks would point it at another repository than the one that is asked for.
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")} | extra
    try:
        done = subprocess.run(
            ["git", *words],  # noqa: S607 - the git that a person has on their PATH
            cwd=path,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_GIT_TIME,
            check=False,
        )
    except FileNotFoundError:
        raise Unavailable("the git command is missing: install git") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"git could not be asked about {path} ({type(error).__name__})") from None
    lines = os.fsdecode(done.stdout).splitlines() if done.returncode == 0 else []
    return lines[0] if lines else ""
