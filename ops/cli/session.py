"""What a command works on: the settings, the store behind them, and Valkey if one is up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from middleware.settings import WorkerSettings
from store.boundary import SECTIONS, guarded, load_boundary
from store.contract import Store
from store.engines.sockets import Answer, ping, socket_path
from store.limit_settings import LimitSettings
from store.open import open_in_scope
from store.settings import StoreSettings, load, load_all

if TYPE_CHECKING:
    from store.valkey.client import Client


def settings() -> StoreSettings:
    """The store's settings. Raises SettingsInvalid with all that is wrong."""
    return load(StoreSettings)


def settings_of_all() -> tuple[StoreSettings, WorkerSettings]:
    """The store's and a worker's settings, for commands that load the job types. Raises SettingsInvalid with all that
    is wrong in either."""
    store, worker, *_ = load_all(StoreSettings, WorkerSettings, LimitSettings, *SECTIONS)
    assert isinstance(store, StoreSettings)
    assert isinstance(worker, WorkerSettings)
    return store, worker


@contextmanager
def opened(chosen: StoreSettings | None = None) -> Iterator[Store]:
    """The store, migrated; closed at the end. Raises SettingsInvalid, StoreUnavailable, SchemaTooNew, and Refused where
    migrations are missing."""
    store = guarded(open_in_scope(chosen or settings()), load_boundary())
    try:
        store.check_schema()
        yield store
    finally:
        store.close()


def valkey(chosen: StoreSettings) -> tuple[str, Client] | None:
    """The Valkey of ``valkey_url`` and a client of it. Raises SettingsInvalid for a URL that can't be used."""
    from store.valkey.address import parse
    from store.valkey.client import Client

    url = valkey_url(chosen)
    return None if url is None else (url, Client(parse(url)))


def valkey_url(chosen: StoreSettings) -> str | None:
    """Where Valkey is, without starting one: JOBS_VALKEY_URL, or what is up under JOBS_HOME; None if nothing is."""
    if chosen.valkey_url is not None:
        return chosen.valkey_url.get_secret_value()
    home = Path(chosen.home).resolve()
    socket = socket_path(home, "valkey.sock")
    return f"unix://{quote(str(socket))}" if home.is_dir() and ping(socket) is Answer.ALIVE else None
