"""The change signal: SQLite has no messages, but tells cheaply that somebody else has committed."""

from __future__ import annotations

import sqlite3
import threading
from typing import Final

from store import clock
from store.sqlite.connections import Connections

#: Seconds between two looks; one takes some microseconds.
_PERIOD: Final = 0.02


class Changes:
    """Commits by any other connection, of this process or another, whatever they wrote."""

    def __init__(self, connections: Connections) -> None:
        """``connections`` of its own: only what other connections commit can be seen."""
        self._connections = connections
        self._closed = threading.Event()
        self._seen = self._look()

    def wait(self, timeout: float) -> bool:
        """Block until something changed since the last call or ``timeout`` seconds went by; True: look now.

        Raises StoreUnavailable.
        """
        deadline = clock.elapsed() + timeout
        while not self._closed.is_set():
            now = self._look()
            if self._closed.is_set():
                break
            if now != self._seen:
                self._seen = now
                return True
            left = deadline - clock.elapsed()
            if left <= 0:
                return False
            self._closed.wait(min(left, _PERIOD))
        self._connections.close()  # a look that was under way may have opened it again
        return False

    def close(self) -> None:
        """Let go of the connection; a wait that is going on ends."""
        self._closed.set()
        self._connections.close()

    def _look(self) -> tuple[sqlite3.Connection, int]:
        """The version is one connection's own: another connection counts as a change."""
        return self._connections.read(
            lambda cursor: (cursor.connection, cursor.execute("PRAGMA data_version").fetchone()[0])
        )
