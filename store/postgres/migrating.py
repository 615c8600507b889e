"""Bringing the schema up to date: each file in a transaction of its own with the row that records it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import psycopg

from store import migrations
from store.errors import Refused
from store.migrations import Applied, Migration, Subject
from store.postgres.connections import NOT_OURS
from store.postgres.values import rows

Connection = psycopg.Connection[Any]

SUBJECT: Final = "dramaturg"

#: Seconds for one file: building an index over millions of rows takes its time.
PATIENCE: Final = 3600.0

#: Racing migrators wait for each other here, until the end of the transaction. Nobody else uses this number.
_ALONE: Final = f"SET LOCAL lock_timeout = '60s'; SELECT pg_advisory_xact_lock(7240317565103285561); {NOT_OURS}"

#: The oldest Postgres that will do, as it counts its versions.
_OLDEST: Final = 140000

_SERVER: Final = "SELECT current_setting('server_version_num')::int, current_setting('server_encoding')"

#: Only what is missing is made: CREATE ... IF NOT EXISTS wants the right to create even where there is nothing to do.
_SCHEMA: Final = "SELECT to_regnamespace('dramaturg') IS NOT NULL, to_regclass('dramaturg.migration') IS NOT NULL"
_RECORDS: Final = """
CREATE TABLE dramaturg.migration (
  subject    text NOT NULL,
  number     integer NOT NULL,
  name       text NOT NULL,
  breaking   boolean NOT NULL,
  applied_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (subject, number)
)
"""

_APPLIED: Final = "SELECT m.subject, m.number, m.breaking FROM dramaturg.migration AS m"
_RECORD: Final = """
INSERT INTO dramaturg.migration (subject, number, name, breaking)
VALUES (%(subject)s, %(number)s, %(name)s, %(breaking)s)
"""


def known(subjects: Sequence[Subject]) -> list[Migration]:
    """Our migrations and those of ``subjects``, in order."""
    ours = migrations.load(SUBJECT, Path(__file__).parent / "schema")
    return ours + [each for subject in subjects for each in migrations.load(subject.name, subject.folder / "postgres")]


def applied(connection: Connection) -> list[Applied]:
    """What the database says was applied; nothing where it has no schema yet."""
    [(_, recorded)] = rows(connection, _SCHEMA)
    return [Applied._make(row) for row in rows(connection, _APPLIED)] if recorded else []


def apply_next(connection: Connection, wanted: Sequence[Migration]) -> bool:
    """Apply the first migration that is missing, in a transaction; False where none is. Raises SchemaTooNew, and
    Refused where the server can't keep what we would make."""
    _refuse_unfit(connection)
    with connection.transaction():
        connection.execute(_ALONE)
        [(schema, recorded)] = rows(connection, _SCHEMA)
        missing = migrations.missing(wanted, applied(connection))
        if not missing:
            return False
        if not schema:
            connection.execute("CREATE SCHEMA dramaturg")
        if not recorded:
            connection.execute(_RECORDS)
        following = missing[0]
        connection.execute(following.statements)
        rows(connection, _RECORD, following._asdict())
        return True


def _refuse_unfit(connection: Connection) -> None:
    [(version, encoding)] = rows(connection, _SERVER)
    if version < _OLDEST:
        raise Refused(f"the server is Postgres {version // 10000}, and 14 is the oldest that will do: upgrade it")
    if encoding != "UTF8":
        raise Refused(
            "the database does not keep its texts as UTF8: make one that does "
            "(CREATE DATABASE ... ENCODING 'UTF8' TEMPLATE template0)"
        )
