"""The change signal: LISTEN on a connection of its own, where that can be heard."""

from __future__ import annotations

import threading
from typing import Final

import psycopg

from store.clock import elapsed
from store.errors import DramaturgError
from store.postgres.connections import Connection, Connections
from store.postgres.errors import worded
from store.postgres.values import rows

CHANNEL: Final = "dramaturg_wake"

#: Seconds between two attempts to get a lost connection back.
RETRY: Final = 1.0

#: Seconds after which whoever listens looks whether it was closed meanwhile.
GLANCE: Final = 0.25


class Changes:
    """See ``contract.Signal``. One thread waits; any may close.

    Behind a transaction-mode pooler a LISTEN would be left to a stranger's session, so there is none: then ``wait``
    only lets the time pass. A connection that was lost is sought again beside the waiting, as that may take longer.
    """

    def __init__(self, connections: Connections) -> None:
        """Connects at once, so that nothing is missed from here on. Raises StoreUnavailable; a connection that is lost
        later is no error."""
        self._connections = connections
        self._turn = threading.Lock()  # held by who waits
        self._stirred = threading.Event()  # closed, or listening anew
        self._closed = False
        self._deaf = False
        self._connection: Connection | None = None
        self._seeker: threading.Thread | None = None
        self._sought_at = elapsed()
        self._connection = self._listener()

    def wait(self, timeout: float) -> bool:
        """As the contract says; what piled up is one answer, and listening anew is one too: something may have been
        missed."""
        deadline = elapsed() + timeout
        with self._turn:
            while not self._closed:
                left = max(deadline - elapsed(), 0.0)
                if self._connection is not None and not self._stirred.is_set():
                    heard = self._listen(min(left, GLANCE))
                else:
                    self._seek_beside()
                    heard = self._stirred.wait(left if self._deaf else min(left, RETRY))
                    if heard:
                        self._stirred.clear()
                if heard or left == 0.0:
                    return heard and not self._closed
        return False

    def close(self) -> None:
        """As the contract says; who waits is let go."""
        self._closed = True
        self._stirred.set()
        with self._turn:
            if self._seeker is not None:
                self._seeker.join()
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _listen(self, seconds: float) -> bool:
        connection = self._connection
        assert connection is not None
        try:
            heard = any(True for _ in connection.notifies(timeout=seconds, stop_after=1))
            return heard or any(True for _ in connection.notifies(timeout=0))
        except psycopg.Error:
            connection.close()
            self._connection = None
            return False

    def _seek_beside(self) -> None:
        now = elapsed()
        busy = self._connection is not None or (self._seeker is not None and self._seeker.is_alive())
        if self._deaf or busy or now - self._sought_at < RETRY:
            return
        self._sought_at = now
        self._seeker = threading.Thread(target=self._seek, name="dramaturg-changes", daemon=True)
        self._seeker.start()

    def _seek(self) -> None:
        try:
            self._connection = self._listener()
        except DramaturgError:
            return  # not there yet: whoever waits here also looks once a second, and hears of it then
        self._stirred.set()

    def _listener(self) -> Connection | None:
        """A connection that listens; None where it would not be a session of our own that does."""
        connection = self._connections.connect()
        try:
            with worded():
                [(backend,)] = rows(connection, "SELECT pg_backend_pid()")
                self._deaf = backend != connection.info.backend_pid
                if not self._deaf:
                    rows(connection, f"LISTEN {CHANNEL}")
                    return connection
        except DramaturgError:
            connection.close()
            raise
        connection.close()
        return None
