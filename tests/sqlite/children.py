"""Other processes, as tests need them: forked, ended at the latest with the test, and never back in its code."""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable, Iterator

import pytest


class Child:
    """A forked process that runs ``work`` and ends with 0, or with 1 where that raises."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._waited = False
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                work()
                code = 0
            finally:
                if code:
                    traceback.print_exc()
                os._exit(code)

    def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        os.kill(self.pid, signal.SIGKILL)
        self.wait()

    def wait(self) -> int:
        """Wait for the end (pytest's timeout is the deadline) and answer the exit code, negative for a signal."""
        self._waited = True
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def clean(self) -> None:
        """End it if the test did not."""
        if not self._waited:
            self.kill()


Fork = Callable[[Callable[[], object]], Child]


@pytest.fixture
def fork() -> Iterator[Fork]:
    """Starts children; see ``Child``."""
    children: list[Child] = []

    def start(work: Callable[[], object]) -> Child:
        children.append(Child(work))
        return children[-1]

    yield start
    for child in children:
        child.clean()


class Line:
    """A pipe of lines from a child to its parent."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()

    def say(self, text: str = "") -> None:
        """One line; arrives even if the process is killed right after."""
        os.write(self._write, text.encode() + b"\n")

    def hear(self) -> str:
        """Wait for one line; empty at the end."""
        text = b""
        while (byte := os.read(self._read, 1)) not in (b"", b"\n"):
            text += byte
        return text.decode()

    def rest(self) -> list[str]:
        """All lines that are left, once every other process has let go of the pipe."""
        os.close(self._write)
        with os.fdopen(self._read, "rb") as file:
            return file.read().decode().splitlines()
