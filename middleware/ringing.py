"""Ringing for workers beside whoever wakes: a hint that is never needed, so nobody waits for it.

A wake is durable once its transaction commits; offering the row in Valkey only spares it the scheduler's next look. One
thread offers what has gathered since it last did: a round trip for many wakes instead of one for each.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

#: Hints that wait at most; beyond that the oldest go, and their rows are found by the scheduler.
WAITING_MOST = 10_000

#: Seconds between two rounds: the first hint goes at once, and what a burst adds goes together.
REST = 0.002

#: Seconds that a process which ends waits for its last hints.
LAST_SECONDS = 1.0


class Hint(NamedTuple):
    """A row that is due."""

    queue: str
    id: str
    priority: int


class Ringing:
    """Hands hints to ``offer``, in a thread of its own. Safe to share between threads; a forked child begins anew."""

    def __init__(self, offer: Callable[[list[Hint]], None]) -> None:
        """``offer`` tells its own failures and raises nothing."""
        self._offer = offer
        self._begin()
        _EVERY.add(self)

    def _begin(self) -> None:
        self._process = os.getpid()
        self._waiting: deque[Hint] = deque(maxlen=WAITING_MOST)
        self._changed = threading.Condition()
        self._offering = False
        self._closing = False
        self._thread: threading.Thread | None = None

    def put(self, hints: Iterable[Hint]) -> None:
        """Ring for these rows soon; returns at once."""
        if os.getpid() != self._process:
            self._begin()
        with self._changed:
            self._waiting.extend(hints)
            self._closing = False
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="ringing", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def flush(self, seconds: float) -> bool:
        """Wait until all that was put has been offered; False if ``seconds`` weren't enough."""
        if os.getpid() != self._process:
            return True
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting and not self._offering, seconds)

    def close(self, seconds: float) -> None:
        """Flush, and end the thread; a later ``put`` begins another."""
        self.flush(seconds)
        with self._changed:
            self._closing = True
            self._changed.notify_all()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._offering = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._waiting or self._closing)
                if not self._waiting:
                    self._thread = None
                    return
                hints = list(self._waiting)
                self._waiting.clear()
                self._offering = True
            self._offer(hints)
            time.sleep(REST)


_EVERY: weakref.WeakSet[Ringing] = weakref.WeakSet()


@atexit.register
def _last_hints() -> None:
    for ringing in list(_EVERY):
        ringing.flush(LAST_SECONDS)
