"""A migrated store over a file of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from store.sqlite.store import SqliteStore
from tests.contract.acts import publish
from tests.contract.rows import TYPE


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the database lies; its directory is not there yet."""
    return tmp_path / "data" / "jobs.db"


@pytest.fixture
def url(path: Path) -> str:
    """The database's URL."""
    return f"sqlite:///{path}"


@pytest.fixture
def store(url: str) -> Iterator[SqliteStore]:
    """Migrated, and it knows the job type of the tests."""
    store = SqliteStore(url)
    store.migrate()
    publish(store, TYPE)
    yield store
    store.close()
