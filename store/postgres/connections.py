"""Connections: how they are made, lent, given up, and kept apart over a fork.

A small pool of our own and not psycopg_pool: that one answers a refused connection only after its full timeout (10 s
against 1 ms here), logs the texts of libpq's errors, and keeps four threads, which a fork loses. Connections carry no
state of a session (no SET, no LISTEN, nothing prepared, no session locks), so a transaction-mode pooler may stand
between; and no wait is endless: for a connection, for a lock, or for an answer.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus

from store.clock import elapsed
from store.errors import DramaturgError, StoreUnavailable, UsageError
from store.postgres.errors import failure, worded

RV = TypeVar("RV")

#: What a URL does not say itself. TCP keeps asking whether the other side is there: 30 s of silence end a connection.
_DEFAULTS: Final[dict[str, Any]] = {
    "application_name": "dramaturg",
    "client_encoding": "utf8",
    "connect_timeout": 5,
    "keepalives": 1,
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}

#: Seconds after which a connection is not used again, so that servers and routes may change, and in which an idle one
#: is closed.
LIFETIME: Final = 1800.0
IDLE: Final = 120.0

#: Seconds for an answer to one statement.
PATIENCE: Final = 30.0

#: A transaction of ours that waits for its own program this long is ended by the server: it holds locks, and keeps
#: vacuum from its work. Settings of the transaction alone, in the round trip that begins it.
_BEGIN: Final = (
    "BEGIN ISOLATION LEVEL READ COMMITTED; "
    "SET LOCAL lock_timeout = '10s'; SET LOCAL idle_in_transaction_session_timeout = '5min'"
)


class Overdue(psycopg.OperationalError):
    """The server did not answer in time."""


class Connection(psycopg.Connection[Any]):
    """A connection that gives up on a server that does not answer, and is told from those of a forking parent."""

    #: Seconds for one answer; None: as long as it takes.
    patience: float | None = PATIENCE
    born: float = 0.0
    idle_since: float = 0.0

    def wait(self, gen: Generator[Any, Any, RV], *args: Any, **options: Any) -> RV:
        """As psycopg's, within ``patience``; afterwards the connection is closed, for what it may still answer."""
        if self.patience is None:
            return super().wait(gen, *args, **options)
        try:
            return super().wait(_until(gen, elapsed() + self.patience), *args, **options)
        except Overdue:
            with contextlib.suppress(psycopg.Error):
                self.cancel_safe(timeout=2.0)
            self.pgconn.finish()
            raise

    @property
    def usable(self) -> bool:
        """Idle, in no transaction, and (without asking) not closed by the other side."""
        if self.closed or self.pgconn.transaction_status is not TransactionStatus.IDLE:
            return False
        # Whoever has nothing to say to an idle client and says it all the same is closing the connection.
        with contextlib.closing(_poll()) as poll:
            poll.register(self.pgconn.socket)
            return not poll.poll(0)
