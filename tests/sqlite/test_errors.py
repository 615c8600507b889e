"""Every error of SQLite and its driver arrives as one of ours, in our words."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from store.errors import DramaturgError, Refused, StoreUnavailable
from store.sqlite.errors import Raised, failure
from store.sqlite.store import SqliteStore
from tests.contract.rows import wake

PATH = Path("/data/jobs.db")
CODES = {
    name: code
    for name, code in vars(sqlite3).items()
    if name.startswith("SQLITE_") and isinstance(code, int) and getattr(sqlite3.OperationalError(), name, None) is None
}


def error(code: int, name: str) -> sqlite3.OperationalError:
    """An error as the driver makes it."""
    made = sqlite3.OperationalError("hidden-word")
    made.sqlite_errorcode, made.sqlite_errorname = code, name
    return made


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("SQLITE_BUSY", StoreUnavailable, "transaction open"),
        ("SQLITE_BUSY_SNAPSHOT", StoreUnavailable, "BEGIN IMMEDIATE"),
        ("SQLITE_LOCKED", StoreUnavailable, "transaction open"),
        ("SQLITE_PROTOCOL", StoreUnavailable, "transaction open"),
        ("SQLITE_FULL", StoreUnavailable, "free some space"),
        ("SQLITE_IOERR_WRITE", StoreUnavailable, "check its disk"),
        ("SQLITE_CANTOPEN", StoreUnavailable, "can't be opened"),
        ("SQLITE_READONLY_DBMOVED", StoreUnavailable, "can't be written"),
        ("SQLITE_NOTADB", StoreUnavailable, "not a SQLite database"),
        ("SQLITE_CORRUPT_VTAB", StoreUnavailable, "is damaged"),
        ("SQLITE_NOMEM", StoreUnavailable, "try again"),
        ("SQLITE_INTERRUPT", StoreUnavailable, "try again"),
        ("SQLITE_CONSTRAINT_TRIGGER", Refused, "a constraint"),
        ("SQLITE_TOOBIG", Refused, "can't be stored"),
        ("SQLITE_ERROR", Refused, "not one that the database can run"),
    ],
)
def test_each_code_says_what_is_wrong_and_what_to_do(name: str, kind: type[DramaturgError], words: str) -> None:
    found = failure(error(CODES[name], name), PATH)

    assert type(found) is kind
    assert words in str(found)
    assert name in str(found)


@pytest.mark.parametrize("name", sorted(CODES))
def test_no_code_is_without_an_error_of_ours_and_no_foreign_text_gets_through(name: str) -> None:
    found = failure(error(CODES[name], name), PATH)

    assert isinstance(found, (Refused, StoreUnavailable))
    assert "hidden" not in str(found)


STATEMENTS: dict[str, tuple[str, dict[str, Any]]] = {
    "a parameter is missing": ("SELECT :hidden_word", {}),
    "a type that can't be bound": ("SELECT :x", {"x": object()}),
    "a number beyond 64 bits": ("SELECT :x", {"x": 2**64}),
    "half a surrogate pair": ("SELECT :x", {"x": "hidden-word\ud800"}),
    "two statements": ("SELECT 'hidden-word'; SELECT 2", {}),
    "a NUL in the statement": ("SELECT 'hidden-word\0'", {}),
    "a trigger's word": ("INSERT INTO guarded VALUES ('x')", {}),
    "a check without a name": ("INSERT INTO checked VALUES (0)", {}),
    "a text for a number": ("UPDATE dramaturg_job SET priority = 'hidden-word'", {}),
}


@pytest.mark.parametrize("name", STATEMENTS)
def test_a_callers_statement_that_fails_is_refused_without_a_word_of_it(store: SqliteStore, name: str) -> None:
    store.wake([wake()])
    with store.transaction() as tx:
        tx.execute("CREATE TABLE guarded (x TEXT)")
        tx.execute("CREATE TABLE checked (x INTEGER CHECK (x > 0 AND 'hidden-word' <> ''))")
        tx.execute(
            "CREATE TRIGGER guard BEFORE INSERT ON guarded BEGIN SELECT raise(ABORT, 'hidden-word failed: x'); END"
        )
    statement, parameters = STATEMENTS[name]

    with store.transaction() as tx:
        with pytest.raises(Refused) as refused:
            tx.execute(statement, parameters)

    assert "hidden" not in str(refused.value)
    assert "guarded" not in str(refused.value)


def test_a_broken_constraint_is_told_by_its_name(store: SqliteStore) -> None:
    store.wake([wake()])
    for statement, named in (
        ("UPDATE dramaturg_job SET priority = 11", "dramaturg_job_priority"),
        ("UPDATE dramaturg_job SET state = NULL", "dramaturg_job.state"),
        ("UPDATE dramaturg_job SET attempt = 'x'", "dramaturg_job.attempt"),
        ("INSERT INTO dramaturg_document SELECT * FROM dramaturg_document", "dramaturg_document.kind"),
    ):
        with store.transaction() as tx, pytest.raises(Refused, match=named):
            tx.execute(statement)


def test_all_that_the_driver_can_raise_is_known() -> None:
    found = [kind for kind in vars(sqlite3).values() if isinstance(kind, type) and issubclass(kind, Exception)]

    assert len(found) >= 10
    assert all(issubclass(kind, Raised) for kind in found)
