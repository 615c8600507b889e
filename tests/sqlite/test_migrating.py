"""Schema files: what the contract's suite can't see from outside."""

from __future__ import annotations

from pathlib import Path

import pytest

from store.errors import UsageError
from store.migrations import Subject
from store.sqlite.migrating import statements
from store.sqlite.store import SqliteStore

SCRIPT = """-- breaking
-- a comment; with a semicolon
CREATE TABLE one (text TEXT DEFAULT 'a;b', "odd;name" TEXT); CREATE TABLE two (x);
CREATE TRIGGER both AFTER DELETE ON one BEGIN
  DELETE FROM two WHERE x = old.text;  -- the first; of two
  DELETE FROM two;
END;
/* the last; word */
"""


def test_a_script_is_cut_between_its_statements_and_nowhere_else() -> None:
    found = [statement.strip() for statement in statements(SCRIPT)]

    assert [statement.split("(")[0].split()[-1] for statement in found[:2]] == ["one", "two"]
    assert found[2].startswith("CREATE TRIGGER")
    assert found[2].endswith("END;")


def test_nothing_of_a_script_is_passed_over(store: SqliteStore, tmp_path: Path) -> None:
    folder = tmp_path / "theirs" / "sqlite"
    folder.mkdir(parents=True)
    (folder / "001_tables.sql").write_text(SCRIPT + "CREATE TABLE last (x)")

    assert store.migrate([Subject("theirs", folder.parent)]) == 1

    with store.transaction() as tx:
        names = tx.execute("SELECT name FROM sqlite_master WHERE name IN ('one', 'two', 'both', 'last') ORDER BY name")
    assert names == [("both",), ("last",), ("one",), ("two",)]


def test_a_subject_without_a_schema_for_sqlite_is_told(store: SqliteStore, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="theirs has no schema for SQLite"):
        store.migrate([Subject("theirs", tmp_path)])
