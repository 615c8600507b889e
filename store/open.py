"""A URL becomes a store."""

from __future__ import annotations

from store.contract import Store
from store.errors import UsageError


def open_store(url: str) -> Store:
    """The store of ``url``; connects to nothing yet. Raises UsageError for a scheme that no adapter knows."""
    scheme = url.split(":", 1)[0]
    if scheme in ("postgresql", "postgres"):
        from store.postgres.store import PostgresStore  # each driver is imported where it is wanted

        return PostgresStore(url)
    if scheme == "sqlite":
        from store.sqlite.store import SqliteStore

        return SqliteStore(url)
    if scheme in ("ws", "wss"):
        from store.surreal.store import SurrealStore

        return SurrealStore(url)
    raise UsageError("the database's URL must start with sqlite://, postgresql://, ws:// or wss://")
