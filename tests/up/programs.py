"""``dramaturg up`` as a process of its own, watched from outside."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def becomes(condition: Callable[[], object], seconds: float = 60.0) -> bool:
    """Whether it becomes true in that time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def lives(pid: int) -> bool:
    """Whether the process is there, and more than an entry that nobody has collected."""
    try:
        return _stat(pid)[0] not in ("Z", "X")
    except OSError:
        return False


def descendants(pid: int) -> set[int]:
    """All processes that it started, and those that they started."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents.setdefault(int(_stat(int(entry.name))[1]), []).append(int(entry.name))
            except OSError:
                continue  # it ended meanwhile
    found: set[int] = set()
    waiting = [pid]
    while waiting:
        children = parents.get(waiting.pop(), [])
        found.update(children)
        waiting += children
    return found


def _stat(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()


def environment(home: Path, **settings: str) -> dict[str, str]:
    """This process' environment without any settings of ours, but for these."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("JOBS_", "WORKER_", "PROPOSAL_"))}
    return {**kept, "JOBS_HOME": str(home), "PYTHONPATH": str(ROOT), **settings}


class Program:
    """A running ``up`` in a session of its own; ``started`` are all processes below it that were seen."""

    def __init__(self, home: Path, standing_in: Path, words: tuple[str, ...], settings: dict[str, str]) -> None:
        self._out = home.parent / f"{home.name}-{time.monotonic_ns()}.out"
        with self._out.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "ops.cli.main", "up", *words],
                cwd=standing_in,
                env=environment(home, **settings),
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.started: set[int] = set()

    @property
    def said(self) -> str:
        """What it has printed so far."""
        return self._out.read_text(encoding="utf-8")

    def says(self, *patterns: str, seconds: float = 60.0) -> None:
        """Wait until it has said all of these; fails if it ends before, or does not."""

        def heard() -> bool:
            self.started |= descendants(self.process.pid)
            said = self.said
            return all(re.search(pattern, said) for pattern in patterns)

        becomes(lambda: heard() or self.process.poll() is not None, seconds)
        assert heard(), f"waited for {patterns}; it said:\n{self.said}"

    def signal(self, number: signal.Signals) -> None:
        """As ``kill`` does: to the process alone."""
        self.process.send_signal(number)

    def ends(self, seconds: float = 60.0) -> int:
        """Its exit code."""
        deadline = time.monotonic() + seconds
        while self.process.poll() is None and time.monotonic() < deadline:
            self.started |= descendants(self.process.pid)
            time.sleep(0.05)
        return self.process.wait(1)

    def leaves_nothing(self, seconds: float = 60.0) -> bool:
        """Whether all that it started ends in that time."""
        return becomes(lambda: not any(map(lives, self.started)), seconds)


@contextmanager
def up(home: Path, *words: str, standing_in: Path = ROOT, **settings: str) -> Iterator[Program]:
    """Start one; whatever is left of it at the end is killed."""
    program = Program(home, standing_in, words, settings)
    try:
        yield program
    finally:
        if program.process.poll() is None:
            program.started |= descendants(program.process.pid)
            program.process.kill()
            program.process.wait(10)
            if not program.leaves_nothing(20):
                for pid in filter(lives, program.started):
                    os.kill(pid, signal.SIGKILL)
