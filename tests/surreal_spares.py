"""Databases of one SurrealDB that no test uses at the moment: making a schema takes six times as long as emptying."""

from __future__ import annotations

import uuid
from typing import Any

from store.engines.surreal import Surreal
from store.surreal.errors import results
from store.surreal.store import SurrealStore


class SurrealSpares:
    """Keeps migrated databases whose schema a test has left as it was."""

    def __init__(self, server: Surreal) -> None:
        self._server = server
        self._free: list[str] = []
        self._schema: dict[str, Any] = {}  # of a database that was just migrated
        self._records: dict[str, list[Any]] = {}  # and what the migrations themselves put there

    def take(self) -> str:
        """The name of a database with our schema and nothing else in it."""
        if self._free:
            return self._free.pop()
        name = f"spare_{uuid.uuid4().hex}"
        store = SurrealStore(self._server.url_of(name))
        try:
            store.migrate()
            if not self._schema:
                self._schema = _schema(store)
                self._records = {table: _records(store, table) for table in self._schema}
        finally:
            store.close()
        return name

    def give_back(self, name: str) -> None:
        """What a test has left of it."""
        store = SurrealStore(self._server.url_of(name))
        try:
            whole = _schema(store) == self._schema and _records(store, _MIGRATIONS) == self._records[_MIGRATIONS]
            if whole:
                for table in self._schema.keys() - {_MIGRATIONS}:
                    _ask(
                        store,
                        f"DELETE {table} RETURN NONE; INSERT INTO {table} $rows RETURN NONE",
                        self._records[table],
                    )
        finally:
            store.close()
        if whole:
            self._free.append(name)
        else:
            self._server.drop_database(name)


_MIGRATIONS = "dramaturg_migration"


def _schema(store: SurrealStore) -> dict[str, Any]:
    [whole] = results(store._ask("INFO FOR DB", {}))
    schema = {table: results(store._ask(f"INFO FOR TABLE {table}", {})) for table in whole["tables"]}
    functions = whole["functions"]
    return {table: (found, functions) for table, found in schema.items()}


def _records(store: SurrealStore, table: str) -> list[Any]:
    [found] = results(store._ask(f"SELECT * FROM {table}", {}))
    return list(found)


def _ask(store: SurrealStore, text: str, rows: list[Any]) -> None:
    results(store._ask(text, {"rows": rows}))
