"""Schema files applied one by one, each in a transaction with the record of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from store import migrations
from store.errors import UsageError
from store.migrations import Applied, Migration, Subject
from store.surreal.connections import Connections
from store.surreal.errors import Thrown, results
from store.surreal.requests import Step, persistently, read

OURS: Final = "dramaturg"

#: Defined outside of any file, since it records them.
_LEDGER: Final = """
DEFINE TABLE IF NOT EXISTS dramaturg_migration SCHEMAFULL TYPE NORMAL PERMISSIONS NONE;
DEFINE FIELD IF NOT EXISTS subject ON dramaturg_migration TYPE string;
DEFINE FIELD IF NOT EXISTS number ON dramaturg_migration TYPE int;
DEFINE FIELD IF NOT EXISTS name ON dramaturg_migration TYPE string;
DEFINE FIELD IF NOT EXISTS breaking ON dramaturg_migration TYPE bool;
DEFINE FIELD IF NOT EXISTS applied_at ON dramaturg_migration TYPE int;
"""

_RECORD: Final = """
CREATE type::record('dramaturg_migration', [$subject, $number]) SET
  subject = $subject, number = $number, name = $name, breaking = $breaking,
  applied_at = time::micros(time::now()) RETURN NONE;
"""

_APPLIED: Final = Step("(SELECT VALUE [subject, number, breaking] FROM dramaturg_migration)", {})


def known(subjects: Sequence[Subject]) -> list[Migration]:
    """Our migrations, then those of ``subjects``. Raises UsageError for a subject that has none for SurrealDB."""
    found = migrations.load(OURS, Path(__file__).parent / "schema")
    for subject in subjects:
        folder = subject.folder / "surreal"
        if not folder.is_dir():
            raise UsageError(f"{subject.name} has no schema for SurrealDB: there is no folder {folder}")
        found += migrations.load(subject.name, folder)
    return found


def define_ledger(connections: Connections) -> None:
    """Make the table that records migrations, where it is missing."""
    _ask(connections, _LEDGER, None)


def apply_next(connections: Connections, wanted: Sequence[Migration]) -> bool | None:
    """Apply the first of ``wanted`` that is missing; False where none is, None where another was faster.

    Raises SchemaTooNew and Refused.
    """
    missing = migrations.missing(wanted, applied(connections))
    if not missing:
        return False
    return _ask(connections, f"BEGIN; {_RECORD} {missing[0].statements}\n; COMMIT;", missing[0])


def applied(connections: Connections) -> list[Applied]:
    """What the database records."""
    return [Applied(subject, number, breaking) for subject, number, breaking in read(connections, _APPLIED)]


def _ask(connections: Connections, statements: str, migration: Migration | None) -> bool | None:
    values = {} if migration is None else migration._asdict()
    there = "IF record::exists(type::record('dramaturg_migration', [$subject, $number])) { THROW 'dramaturg:there' };"
    text = statements.replace("BEGIN;", f"BEGIN; {there}", 1)

    def ask() -> bool | None:
        with connections.lend() as link:
            try:
                results(link.query(text, values))
            except Thrown:
                return None
        return True

    return persistently(ask, connections.patience, connections.turn)
