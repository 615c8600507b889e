"""Starting ``owner_program`` and watching what becomes of processes."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PATIENCE = 30.0


class Owner:
    """A running ``owner_program`` in a session of its own, as one at a terminal would be."""

    def __init__(self, kind: str, home: Path, manner: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.engines.owner_program", kind, str(home), manner],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        self._unread = b""

    def hear(self) -> dict[str, Any]:
        """The next line that it says."""
        assert self.process.stdout is not None
        deadline = time.monotonic() + PATIENCE
        while b"\n" not in self._unread:
            ready, _, _ = select.select([self.process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, "the owner said nothing"
            piece = os.read(self.process.stdout.fileno(), 65536)
            assert piece, f"the owner ended with {self.process.wait(PATIENCE)}"
            self._unread += piece
        line, self._unread = self._unread.split(b"\n", 1)
        said: dict[str, Any] = json.loads(line)
        return said

    def go_on(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")

    def end_input(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE)


@contextmanager
def owner(kind: str, home: Path, manner: str = "plain") -> Iterator[Owner]:
    started = Owner(kind, home, manner)
    try:
        yield started
    finally:
        started.kill()
        for pipe in (started.process.stdin, started.process.stdout):
            assert pipe is not None
            pipe.close()


def lives(pid: int) -> bool:
    """Whether the process exists and is more than an entry that nobody has collected."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])


def becomes_true(condition: Callable[[], bool], seconds: float = PATIENCE) -> bool:
    """Whether it becomes true in that time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def is_gone(pid: int, seconds: float = PATIENCE) -> bool:
    """Whether the process ends in that time."""
    return becomes_true(lambda: not lives(pid), seconds)
