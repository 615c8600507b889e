"""Everything that ``up`` keeps running: engines and programs, started in order, looked after, ended in reverse."""

from __future__ import annotations

from collections.abc import Callable

from ops.up.children import LEFTOVER, Child, refuse_leftover, stop_all
from ops.up.engines import Engines
from ops.up.stopping import Stop
from store import clock
from store.errors import EngineFailed


class House:
    """``tell`` hears what happens by itself: something ended, something was started again."""

    def __init__(self, engines: Engines, stop: Stop, tell: Callable[[str], None]) -> None:
        self._engines, self._stop, self._tell = engines, stop, tell
        self.children: list[Child] = []

    def add(self, child: Child) -> None:
        """Start a program. Raises EngineFailed, StopAsked, and Refused where one of its name does not end."""
        deadline = clock.elapsed() + LEFTOVER
        while not child.start():
            self._stop.check()
            if clock.elapsed() > deadline:
                raise refuse_leftover(child)
        self.children.append(child)

    def tend(self) -> None:
        """Start again what ended by itself."""
        kept: list[Engines | Child] = [self._engines, *self.children]
        for one in kept:
            try:
                if news := one.tend():
                    self._tell(news)
            except EngineFailed as error:
                self._tell(str(error))

    def close(self) -> list[EngineFailed]:
        """End the programs side by side, then the engines; answers what could not be ended."""
        failed = stop_all(self.children)
        self.children = []
        return failed + self._engines.stop()
