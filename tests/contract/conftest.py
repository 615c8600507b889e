"""Every store, one after the other, each time over an empty database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from store.contract import Store
from store.engines.postgres import Postgres as Server
from store.job import Job
from tests.contract.acts import publish, read
from tests.contract.adapters import ADAPTERS, Adapter
from tests.contract.rows import TYPE, row
from tests.contract.spares import Spares


@pytest.fixture(scope="session")
def spares(postgres_server: Server) -> Spares:
    """Databases of this test process' Postgres."""
    return Spares(postgres_server)


@pytest.fixture(params=ADAPTERS)
def adapter(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Adapter]:
    """An empty database, migrated where the test asks for a ``store``, and its strangers' ways in."""
    if request.param == "sqlite":
        adapter = ADAPTERS["sqlite"](f"sqlite:///{tmp_path}/jobs.db")
        yield adapter
        adapter.close()
        return
    if request.param == "surreal":
        made = "migrated_surreal_url" if "store" in request.fixturenames else "surreal_url"
        adapter = ADAPTERS["surreal"](request.getfixturevalue(made))
        yield adapter
        adapter.close()
        return
    server: Server = request.getfixturevalue("postgres_server")
    spares: Spares = request.getfixturevalue("spares")
    migrated = "store" in request.fixturenames
    name = spares.take(migrated=migrated)
    adapter = ADAPTERS["postgres"](server.url_of(name))
    yield adapter
    adapter.close()
    spares.give_back(name, migrated=migrated)


@pytest.fixture
def store(adapter: Adapter) -> Store:
    """A migrated store that knows the job type of the tests."""
    store = adapter.open()
    store.migrate()
    publish(store, TYPE)
    return store


@pytest.fixture
def other(adapter: Adapter, store: Store) -> Store:
    """Another process' store over the same database, as far as one process can show it."""
    return adapter.open()


@pytest.fixture
def jobs(store: Store, adapter: Adapter) -> list[Job]:
    """Three rows in ``processing``."""
    adapter.plant(store, [row("processing", key=key) for key in "abc"])
    return [read(store, row(key=key).id) for key in "abc"]
