"""Connections: how they are made, lent, given up, and kept apart over a fork.

A small pool of our own and not psycopg_pool: that one answers a refused connection only after its full timeout (10 s,
against 1 ms here), logs the texts of libpq's errors, and keeps four threads, which a fork loses. Connections carry no
state of a session (no SET, no LISTEN, no session locks), so a transaction-mode pooler may stand between; statements of
the hot path are prepared only where none does. No wait is endless: not for a connection, nor a lock, nor an answer.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import select
import threading
import weakref
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import psycopg
from psycopg import generators, sql
from psycopg.conninfo import conninfo_to_dict
from psycopg.errors import DuplicatePreparedStatement, FeatureNotSupported, InvalidSqlStatementName, error_from_result
from psycopg.pq import ExecStatus, Format, TransactionStatus
from psycopg.pq.abc import PGconn, PGresult

from store.clock import elapsed
from store.errors import Refused, StoreUnavailable, UsageError
from store.postgres.errors import worded

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

#: Seconds: an older connection is not used again, so that servers and routes may change; an idler one is closed.
LIFETIME: Final = 1800.0
IDLE: Final = 120.0

#: Seconds for the answer to one statement, and at most for one of the connections when all are in use.
PATIENCE: Final = 30.0
QUEUEING: Final = 10.0

#: A user who is called as our schema is would look for every table there first, and make new ones there.
NOT_OURS: Final = (
    "SELECT set_config('search_path', replace(current_setting('search_path'), '\"$user\", ', ''), true) "
    "WHERE current_user = 'dramaturg'"
)

#: The server ends a transaction of ours that waits for its own program this long: it holds locks, and keeps vacuum from
#: its work. These settings are the transaction's alone, and set in the round trip that begins it.
_BEGIN: Final = (
    "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = '10s'; "
    f"SET LOCAL idle_in_transaction_session_timeout = '5min'; {NOT_OURS}"
)


#: What a session says that does not know what we prepared in it, or that knows it otherwise: nothing was done then. The
#: last also stands for a result that a migration has given other columns.
UNPREPARED: Final = (InvalidSqlStatementName, DuplicatePreparedStatement, FeatureNotSupported)

#: The domains of this transaction, see ``schema/007``.
SCOPE: Final = sql.SQL("SELECT set_config('app.domain_allowlist', {}, true)")


class Overdue(psycopg.OperationalError):
    """The server did not answer in time."""


class Connection(psycopg.Connection[Any]):
    """A connection that gives up on a server that does not answer."""

    patience: float = PATIENCE
    scope: str | None = None  # see ``Connections``
    maker: int = 0  # the process that made it
    born: float = 0.0
    idle_since: float = 0.0

    def __init__(self, pgconn: PGconn) -> None:
        super().__init__(pgconn)
        self._names: dict[bytes, bytes | None] = {}  # statements asked before, and what they are called in the session
        self._own_session: bool | None = None  # None: not known yet

    def wait(self, gen: Generator[Any, Any, RV], *args: Any, **options: Any) -> RV:
        """As psycopg's, for ``patience`` seconds at most; then it is closed, for it may still answer, too late."""
        try:
            return super().wait(_until(gen, elapsed() + self.patience), *args, **options)
        except Overdue:
            with contextlib.suppress(psycopg.Error):
                self.cancel_safe(timeout=2.0)
            self.pgconn.finish()
            raise

    def ask(self, statement: bytes, parameters: Sequence[bytes | None]) -> PGresult:
        """The rows of one statement in binary; ``parameters`` for ``$1`` ... in text. A cursor's ``execute`` does the
        same for twice the time of the client. Outside of transactions it is prepared when it is asked a second time.
        Raises psycopg.Error."""
        if self.prepares:
            try:
                if (name := self._name_of(statement)) is not None:
                    self.pgconn.send_query_prepared(name, parameters, result_format=Format.BINARY)
                    return self._answer(ExecStatus.TUPLES_OK)
            except UNPREPARED:
                self._own_session = False
        self.pgconn.send_query_params(statement, parameters, result_format=Format.BINARY)
        return self._answer(ExecStatus.TUPLES_OK)

    @property
    def prepares(self) -> bool:
        """Whether a statement that is asked now may be prepared: in no transaction (which an error would end), and on a
        session of the server's that nobody else gets between our statements."""
        return self._own_session is not False and self.pgconn.transaction_status == TransactionStatus.IDLE

    def _name_of(self, statement: bytes) -> bytes | None:
        """The name of ``statement`` in the session, made if need be; None: ask it as it is."""
        if statement not in self._names:
            self._names[statement] = None
            return None
        if self._own_session is None:  # a pooler shows itself by the process that it names as the server's
            self.pgconn.send_query_params(b"SELECT pg_backend_pid()::text", None)
            told = self._answer(ExecStatus.TUPLES_OK).get_value(0, 0)
            self._own_session = told == str(self.pgconn.backend_pid).encode()
            if not self._own_session:
                return None
        name = self._names[statement]
        if name is None:
            name = b"dramaturg_" + hashlib.sha256(statement).hexdigest()[:16].encode()
            self.pgconn.send_prepare(name, statement)
            self._answer(ExecStatus.COMMAND_OK)
            self._names[statement] = name
        return name

    def _answer(self, wanted: ExecStatus) -> PGresult:
        results: list[PGresult] = self.wait(generators.execute(self.pgconn))
        for result in results:  # a server that dies of its answer gives two
            if result.status != wanted:
                raise error_from_result(result)
        return results[0]

    def idles(self) -> bool:
        """Whether it can be used: open, in no transaction, and as far as can be seen without asking, not closed by the
        other side (which has nothing to say to an idle client but that)."""
        if self.closed or self.pgconn.transaction_status != TransactionStatus.IDLE:
            return False
        poll = select.poll()
        poll.register(self.pgconn.socket, select.POLLIN)
        return not poll.poll(0)


def _until(gen: Generator[Any, Any, RV], deadline: float) -> Generator[Any, Any, RV]:
    """``gen`` of psycopg's, which is resumed now and then with nothing, until it is over or the time is up."""
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            if not ready and elapsed() > deadline:
                raise Overdue
            wanted = gen.send(ready)
    except StopIteration as done:
        result: RV = done.value
        return result


class Connections:
    """At most ``size`` connections to one database, made when they are wanted. Safe between threads and over forks."""

    def __init__(self, url: str, size: int, patience: float = PATIENCE, scope: str | None = None) -> None:
        """``patience``: seconds for one answer. ``scope``: domains that row-level security lets through, parted by
        commas, or ``*``; set for each transaction, so that a pooler may stand between. Connects to nothing. Raises
        UsageError for a URL that libpq can't read."""
        try:
            given = conninfo_to_dict(url)
        except psycopg.Error:
            raise UsageError(
                "the database's URL can't be read: it looks like postgresql://user:password@host:5432/database"
            ) from None
        self._parameters: dict[str, Any] = _DEFAULTS | given
        self._size = size
        self._patience = patience
        self._queueing = min(patience, QUEUEING)
        self.scope = scope
        self._begin = _BEGIN if scope is None else f"{_BEGIN}; {SCOPE.format(sql.Literal(scope)).as_string()}"
        self._forget()
        _POOLS.add(self)

    def _forget(self) -> None:
        """Begin with no connection, and with locks that nobody holds: at birth, and in the child of a fork."""
        self._lock = threading.Lock()
        self._room = threading.BoundedSemaphore(self._size)
        self._idle: list[Connection] = []
        self._closed_at = 0.0

    def connect(self, *, patience: float | None = None) -> Connection:
        """A connection outside the pool, which the caller closes; ``patience`` for one of its own."""
        with worded():
            connection = Connection.connect(**self._parameters, autocommit=True, prepare_threshold=None)
        connection.patience = self._patience if patience is None else patience
        connection.scope = self.scope
        connection.maker, connection.born = os.getpid(), elapsed()
        _OPEN.add(connection)
        return connection

    @contextmanager
    def lend(self) -> Iterator[Connection]:
        """A connection in autocommit."""
        room = self._room
        if not room.acquire(timeout=self._queueing):
            raise StoreUnavailable(
                f"all {self._size} connections to Postgres were in use for {self._queueing:.0f} s: keep transactions "
                "short, or allow more of them"
            )
        try:
            connection = self._take()
            try:
                yield connection
            finally:
                self._give(connection)
        finally:
            room.release()

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """A connection in a transaction, which is committed at the end of the block and rolled back when it raises."""
        with self.lend() as connection:
            with worded():
                connection.execute(self._begin)
            try:
                yield connection
            except BaseException:
                with contextlib.suppress(psycopg.Error):
                    connection.rollback()
                raise
            if connection.pgconn.transaction_status != TransactionStatus.INTRANS:
                with worded():
                    connection.rollback()
                raise Refused(
                    "a statement of this transaction failed, or ended it: what was not committed then was rolled back"
                )
            with worded():
                connection.commit()

    def close(self) -> None:
        """Close what is idle now, and what is lent when it comes back."""
        with self._lock:
            self._closed_at = elapsed()
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _take(self) -> Connection:
        while True:
            with self._lock:
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                return self.connect()
            if elapsed() - connection.born < LIFETIME and connection.idles():
                return connection
            connection.close()

    def _give(self, connection: Connection) -> None:
        if connection.maker != os.getpid():
            return  # lent by the parent of a fork, in whose child we are: it is not ours to close
        now, spare = elapsed(), [connection]
        if connection.born > self._closed_at and connection.idles():
            connection.idle_since = now
            with self._lock:
                fresh = [other for other in self._idle if now - other.idle_since < IDLE]
                spare = [other for other in self._idle if other not in fresh]
                self._idle = [*fresh, connection]
        for other in spare:
            other.close()


_POOLS: Final[weakref.WeakSet[Connections]] = weakref.WeakSet()
_OPEN: Final[weakref.WeakSet[Connection]] = weakref.WeakSet()

#: What the child of a fork inherited: kept, so that nothing of it is ever closed or collected there.
_INHERITED: Final[list[Connection]] = []


def _let_go() -> None:
    """In the child of a fork: turn our copies of the parent's sockets to nowhere. So nothing can be sent on them, and
    the server sees when the parent ends; it would not while somebody else holds them open."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for connection in list(_OPEN):
        _INHERITED.append(connection)
        if not connection.closed:
            os.dup2(nowhere, connection.pgconn.socket)
    os.close(nowhere)
    _OPEN.clear()
    for pool in list(_POOLS):
        pool._forget()


os.register_at_fork(after_in_child=_let_go)
