"""The verbs that work inside a transaction: one of ours, or a caller's own."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Final, TypeVar

from store.contract import Archived, Change, Document, Woken
from store.errors import Refused, UsageError
from store.events import Wake
from store.job import Job
from store.sqlite import archive, documents, finding, place, swaps, wakes
from store.sqlite.connections import Connections
from store.sqlite.errors import Raised, failure
from store.sqlite.rows import now_or

T = TypeVar("T")


class Transaction:
    """What ``Tx`` of the contract asks for. Nothing here commits or rolls back more than a part of its own."""

    def __init__(self, connection: sqlite3.Connection, connections: Connections) -> None:
        self._connection: Final = connection
        self._path: Final = connections.path
        self._process: Final = os.getpid()
        self._ended = False

    def wake(self, wakes_: Sequence[Wake], *, now: datetime | None = None) -> list[Woken]:
        """As ``Store.wake``, as part of this transaction."""
        return self._part(lambda cursor: wakes.wake(cursor, wakes_, now_or(now))) if wakes_ else []

    def swap(self, changes: Sequence[Change], *, now: datetime | None = None) -> list[bool]:
        """As ``Store.swap``, as part of this transaction."""
        return self._part(lambda cursor: swaps.swap(cursor, changes, now_or(now))) if changes else []

    def read(self, ids: Sequence[str]) -> list[Job | None]:
        """As ``Store.read``, as this transaction sees the rows."""
        if not ids:
            return []
        cursor = self._cursor()
        with self._translated():
            return finding.read_undecoded(cursor, ids)

    def put(self, document: Document, *, now: datetime | None = None) -> bool:
        """As ``Store.put``, as part of this transaction."""
        return self._part(lambda cursor: documents.put(cursor, document, now_or(now)))

    def archive(self, rows: Sequence[Archived], *, now: datetime | None = None) -> None:
        """As the contract says."""
        if rows:
            self._part(lambda cursor: archive.write(cursor, rows, now_or(now)))

    def execute(self, statement: str, parameters: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """Run one statement with ``:name`` parameters; answers all its rows. Raises StoreUnavailable and Refused."""
        cursor = self._cursor()
        with self._translated():
            return cursor.execute(statement, parameters or {}).fetchall()

    def end(self) -> None:
        """Refuse whatever comes now: the connection is somebody else's again."""
        self._ended = True

    def belongs_to(self, connections: Connections) -> bool:
        """Whether it is a transaction on the file of ``connections``."""
        return self._path == connections.path

    def _part(self, work: Callable[[sqlite3.Cursor], T]) -> T:
        """``work``, all of it or nothing, even where the caller catches what it raises and commits."""
        cursor = self._cursor()
        if not self._connection.in_transaction:
            with self._translated():  # as the driver would before an INSERT, but not before a savepoint
                cursor.execute(f"BEGIN {self._connection.isolation_level}")
        with self._translated():
            cursor.execute("SAVEPOINT dramaturg_part")
            try:
                answer = work(cursor)
            except BaseException:
                if self._connection.in_transaction:
                    cursor.execute("ROLLBACK TO dramaturg_part")
                    cursor.execute("RELEASE dramaturg_part")
                raise
            cursor.execute("RELEASE dramaturg_part")
        return answer

    @contextmanager
    def _translated(self) -> Iterator[None]:
        begun = self._connection.in_transaction
        try:
            yield
        except Raised as error:
            # A full disk, for one, undoes the whole transaction: what came next would stand outside of it.
            self._ended = begun and not self._connection.in_transaction
            raise failure(error, self._path) from None

    def _cursor(self) -> sqlite3.Cursor:
        """A cursor of our own, whatever the caller's connection makes of rows."""
        if os.getpid() != self._process:
            raise UsageError("a transaction can't be used on both sides of a fork: fork before or after it")
        if self._ended or not (self._connection.in_transaction or _begins_by_itself(self._connection)):
            raise UsageError("this transaction has ended, by its block, a statement in it or a failure: begin another")
        cursor = sqlite3.Cursor(self._connection)
        cursor.row_factory = None
        return cursor


def adopt(connection: Any, connections: Connections) -> Transaction:
    """The transaction that a caller's own ``connection`` is in, or is about to begin. Raises as ``Store.adopt``."""
    if isinstance(connection, Transaction):
        if not connection.belongs_to(connections):
            raise UsageError("that is a transaction of another store: wake through the store that it belongs to")
        return connection
    if not isinstance(connection, sqlite3.Connection):
        raise UsageError(
            f"a SQLite store can wake in a sqlite3.Connection or in its own transaction, not in a "
            f"{type(connection).__module__}.{type(connection).__qualname__}"
        )
    try:
        main = _main_file(connection)
    except sqlite3.ProgrammingError:
        raise UsageError("that sqlite3.Connection is closed, or was made in another thread") from None
    except Raised as error:
        raise failure(error, connections.path) from None
    if not connection.in_transaction and not _begins_by_itself(connection):
        raise UsageError(
            "that sqlite3.Connection commits every statement by itself (isolation_level=None): "
            "begin a transaction first, with BEGIN IMMEDIATE"
        )
    file = place.file_id(connections.path)
    if file is None or not main or place.file_id(Path(os.fsdecode(main))) != file:
        raise Refused(
            f"that sqlite3.Connection is not one to {connections.path}: what it wakes would never run; "
            "connect it to that file"
        )
    return Transaction(connection, connections)


def _main_file(connection: sqlite3.Connection) -> str | bytes:
    """The file behind ``connection``, empty where there is none."""
    cursor = sqlite3.Cursor(connection)
    cursor.row_factory = None
    if connection.text_factory in (str, bytes):
        row = cursor.execute("PRAGMA database_list").fetchone()
    else:
        # A SELECT makes a reader of a transaction that has done nothing yet and has to write, so only where texts
        # come in a shape that we can't know.
        row = cursor.execute("SELECT seq, name, CAST(file AS BLOB) FROM pragma_database_list").fetchone()
    return row[2] or b""


def _begins_by_itself(connection: sqlite3.Connection) -> bool:
    """The driver begins a transaction before the first INSERT; 3.12's ``autocommit=True`` switches that off."""
    return connection.isolation_level is not None and getattr(connection, "autocommit", None) is not True
