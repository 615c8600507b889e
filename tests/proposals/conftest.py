"""Proposals in every store, each time over empty tables and a repository of its own.

A database is migrated once for each test process: SQLite's file is copied for each test, Postgres' tables are emptied.
SurrealDB makes a new one.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from actors.proposals.statements import SUBJECT
from store.contract import Store
from store.engines.postgres import Postgres
from store.open import open_store
from tests.proposals.desk import Desk


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated SQLite database, to be copied."""
    file = tmp_path_factory.mktemp("migrated") / "jobs.db"
    _migrate(f"sqlite:///{file}")
    return file


@pytest.fixture(scope="session")
def migrated_database(postgres_server: Postgres) -> Iterator[str]:
    """A migrated Postgres database, to be emptied."""
    url = postgres_server.create_database("proposals")
    _migrate(url)
    yield url
    postgres_server.drop_database("proposals")


@pytest.fixture(params=["sqlite", "postgres", "surreal"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A migrated database without a row."""
    if request.param == "sqlite":
        shutil.copy(request.getfixturevalue("migrated_file"), tmp_path / "jobs.db")
        return f"sqlite:///{tmp_path}/jobs.db"
    if request.param == "surreal":
        url = str(request.getfixturevalue("migrated_surreal_url"))
        _migrate(url)
        return url
    url = str(request.getfixturevalue("migrated_database"))
    with psycopg.connect(url) as connection:
        connection.execute("DROP FUNCTION IF EXISTS forbid CASCADE")
        for table in ("proposal", "repository", "job"):  # what hangs on their rows goes with them
            connection.execute(f"DELETE FROM dramaturg.{table}")
    return url


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    made = open_store(store_url)
    yield made
    made.close()


@pytest.fixture
def desk(store: Store, tmp_path: Path) -> Desk:
    return Desk(store, tmp_path)


def _migrate(url: str) -> None:
    store = open_store(url)
    try:
        store.migrate([SUBJECT])
    finally:
        store.close()
