"""An empty store for each schedule, and this test process' own Valkey."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from store.contract import Store
from store.engines.postgres import Postgres
from store.engines.valkey import Valkey
from store.valkey.client import connect
from store.valkey.leases import Leases
from tests.contract.adapters import ADAPTERS, Adapter
from tests.contract.spares import Spares
from tests.leases.inside import raw
from tests.simulation.world import World, played

Play = Callable[[list[int]], World]


def player(adapter: Adapter, valkey_url: str, closing: ExitStack) -> Play:
    """Plays schedules, each on an emptied store and an emptied Valkey."""
    store: Store = adapter.open()
    store.migrate()
    client, bare = connect(valkey_url), raw(valkey_url)
    closing.callback(client.close)
    closing.callback(bare.close)

    def play(numbers: list[int]) -> World:
        adapter.plant(store, [])
        return played(store, Leases(client), bare, numbers)

    return play


def fast_folder(closing: ExitStack, otherwise: Path) -> Path:
    """In memory, where there is such a place: no simulated process loses what was written."""
    shared = Path("/dev/shm")
    if not os.access(shared, os.W_OK):
        return otherwise
    return Path(closing.enter_context(tempfile.TemporaryDirectory(prefix="dramaturg-simulation-", dir=shared)))


@pytest.fixture(scope="session")
def simulated_postgres(postgres_server: Postgres) -> Iterator[Adapter]:
    spares = Spares(postgres_server)
    name = spares.take(migrated=False)
    adapter = ADAPTERS["postgres"](postgres_server.url_of(name))
    yield adapter
    adapter.close()
    spares.give_back(name, migrated=False)


@pytest.fixture
def play(request: pytest.FixtureRequest, tmp_path: Path, valkey_server: Valkey) -> Iterator[Play]:
    """Plays on the store that the test is parametrised with."""
    name: str = request.param
    with ExitStack() as closing:
        adapter: Any
        if name == "sqlite":
            adapter = ADAPTERS[name](f"sqlite:///{fast_folder(closing, tmp_path)}/jobs.db")
            closing.callback(adapter.close)
        elif name == "postgres":
            adapter = request.getfixturevalue("simulated_postgres")
        else:
            adapter = ADAPTERS[name](request.getfixturevalue("migrated_surreal_url"))
            closing.callback(adapter.close)
        yield player(adapter, valkey_server.url, closing)
