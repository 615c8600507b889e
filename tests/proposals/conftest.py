"""Proposals in every store, each time over an empty database and a repository of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from store.contract import Store
from store.open import open_store
from tests.proposals.desk import Desk


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/jobs.db"
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    """A store that is not migrated yet."""
    made = open_store(store_url)
    yield made
    made.close()


@pytest.fixture
def desk(store: Store, tmp_path: Path) -> Desk:
    return Desk(store, tmp_path)
