"""Real engines for tests: one of each kind for each test process, started when first asked for.

``valkey_url`` is empty at the start of each test; ``postgres_url`` and ``surreal_url`` are fresh databases, dropped
afterwards. A test that
needs an engine of its own, to kill or to freeze it, makes one in ``fresh_home``.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

from store.engines.postgres import Postgres
from store.engines.surreal import Surreal
from store.engines.valkey import Valkey
from tests.surreal_spares import SurrealSpares

#: What durability costs is of no use to a test that does not crash the machine.
FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "max_connections": "200"}


def processes_in(folder: Path) -> list[int]:
    """The processes that work in ``folder`` or below it, as every engine does in its home."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                where = os.readlink(entry / "cwd")
            except OSError:
                continue  # it ended, or is another user's
            if Path(where).is_relative_to(folder):
                found.append(int(entry.name))
    return found


@contextmanager
def reachable_home() -> Iterator[Path]:
    """A directory with a short path that every user can pass through, so that a Postgres of root's can live in it.

    Nothing may be left running in it at the end.
    """
    home = Path(tempfile.mkdtemp(prefix="dramaturg-test-", dir="/tmp"))
    home.chmod(0o711)
    try:
        yield home
        deadline = time.monotonic() + 30.0  # an engine whose owner was killed takes a moment to end
        while (left := processes_in(home)) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not left, f"processes left behind in {home}: {left}"
    finally:
        shutil.rmtree(home)


@pytest.fixture(scope="session")
def engine_home() -> Iterator[Path]:
    with reachable_home() as home:
        yield home


@pytest.fixture
def fresh_home() -> Iterator[Path]:
    with reachable_home() as home:
        yield home


@pytest.fixture(scope="session")
def valkey_server(engine_home: Path) -> Iterator[Valkey]:
    with Valkey(engine_home / "valkey") as server:
        yield server


@pytest.fixture
def valkey_url(valkey_server: Valkey) -> str:
    if not valkey_server.running:
        valkey_server.start()
    with redis.Redis.from_url(valkey_server.url) as client:
        client.flushall()
    return valkey_server.url


@pytest.fixture(scope="session")
def postgres_server(engine_home: Path) -> Iterator[Postgres]:
    with Postgres(engine_home / "postgres", settings=FAST) as server:
        yield server


@pytest.fixture
def postgres_url(postgres_server: Postgres) -> Iterator[str]:
    if not postgres_server.running:
        postgres_server.start()
    name = f"test_{uuid.uuid4().hex}"
    yield postgres_server.create_database(name)
    if not postgres_server.running:
        postgres_server.start()
    postgres_server.drop_database(name)


@pytest.fixture(scope="session")
def surreal_server(engine_home: Path) -> Iterator[Surreal]:
    with Surreal(engine_home / "surreal", durable=False) as server:
        yield server


@pytest.fixture(scope="session")
def surreal_spares(surreal_server: Surreal) -> SurrealSpares:
    return SurrealSpares(surreal_server)


@pytest.fixture
def migrated_surreal_url(surreal_server: Surreal, surreal_spares: SurrealSpares) -> Iterator[str]:
    """A database with our schema in it; what a test leaves is emptied, or dropped where it changed the schema."""
    if not surreal_server.running:
        surreal_server.start()
    name = surreal_spares.take()
    yield surreal_server.url_of(name)
    if not surreal_server.running:
        surreal_server.start()
    surreal_spares.give_back(name)


@pytest.fixture
def surreal_url(surreal_server: Surreal) -> Iterator[str]:
    if not surreal_server.running:
        surreal_server.start()
    name = f"test_{uuid.uuid4().hex}"
    yield surreal_server.url_of(name)
    if not surreal_server.running:
        surreal_server.start()
    surreal_server.drop_database(name)
