"""Connections to one file: opened when needed, lent to one thread at a time, never carried over a fork.

Every write transaction begins as a writer (a reader that turns writer fails at once when somebody else has written).
SQLite's own ``busy_timeout`` starves some writers for seconds, so waiting for the write lock is done here: a short
random sleep between tries shares it fairly among threads and processes.

A fork: SQLite believes that the locks which its process holds on a file are still held in the child, where the system
has dropped them. A child that opened the file beside an inherited connection would hold no lock of its own, and whoever
closes the file last would delete the log under it, with what the child had committed. So idle connections are closed
before a fork, those in use are waited for, and a child that was made inside an open transaction is refused.
"""

from __future__ import annotations

import os
import random
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import structlog

from store import clock
from store.errors import StoreUnavailable, UsageError
from store.sqlite import place
from store.sqlite.errors import Raised, failure, is_lock

T = TypeVar("T")

#: Connections kept for the next caller; more threads than that at one moment open their own for as long.
_KEPT: Final = 4

#: Seconds between two tries for a lock.
_PAUSE: Final = (0.0005, 0.003)

_SETTINGS: Final = (
    "PRAGMA synchronous = FULL",  # a commit that was answered survives a power cut
    "PRAGMA foreign_keys = ON",  # for the tables of callers
    "PRAGMA cache_size = -16000",  # KiB; the default of 2 MB rereads index pages at 100,000 rows
    "PRAGMA journal_size_limit = 67108864",  # the log of one large transaction doesn't stay that large
)


class _Lent(NamedTuple):
    """A connection, and what must be unchanged for it to be lent again: the file it opened, and no close() since."""

    connection: sqlite3.Connection
    file: place.FileId | None
    epoch: int


class Connections:
    """Connections to ``path``; ``patience`` is how many seconds a lock is waited for. Safe between threads."""

    def __init__(self, path: Path, *, patience: float = 10.0) -> None:
        self.path: Final = path
        self._patience = patience
        self._gate = threading.Condition()
        self._idle: list[_Lent] = []
        self._out: dict[object, int] = {}  # a mark for each connection in use -> its thread
        self._epoch = 0
        self._cut_off = False
        self._writers: set[int] = set()  # threads
        with _REGISTERING:
            _EVERY.add(self)

    def read(self, work: Callable[[sqlite3.Cursor], T]) -> T:
        """What ``work`` answers, each of its statements from a moment of its own. It may be called more than once."""
        with self._translated(), self.lend() as connection:
            return self._patiently(lambda: work(connection.cursor()))

    def snapshot(self, work: Callable[[sqlite3.Cursor], T]) -> T:
        """What ``work`` answers, all of it from one moment of the database. It may be called more than once."""

        def at_once(cursor: sqlite3.Cursor) -> T:
            cursor.execute("BEGIN")
            try:
                return work(cursor)
            finally:
                cursor.connection.rollback()

        return self.read(at_once)

    def write(self, work: Callable[[sqlite3.Cursor], T], *, create: bool = False) -> T:
        """What ``work`` answers, committed; nothing of it where it raises. ``create`` makes a file that is missing."""
        with self._translated(), self._transaction(create=create) as connection:
            return work(connection.cursor())

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """A connection inside a write transaction that commits when the block ends. Errors of the block's own pass."""
        begun = False
        try:
            with self._transaction() as connection:
                begun = True
                yield connection
                begun = False
        except Raised as error:
            if begun:
                raise
            raise failure(error, self.path) from None

    @contextmanager
    def lend(self, *, create: bool = False) -> Iterator[sqlite3.Connection]:
        """A connection, for this thread alone. One that saw an error is not used again."""
        process, mark, whole = os.getpid(), object(), False
        lent: _Lent | None = None
        try:
            lent = self._take(mark, create=create)
            yield lent.connection
            whole = True
        finally:
            if os.getpid() == process:
                self._give_back(mark, lent, whole)
            else:
                _INHERITED.append(lent)

    def close(self) -> None:
        """Close what is idle; what is in use is closed when it comes back. Later calls open new connections."""
        with self._gate:
            self._epoch += 1
            self._close_idle()

    # --- transactions

    @contextmanager
    def _transaction(self, *, create: bool = False) -> Iterator[sqlite3.Connection]:
        me = threading.get_ident()
        if me in self._writers:
            raise UsageError(
                "this thread has a transaction of this store open, which its other writes would wait for without end: "
                "write through that transaction"
            )
        process = os.getpid()
        with self.lend(create=create) as connection:
            try:
                self._patiently(lambda: connection.execute("BEGIN IMMEDIATE"))
                self._writers.add(me)
                yield connection
                if os.getpid() != process:
                    raise UsageError("a transaction can't be used on both sides of a fork: fork before or after it")
                if not connection.in_transaction:
                    raise UsageError("the transaction was ended by a statement inside it: leave that to the block")
                connection.execute("COMMIT")
            finally:
                self._writers.discard(me)  # not the thread that is here: a block may end in another one
                if os.getpid() == process and connection.in_transaction:
                    _undo(connection)

    def _patiently(self, work: Callable[[], T]) -> T:
        """``work``, tried again for as long as our patience lasts while others hold a lock."""
        try:
            return work()
        except sqlite3.OperationalError as error:
            if not is_lock(error):
                raise
        deadline = clock.elapsed() + self._patience
        while True:
            time.sleep(random.uniform(*_PAUSE))
            try:
                return work()
            except sqlite3.OperationalError as error:
                if not is_lock(error) or clock.elapsed() > deadline:
                    raise

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except Raised as error:
            raise failure(error, self.path) from None

    # --- lending

    def _take(self, mark: object, *, create: bool) -> _Lent:
        if self._cut_off:
            raise UsageError(
                f"this process was forked while a transaction on {self.path} was open, and can't use SQLite safely: "
                "fork before or after a transaction, or start a new program instead"
            )
        file = place.file_id(self.path)
        with self._gate:
            self._out[mark] = threading.get_ident()
            epoch = self._epoch
            while self._idle:
                lent = self._idle.pop()
                if lent.file == file:
                    return lent
                lent.connection.close()  # the file was removed or replaced: what it writes would reach nobody
        if file is None and not create:
            raise StoreUnavailable(
                f"there is no database at {self.path}: run `dramaturg migrate` to make it, or name the right file"
            )
        connection = self._open(create)
        return _Lent(connection, place.file_id(self.path), epoch)

    def _give_back(self, mark: object, lent: _Lent | None, whole: bool) -> None:
        with self._gate:
            self._out.pop(mark, None)
            self._gate.notify_all()
            if lent is None:
                return
            if whole and lent.epoch == self._epoch and len(self._idle) < _KEPT:
                self._idle.append(lent)
            else:
                lent.connection.close()

    def _open(self, create: bool) -> sqlite3.Connection:
        if create:
            place.make_directory(self.path)
        connection = sqlite3.connect(
            f"{self.path.as_uri()}?mode={'rwc' if create else 'rw'}",
            uri=True,
            timeout=0,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
        )
        try:
            mode = self._patiently(lambda: connection.execute("PRAGMA journal_mode = WAL").fetchone()[0])
            if mode != "wal":
                raise StoreUnavailable(
                    f"{self.path} can't be kept in WAL mode (it is in {mode} mode): put it on a local disk, "
                    "and let this user write to it and to its directory"
                )
            for setting in _SETTINGS:
                connection.execute(setting)
        except BaseException:
            connection.close()
            raise
        return connection

    # --- forks

    def _close_idle(self) -> None:
        while self._idle:
            self._idle.pop().connection.close()

    def _before_fork(self) -> None:
        self._gate.acquire()
        me = threading.get_ident()
        self._gate.wait_for(lambda: all(thread == me for thread in self._out.values()), self._patience)
        self._close_idle()

    def _after_fork_in_parent(self) -> None:
        self._gate.release()

    def _after_fork_in_child(self) -> None:
        self._gate = threading.Condition()
        self._cut_off = self._cut_off or bool(self._out)
        self._out = {}
        self._writers = set()


def _undo(connection: sqlite3.Connection) -> None:
    try:
        connection.rollback()
    except sqlite3.Error:
        # What made us roll back is being raised, and matters more; closing the connection, which follows, undoes too.
        structlog.get_logger("store").warning("rollback_failed")


#: Connections of the parent, kept in the child so that nothing ever closes them there.
_INHERITED: list[_Lent | None] = []

_EVERY: weakref.WeakSet[Connections] = weakref.WeakSet()
_REGISTERING = threading.Lock()
_forking: list[Connections] = []


def _before_fork() -> None:
    _REGISTERING.acquire()
    _forking.extend(_EVERY)
    for connections in _forking:
        connections._before_fork()


def _after_fork_in_parent() -> None:
    for connections in _forking:
        connections._after_fork_in_parent()
    _forking.clear()
    _REGISTERING.release()


def _after_fork_in_child() -> None:
    for connections in _forking:
        connections._after_fork_in_child()
    _forking.clear()
    _REGISTERING.release()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
