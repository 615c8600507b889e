"""One migrated database for all tests, empty at the start of each; another that is reached by a pooler."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from ops.torture.pooler import Pooler
from store.engines.postgres import Postgres
from store.postgres.store import PostgresStore
from tests.contract.acts import publish
from tests.contract.rows import TYPE
from tests.postgres.acts import END_SESSIONS, SESSIONS, eventually, one


@contextmanager
def migrated(server: Postgres) -> Iterator[str]:
    """The URL of a new database with our schema."""
    name = f"test_{uuid.uuid4().hex}"
    url = server.create_database(name)
    store = PostgresStore(url)
    store.migrate()
    store.close()
    yield url
    server.drop_database(name)


def empty(url: str) -> None:
    """Leave nothing in the database but ``TYPE``."""
    with psycopg.connect(url) as connection:
        for table in ("job", "history", "document", "term", "outbox", "outbox_arrival", "attachment", "archive"):
            connection.execute(f"DELETE FROM dramaturg.{table}")
        connection.execute("UPDATE dramaturg.outbox_counter SET last = 0")
        connection.execute("SELECT dramaturg.arm()")
    store = PostgresStore(url)
    publish(store, TYPE)
    store.close()


@pytest.fixture(scope="session")
def direct_url(postgres_server: Postgres) -> Iterator[str]:
    with migrated(postgres_server) as url:
        yield url


@pytest.fixture
def url(direct_url: str) -> str:
    """An empty database with ``TYPE`` published, to which nobody is connected."""
    empty(direct_url)
    with psycopg.connect(direct_url, autocommit=True) as connection:
        connection.execute(END_SESSIONS)
        assert eventually(lambda: one(connection, SESSIONS) == 0)
    return direct_url


@pytest.fixture
def store(url: str) -> Iterator[PostgresStore]:
    store = PostgresStore(url)
    yield store
    store.close()


@pytest.fixture
def connect(url: str) -> Iterator[Callable[[], psycopg.Connection]]:
    """Makes connections of a stranger's, in autocommit."""
    made: list[psycopg.Connection] = []

    def connect() -> psycopg.Connection:
        made.append(psycopg.connect(url, autocommit=True))
        return made[-1]

    yield connect
    for connection in made:
        connection.close()


# --- with a pooler between --------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def pooler(postgres_server: Postgres, engine_home: Path) -> Iterator[int]:
    """The port of a pgbouncer in transaction mode, with two sessions for each database; it lets no setting through that
    it does not know."""
    with Pooler(postgres_server, engine_home / "pgbouncer") as pooler:
        with eventually(lambda: psycopg.connect(through(postgres_server.url, pooler.port), connect_timeout=5)):
            pass
        yield pooler.port


def through(url: str, port: int) -> str:
    """The same database, by way of the pooler."""
    parts = conninfo_to_dict(url)
    return f"postgresql://{parts['user']}@127.0.0.1:{port}/{parts['dbname']}"


@pytest.fixture(scope="session")
def through_pooler(pooler: int) -> Callable[[str], str]:
    """Turns a database's URL into the pooler's."""
    return lambda url: through(url, pooler)


@pytest.fixture(scope="session")
def behind_pooler(postgres_server: Postgres, pooler: int) -> Iterator[str]:
    """The direct way to the database that is otherwise reached by the pooler."""
    with migrated(postgres_server) as url:
        yield url


@pytest.fixture
def pooled_url(behind_pooler: str, through_pooler: Callable[[str], str]) -> str:
    """An empty database with ``TYPE`` published, by way of the pooler."""
    empty(behind_pooler)
    return through_pooler(behind_pooler)
