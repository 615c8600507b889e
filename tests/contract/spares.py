"""Migrated Postgres databases that go from test to test.

To make, migrate and drop one takes longer than most tests. One in which nothing but rows has changed is emptied and
used again; any other is dropped.
"""

from __future__ import annotations

import uuid
from typing import Any

import psycopg

from store.engines.postgres import Postgres
from store.open import open_store

_SCHEMA = """
SELECT n.nspname, c.relname, c.relkind::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast') ORDER BY 1, 2
"""
_MIGRATIONS = "SELECT subject, number, breaking FROM dramaturg.migration ORDER BY 1, 2"


class Spares:
    """The databases of one server that no test uses at the moment."""

    def __init__(self, server: Postgres) -> None:
        self._server = server
        self._free: list[str] = []
        self._plan: Any = None

    def take(self, *, migrated: bool) -> str:
        """The name of an empty database, with our schema in it or without any."""
        if migrated and self._free:
            return self._free.pop()
        name = f"contract_{uuid.uuid4().hex}"
        url = self._server.create_database(name)
        if migrated:
            store = open_store(url)
            store.migrate()
            store.close()
            with psycopg.connect(url) as connection:
                self._plan = _plan(connection)
        return name

    def give_back(self, name: str, *, migrated: bool) -> None:
        """What a test has left of it."""
        if not (migrated and self._emptied(name)):
            self._server.drop_database(name)
        else:
            self._free.append(name)

    def _emptied(self, name: str) -> bool:
        with psycopg.connect(self._server.url_of(name)) as connection:
            connection.execute("SET lock_timeout = '5s'")
            if _plan(connection) != self._plan:
                return False
            connection.execute(
                "TRUNCATE dramaturg.job, dramaturg.history, dramaturg.document, dramaturg.term, dramaturg.archive"
            )
            connection.execute("TRUNCATE dramaturg.outbox, dramaturg.outbox_arrival, dramaturg.attachment")
            connection.execute("UPDATE dramaturg.outbox_counter SET last = 0")
            connection.execute("SELECT dramaturg.arm()")
            return True


def _plan(connection: psycopg.Connection[Any]) -> Any:
    tables = connection.execute(_SCHEMA).fetchall()
    known = any(table[:2] == ("dramaturg", "migration") for table in tables)
    return tables, connection.execute(_MIGRATIONS).fetchall() if known else None
