"""Every store, one after the other, each time over an empty database of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from store.contract import Store
from tests.contract.acts import publish
from tests.contract.adapters import ADAPTERS, Adapter
from tests.contract.rows import TYPE


@pytest.fixture(params=ADAPTERS)
def adapter(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Adapter]:
    """An empty database and its strangers' ways in."""
    url = f"sqlite:///{tmp_path}/jobs.db" if request.param == "sqlite" else request.getfixturevalue("postgres_url")
    adapter = ADAPTERS[request.param](url)
    yield adapter
    adapter.close()


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
