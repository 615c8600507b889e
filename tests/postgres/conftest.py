"""A migrated database for each test, copied from one that was migrated once; and pgbouncer before the server."""

from __future__ import annotations

import os
import shutil
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from store.engines.postgres import Postgres
from store.engines.sockets import free_port
from store.postgres.store import PostgresStore
from tests.contract.acts import publish
from tests.contract.rows import TYPE
from tests.postgres.acts import eventually


@pytest.fixture(scope="session")
def migrated(postgres_server: Postgres) -> Iterator[str]:
    """The name of a database to copy; nobody is connected to it."""
    name = f"migrated_{uuid.uuid4().hex}"
    store = PostgresStore(postgres_server.create_database(name))
    store.migrate()
    publish(store, TYPE)
    store.close()
    yield name
    postgres_server.drop_database(name)


@pytest.fixture
def url(postgres_server: Postgres, migrated: str) -> Iterator[str]:
    """A migrated database of the test's own, with ``TYPE`` published."""
    name = f"test_{uuid.uuid4().hex}"
    yield postgres_server.create_database(name, migrated)
    postgres_server.drop_database(name)


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


@pytest.fixture(scope="session")
def pooler(postgres_server: Postgres, engine_home: Path) -> Iterator[int]:
    """The port of a pgbouncer in transaction mode, with two sessions for each database; it lets no setting through that
    it does not know."""
    program = shutil.which("pgbouncer", path="/usr/sbin:/usr/bin:/usr/local/bin:/usr/local/sbin")
    assert program is not None, "install pgbouncer: these tests need a real one"
    server = conninfo_to_dict(postgres_server.url)
    owner = postgres_server.data.stat()
    home = engine_home / "pgbouncer"
    home.mkdir()
    port = free_port()
    (home / "pgbouncer.ini").write_text(
        "[databases]\n"
        f"* = host={server['host']} port={server['port']} user={server['user']}\n"
        "[pgbouncer]\n"
        f"listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
        "auth_type = any\npool_mode = transaction\ndefault_pool_size = 2\nmax_client_conn = 200\n"
        f"logfile = {home / 'log'}\n"
    )
    os.chown(home, owner.st_uid, owner.st_gid)
    other = os.geteuid() == 0
    process = subprocess.Popen(
        [program, "-q", str(home / "pgbouncer.ini")],
        user=owner.st_uid if other else None,
        group=owner.st_gid if other else None,
        extra_groups=[] if other else None,
        stdin=subprocess.DEVNULL,
    )
    try:
        with eventually(lambda: psycopg.connect(through(postgres_server.url, port), connect_timeout=5)):
            pass
        yield port
    finally:
        process.terminate()
        process.wait(20)


def through(url: str, port: int) -> str:
    """The same database, by way of the pooler."""
    parts = conninfo_to_dict(url)
    return f"postgresql://{parts['user']}@127.0.0.1:{port}/{parts['dbname']}"


@pytest.fixture
def through_pooler(pooler: int) -> Callable[[str], str]:
    """Turns a database's URL into the pooler's."""
    return lambda url: through(url, pooler)


@pytest.fixture
def pooled_url(url: str, pooler: int) -> str:
    return through(url, pooler)
