"""What SQLite's and its driver's errors mean to us: the only place that reads them. Their texts stop here."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path

from store.errors import DramaturgError, Refused, StoreUnavailable

#: What a statement or its parameters can raise. The last two come from binding a value that SQLite has no room for.
Raised = (sqlite3.Error, sqlite3.Warning, OverflowError, UnicodeEncodeError)

#: Locks: the same statement may be had a moment later.
_LOCKED = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL})

#: What is wrong with the place rather than with the rows: (primary code, what to say of the file).
_PLACE = {
    sqlite3.SQLITE_FULL: "could not grow: free some space on its disk",
    sqlite3.SQLITE_IOERR: "could not be read or written: check its disk, and that nobody removed it",
    sqlite3.SQLITE_CANTOPEN: "can't be opened: check that its directory is there and that this user may write to both",
    sqlite3.SQLITE_READONLY: "can't be written: let this user write to it and to its directory",
    sqlite3.SQLITE_PERM: "can't be used: let this user read and write it",
    sqlite3.SQLITE_NOTADB: "is not a SQLite database: name another file, or move this one away",
    sqlite3.SQLITE_CORRUPT: "is damaged: restore it from a copy",
}

#: What is wrong with a value.
_VALUE = frozenset({sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_RANGE})

#: Names in the text of a broken constraint. One that has no name shows its expression, and a trigger what it likes.
_BROKEN = re.compile(
    r"(?:(?:CHECK|UNIQUE|NOT NULL) constraint failed: |cannot store [A-Z]+ value in [A-Z]+ column )"
    r"([A-Za-z_][\w.]*(?:, [A-Za-z_][\w.]*)*)"
)


def code_of(error: BaseException) -> str:
    """SQLite's name of the error, else its number, else its class."""
    name = getattr(error, "sqlite_errorname", None)
    if name == "unknown":
        name = f"SQLite error {getattr(error, 'sqlite_errorcode', None)}"
    return name or type(error).__name__


def is_lock(error: BaseException) -> bool:
    """Somebody else holds a lock: trying again soon may help."""
    return _primary(error) in _LOCKED


def failure(error: BaseException, path: Path) -> DramaturgError:
    """The error of ours that says what ``error`` (one of ``Raised``) means for the database at ``path``."""
    primary, code = _primary(error), code_of(error)
    if primary in _LOCKED:
        return StoreUnavailable(
            f"others hold the lock of {path} ({code}): find who keeps a transaction open, and try again; a transaction "
            "of your own that reads before it writes must begin with BEGIN IMMEDIATE"
        )
    if primary in _PLACE:
        return StoreUnavailable(f"the database {path} {_PLACE[primary]} ({code})")
    if primary == sqlite3.SQLITE_CONSTRAINT:
        broken = _BROKEN.fullmatch(str(error))
        return Refused(f"the database refuses the row: it breaks {broken[1] if broken else 'a constraint'} ({code})")
    if primary == sqlite3.SQLITE_ERROR and str(error).startswith("no such table: dramaturg_"):
        return Refused(f"{path} has none of our tables: run `dramaturg migrate`, or name the right file")
    if primary == sqlite3.SQLITE_ERROR:
        return Refused(f"the statement is not one that the database can run ({code})")
    if primary is None or primary in _VALUE:
        return Refused(f"the statement and its parameters don't fit, or a value is one that can't be stored ({code})")
    return StoreUnavailable(f"the database {path} did not do its work ({code}): try again")


def _primary(error: BaseException) -> int | None:
    code = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF
