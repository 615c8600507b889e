"""Being told to end: SIGINT, SIGTERM and SIGHUP ask for a graceful stop, once, however often they come."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

#: Seconds between two looks at whether a stop was asked for.
LOOK = 0.1


class StopAsked(BaseException):
    """Raised out of a long step, and only while ``Stop.breaking`` allows it."""


class Stop:
    """A flag and no more: a handler that waited for a lock could wait for its own thread."""

    def __init__(self) -> None:
        self.asked = False
        self._breaking = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        first, self.asked = not self.asked, True
        if first and self._breaking:
            raise StopAsked

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Take the signals over for the block."""
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        before: dict[signal.Signals, Any] = {number: signal.signal(number, self) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def breaking(self) -> Iterator[None]:
        """The block is left by StopAsked as soon as a stop is asked for: for steps that may take minutes."""
        self._breaking = True
        try:
            self.check()
            yield
        finally:
            self._breaking = False

    def check(self) -> None:
        """Raise StopAsked if a stop was asked for."""
        if self.asked:
            raise StopAsked

    def wait(self, seconds: float) -> bool:
        """Wait; True at once when a stop is asked for."""
        deadline = time.monotonic() + seconds
        while not self.asked and (left := deadline - time.monotonic()) > 0:
            time.sleep(min(LOOK, left))
        return self.asked
