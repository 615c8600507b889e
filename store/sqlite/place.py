"""Where the database lies: from a URL to a file, and which file that is right now."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from store.errors import StoreUnavailable, UsageError

_SCHEME = "sqlite:///"

#: What tells one file from another that took its name: device and inode.
FileId = tuple[int, int]


def path_of(url: str) -> Path:
    """The file that ``sqlite:///relative/path.db`` or ``sqlite:////absolute/path.db`` names, as an absolute path.

    The path is taken as it stands; there are no options and no escapes. Raises UsageError.
    """
    name = url.removeprefix(_SCHEME)
    if name == url or not name.strip("/") or name.endswith("/"):
        raise UsageError("a SQLite URL is sqlite:///relative/path.db or sqlite:////absolute/path.db")
    if name == ":memory:":
        raise UsageError("a database in memory can't be shared by processes: name a file, sqlite:///jobs.db")
    if "?" in name or "\x00" in name:
        raise UsageError("a SQLite URL takes a path and nothing else: remove the question mark and what follows")
    return Path(name).absolute()


def make_directory(path: Path) -> None:
    """The directory of ``path``, readable by its owner alone where it is new. Raises StoreUnavailable."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreUnavailable(
            f"the directory {path.parent} can't be made ({_name(error)}): "
            "make it yourself and let this user write to it, or name another place"
        ) from None


def file_id(path: Path) -> FileId | None:
    """Which file ``path`` is, None where there is none. Raises StoreUnavailable where that can't be seen."""
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise StoreUnavailable(
            f"{path} can't be reached ({_name(error)}): let this user enter its directory, or name another place"
        ) from None
    return found.st_dev, found.st_ino


def _name(error: OSError) -> str:
    return errno.errorcode.get(error.errno or 0, type(error).__name__)
