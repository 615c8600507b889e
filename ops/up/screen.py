"""Where ``up`` shows itself: a live view in a terminal, plain lines everywhere else."""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Protocol, TextIO

from ops.cli.output import printable
from store import clock

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from ops.up.seen import Seen


class Screen(Protocol):
    """``lost`` turns True when nobody can see it any more: the terminal was closed, or a pipe's reader has gone."""

    lost: bool

    def say(self, text: str) -> None:
        """Something happened."""
        ...

    def hint(self, text: str, lines: Sequence[str]) -> None:
        """Something to be copied: ``lines`` stand alone and are never broken."""
        ...

    def show(self, seen: Seen) -> None:
        """How things are now."""
        ...

    def close(self) -> None:
        """Give the terminal back."""
        ...


class Lines:
    """A line for each thing that happens, with the time of day."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._before: Seen | None = None
        self.lost = False

    def say(self, text: str) -> None:
        if self.lost:
            return
        with _noticing_loss(self):
            self._out.write(f"{_time_of_day(clock.wall())}  {printable(text)}\n")
            self._out.flush()

    def hint(self, text: str, lines: Sequence[str]) -> None:
        self.say(text)
        if self.lost:
            return
        with _noticing_loss(self):
            self._out.write("".join(f"{printable(line)}\n" for line in lines))
            self._out.flush()

    def show(self, seen: Seen) -> None:
        from ops.up.seen import news

        for text in news(self._before, seen):
            self.say(text)
        self._before = seen

    def close(self) -> None:
        """Nothing is to be given back."""


class View:
    """The live view of ``view.py``; what happens is said in a few lines below it."""

    def __init__(self, console: Console, headline: str) -> None:
        from rich.live import Live

        self._live = Live(console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
        self._headline = headline
        self._said: deque[tuple[datetime, str]] = deque(maxlen=6)
        self._seen: Seen | None = None
        self.lost = False
        self._live.start()

    def say(self, text: str) -> None:
        self._said.append((clock.wall(), text))
        self._draw()

    def hint(self, text: str, lines: Sequence[str]) -> None:
        """Above the view, where it stays: the view itself forgets, and folds what is too long."""
        if self.lost:
            return
        with _noticing_loss(self):
            for line in (text, *lines):
                self._live.console.print(printable(line), soft_wrap=True, markup=False, highlight=False)

    def show(self, seen: Seen) -> None:
        self._seen = seen
        self._draw()

    def close(self) -> None:
        with _noticing_loss(self):
            self._live.stop()

    def _draw(self) -> None:
        if self.lost:
            return
        with _noticing_loss(self):
            self._live.update(self._view(), refresh=True)

    def _view(self) -> RenderableType:
        from ops.up.view import render

        said = [f"{_time_of_day(at)}  {text}" for at, text in self._said]
        return render(self._headline, self._seen, said)


@contextmanager
def _noticing_loss(screen: Lines | View) -> Iterator[None]:
    """A reader who has gone is no error: what runs must still be ended in good order."""
    try:
        yield
    except OSError:
        screen.lost = True
        # What is left in the buffers would be written again at exit, and fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _time_of_day(moment: datetime) -> str:
    return moment.astimezone().strftime("%H:%M:%S")
