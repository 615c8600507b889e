"""The directory that an ``up`` works in: one at a time, and for the demo an empty one."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ops.up.children import LEFTOVER
from ops.up.stopping import Stop
from store import clock
from store.errors import Refused

_LOCKS = ("logs/*.lock", "*.lock")


@contextmanager
def held(lock: Path) -> Iterator[None]:
    """Keep others out for the block, and for no longer than this process lives. Raises Refused."""
    descriptor = _opened(lock)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Refused(
                f"another `dramaturg up` runs on {lock.parent}: end it first, or choose another JOBS_HOME"
            ) from None
        yield
    finally:
        os.close(descriptor)


def emptied(home: Path, stop: Stop) -> Path:
    """A new, empty ``home``. Waits for what an earlier one left running. Raises Refused, StopAsked."""
    if home.is_symlink() or (home.exists() and not home.is_dir()):
        raise Refused(f"{home} is not a directory of ours: move it away, or choose another JOBS_HOME")
    for lock in [path for pattern in _LOCKS for path in home.glob(pattern)]:
        _wait_free(lock, stop)
    try:
        if home.exists():
            shutil.rmtree(home)
        home.mkdir(parents=True)
    except OSError as error:
        raise Refused(
            f"{home} can't be emptied ({type(error).__name__}): remove it, or choose another JOBS_HOME"
        ) from None
    return home


def _opened(lock: Path) -> int:
    try:
        return os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise Refused(f"{lock} can't be opened ({type(error).__name__}): choose another JOBS_HOME") from None


def _wait_free(lock: Path, stop: Stop) -> None:
    descriptor, deadline = _opened(lock), clock.elapsed() + LEFTOVER
    try:
        while True:
            stop.check()
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if clock.elapsed() > deadline:
                    raise Refused(f"what an earlier demo started still runs in {lock.parent}: end it first") from None
                stop.wait(0.2)
            else:
                return
    finally:
        os.close(descriptor)
