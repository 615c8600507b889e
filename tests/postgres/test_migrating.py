"""Making the schema: beside others, without rights, in the wrong database, and as a user of an unlucky name."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from store.contract import Store
from store.engines.postgres import ADMIN, Postgres
from store.errors import Refused, StoreUnavailable
from store.job import COLUMNS
from store.postgres import migrating
from store.postgres.store import PostgresStore
from tests.contract.acts import publish, take
from tests.contract.rows import TYPE, wake
from tests.postgres.acts import one


@pytest.fixture
def admin(postgres_server: Postgres) -> Iterator[psycopg.Connection]:
    with psycopg.connect(postgres_server.url_of(ADMIN, ADMIN), autocommit=True) as connection:
        yield connection


@pytest.fixture
def stranger(postgres_server: Postgres, postgres_url: str, admin: psycopg.Connection) -> Iterator[str]:
    """The URL of a database for a user who may connect to it and nothing else."""
    name = f"stranger_{uuid.uuid4().hex}"
    admin.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(name)))
    yield postgres_url.replace("dramaturg@", f"{name}@")
    admin.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(name)))


def user_of(url: str) -> str:
    return str(conninfo_to_dict(url)["user"])


def test_the_table_has_the_columns_of_a_job_in_their_order(url: str) -> None:
    with psycopg.connect(url) as connection:
        names = connection.execute(
            "SELECT attname FROM pg_attribute WHERE attrelid = 'dramaturg.job'::regclass AND attnum > 0 ORDER BY attnum"
        ).fetchall()

    assert tuple(name for (name,) in names) == COLUMNS


def test_a_user_who_may_not_create_is_told_which_right_is_missing(stranger: str) -> None:
    with pytest.raises(Refused, match="lacks a right") as refused:
        PostgresStore(stranger).migrate()

    assert "CREATE" not in str(refused.value)


@contextmanager
def granted(url: str, user: str, *grants: str) -> Iterator[None]:
    """Rights that the tables' owner gives to a user, and takes back."""
    role = sql.Identifier(user)
    with psycopg.connect(url, autocommit=True) as owner:
        for grant in grants:
            owner.execute(sql.SQL("GRANT {} TO {}").format(sql.SQL(grant), role))
        yield
        for grant in grants:
            owner.execute(sql.SQL("REVOKE {} FROM {}").format(sql.SQL(grant), role))


def test_a_user_who_may_not_create_finds_nothing_to_do_where_all_is_done(stranger: str, postgres_url: str) -> None:
    PostgresStore(postgres_url).migrate()
    rights = (
        "USAGE ON SCHEMA dramaturg",
        "SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA dramaturg",
        "USAGE ON ALL SEQUENCES IN SCHEMA dramaturg",
    )
    with granted(postgres_url, user_of(stranger), *rights):
        store = PostgresStore(stranger, scope="*")
        assert store.migrate() == 0
        store.check_schema()
        publish(store, TYPE)
        assert store.wake([wake()])[0].created
        assert take(store, wake().id).attempt == 1
        store.close()


def test_whoever_only_wakes_needs_few_rights(stranger: str, postgres_url: str) -> None:
    PostgresStore(postgres_url).migrate()
    rights = (
        "USAGE ON SCHEMA dramaturg",
        "SELECT ON dramaturg.document",
        "SELECT, INSERT, UPDATE ON dramaturg.job",
    )
    with (
        granted(postgres_url, user_of(stranger), *rights),
        psycopg.connect(stranger, autocommit=True, options="-c app.domain_allowlist=default") as caller,
    ):
        for _ in range(2):
            assert one(caller, "SELECT (dramaturg.wake('x', key => '7')).state") == "queued"
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            caller.execute("SELECT * FROM dramaturg.history")


def test_a_database_that_keeps_no_utf8_is_refused(postgres_server: Postgres, admin: psycopg.Connection) -> None:
    name = f"ascii_{uuid.uuid4().hex}"
    admin.execute(
        sql.SQL("CREATE DATABASE {} OWNER dramaturg ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0").format(
            sql.Identifier(name)
        )
    )
    try:
        with pytest.raises(Refused, match="UTF8"):
            PostgresStore(postgres_server.url_of(name)).migrate()
        with pytest.raises(Refused, match="dramaturg migrate"):
            PostgresStore(postgres_server.url_of(name)).check_schema()
    finally:
        postgres_server.drop_database(name)


def test_a_migrator_that_never_ends_does_not_hold_up_the_others_for_ever(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with psycopg.connect(postgres_url) as other:
        other.execute(migrating._ALONE)
        monkeypatch.setattr(migrating, "_ALONE", migrating._ALONE.replace("'60s'", "'100ms'"))
        with pytest.raises(StoreUnavailable, match="55P03"):
            PostgresStore(postgres_url).migrate()
        other.rollback()

    assert PostgresStore(postgres_url).migrate() > 0


def test_a_user_who_is_called_as_our_schema_makes_tables_beside_ours(
    store: Store, connect: Callable[[], psycopg.Connection]
) -> None:
    connection = connect()
    assert one(connection, "SELECT current_user") == "dramaturg"

    with store.transaction() as tx:
        tx.execute("CREATE TABLE job (note text)")
        tx.execute("INSERT INTO job VALUES ('mine')")
        tx.wake([wake()])
        assert tx.execute("SELECT * FROM job") == [("mine",)]

    try:
        assert one(connection, "SELECT note FROM public.job") == "mine"
        assert len(store.due()) == 1
    finally:
        connection.execute("DROP TABLE public.job")
