"""Schema files applied one by one, each in a transaction with the row that records it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from store import clock, migrations
from store.errors import UsageError
from store.migrations import Applied, Migration, Subject
from store.sqlite.rows import now_or

OURS: Final = "dramaturg"

_LEDGER: Final = """
CREATE TABLE IF NOT EXISTS dramaturg_migration (
  subject    TEXT NOT NULL,
  number     INTEGER NOT NULL,
  name       TEXT NOT NULL,
  breaking   INTEGER NOT NULL,
  applied_at INTEGER NOT NULL,
  PRIMARY KEY (subject, number)
) STRICT, WITHOUT ROWID
"""


def known(subjects: Sequence[Subject]) -> list[Migration]:
    """Our migrations, then those of ``subjects``. Raises UsageError for a subject that has none for SQLite."""
    found = migrations.load(OURS, Path(__file__).parent / "schema")
    for subject in subjects:
        folder = subject.folder / "sqlite"
        if not folder.is_dir():
            raise UsageError(f"{subject.name} has no schema for SQLite: there is no folder {folder}")
        found += migrations.load(subject.name, folder)
    return found


def apply_next(cursor: sqlite3.Cursor, wanted: Sequence[Migration]) -> bool:
    """Apply the first of ``wanted`` that is missing; False where none is. Raises SchemaTooNew."""
    cursor.execute(_LEDGER)
    missing = migrations.missing(wanted, applied(cursor))
    if not missing:
        return False
    migration = missing[0]
    for statement in statements(migration.statements):
        cursor.execute(statement)
    cursor.execute(
        "INSERT INTO dramaturg_migration (subject, number, name, breaking, applied_at) VALUES (?1, ?2, ?3, ?4, ?5)",
        (migration.subject, migration.number, migration.name, migration.breaking, clock.micros(now_or(None))),
    )
    return True


def applied(cursor: sqlite3.Cursor) -> list[Applied]:
    """What the database records; nothing where it has no record."""
    if not cursor.execute("SELECT 1 FROM sqlite_master WHERE name = 'dramaturg_migration'").fetchone():
        return []
    rows = cursor.execute("SELECT subject, number, breaking FROM dramaturg_migration").fetchall()
    return [Applied(subject, number, bool(breaking)) for subject, number, breaking in rows]


def statements(script: str) -> Iterator[str]:
    """The statements of ``script``. (The driver's own executescript commits before it begins.)"""
    statement = ""
    for piece in script.split(";"):
        statement += piece + ";"
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
