"""A process without Valkey and without Dramatiq's workers: it takes its work straight from the rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from pydantic import SecretStr

from middleware.ringing import Hint
from middleware.runtime import Runtime
from middleware.settings import WorkerSettings
from store.boundary import SECTIONS
from store.contract import Store
from store.errors import UsageError
from store.identity import check_name
from store.settings import StoreSettings, load_all
from store.valkey.entries import Ack
from store.valkey.leases import Leases


class NoLeases:
    """Where Valkey would hear that a run is over."""

    def ack(self, queue: str, acks: Iterable[Ack]) -> None:
        """Nobody waits for it."""

    def __getattr__(self, name: str) -> object:
        raise UsageError("there is no Valkey here: ordinary messages want a broker with one, jobs are rows")


class RowsOnly(Runtime):
    """What such a process works with. ``store`` and ``name`` are made from the settings unless given."""

    def __init__(
        self, settings: StoreSettings, worker: WorkerSettings, *, store: Store | None = None, name: str | None = None
    ) -> None:
        super().__init__(settings, worker)
        if store is not None:
            self.store = store
        if name is not None:
            self.name = check_name("worker", name)

    @property
    def leases(self) -> Leases:
        """Nobody's."""
        return cast(Leases, NoLeases())

    def revive_valkey(self) -> None:
        """There is none."""

    def ring_soon(self, hints: Iterable[Hint]) -> None:
        """Nobody to ring for: whoever waits hears of the commit."""


def rows_only(url: str | None = None, *, name: str | None = None) -> RowsOnly:
    """From the environment; ``url`` takes the place of JOBS_DB_URL. Raises SettingsInvalid."""
    settings, worker, *_ = load_all(StoreSettings, WorkerSettings, *SECTIONS)
    assert isinstance(settings, StoreSettings)
    assert isinstance(worker, WorkerSettings)
    if url is not None:
        settings = settings.model_copy(update={"db_url": SecretStr(url)})
    return RowsOnly(settings, worker, name=name)
