"""A URL becomes a store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from store.contract import Store
from store.errors import UsageError
from store.scope import ScopedStore
from store.settings import ALL, StoreSettings


def open_store(url: str, scope: Sequence[str] | None = None, *, bound: bool = False) -> Store:
    """The store of ``url``; connects to nothing yet. ``scope``: the domains that may be seen and changed by it (None:
    all). ``bound``: on Postgres, refuse where row-level security does not see to that as well. Raises UsageError for a
    scheme that no adapter knows."""
    store = _adapter(url, scope, bound)
    return store if scope is None or ALL in scope else cast(Store, ScopedStore(store, scope))


def open_in_scope(settings: StoreSettings) -> Store:
    """The store of the settings, for the domains that they name."""
    return open_store(settings.store_url, settings.scope, bound=settings.row_security)


def _adapter(url: str, scope: Sequence[str] | None, bound: bool) -> Store:
    scheme = url.split(":", 1)[0]
    if scheme in ("postgresql", "postgres"):
        from store.postgres.store import PostgresStore  # each driver is imported where it is wanted

        return PostgresStore(url, scope=None if scope is None else ",".join(scope), bound=bound)
    if scheme == "sqlite":
        from store.sqlite.store import SqliteStore

        return SqliteStore(url)
    if scheme in ("ws", "wss"):
        from store.surreal.store import SurrealStore

        return SurrealStore(url)
    raise UsageError("the database's URL must start with sqlite://, postgresql://, ws:// or wss://")
