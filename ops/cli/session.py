"""What a command works on: the settings, the store behind them, and Valkey if one is up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from store.contract import Store
from store.engines.sockets import Answer, ping, socket_path
from store.open import open_store
from store.settings import StoreSettings, load


def settings() -> StoreSettings:
    """The store's settings. Raises SettingsInvalid with all that is wrong."""
    return load(StoreSettings)


@contextmanager
def opened(chosen: StoreSettings | None = None) -> Iterator[Store]:
    """The store, migrated; closed at the end. Raises SettingsInvalid, StoreUnavailable, SchemaTooNew, and Refused where
    migrations are missing."""
    store = open_store((chosen or settings()).store_url)
    try:
        store.check_schema()
        yield store
    finally:
        store.close()


def valkey_url(chosen: StoreSettings) -> str | None:
    """Where Valkey is, without starting one: JOBS_VALKEY_URL, or what is up under JOBS_HOME; None if nothing is."""
    if chosen.valkey_url is not None:
        return chosen.valkey_url.get_secret_value()
    socket = socket_path(Path(chosen.home).resolve(), "valkey.sock")
    return f"unix://{quote(str(socket))}" if ping(socket) is Answer.ALIVE else None
