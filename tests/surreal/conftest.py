"""Stores on the engine of this test process, and an engine of a test's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from store.engines.surreal import Surreal
from store.surreal.store import SurrealStore
from tests.contract.acts import publish
from tests.contract.rows import TYPE


@pytest.fixture
def store(migrated_surreal_url: str) -> Iterator[SurrealStore]:
    """A migrated store that knows the job type of the tests."""
    store = SurrealStore(migrated_surreal_url)
    store.migrate()
    publish(store, TYPE)
    yield store
    store.close()


@pytest.fixture
def server(fresh_home: Path) -> Iterator[Surreal]:
    """An engine to kill."""
    with Surreal(fresh_home) as server:
        yield server


@pytest.fixture
def lone(server: Surreal) -> Iterator[SurrealStore]:
    """A migrated store on ``server``."""
    store = SurrealStore(server.url)
    store.migrate()
    publish(store, TYPE)
    yield store
    store.close()
