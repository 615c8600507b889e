"""Limits as SQL meets them: from any language, with few rights, and with transactions that stay open."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from store.contract import ANY_VERSION, Document
from store.engines.postgres import Postgres
from store.limits import Quota, list_key, remove_quota, set_quota
from store.postgres.store import PostgresStore
from tests.contract.acts import publish
from tests.contract.rows import TYPE, claim, wake
from tests.postgres.conftest import migrated

WAKE = f"SELECT (dramaturg.wake('{TYPE}', key => %s)).id"
LIMITED = "SELECT to_regclass('dramaturg.limited') IS NOT NULL"


@pytest.fixture
def url(postgres_server: Postgres) -> Iterator[str]:
    with migrated(postgres_server) as url:
        yield url


@pytest.fixture
def store(url: str) -> Iterator[PostgresStore]:
    store = PostgresStore(url)
    publish(store, TYPE)
    yield store
    store.close()


@pytest.fixture
def sql(url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(url, autocommit=True) as connection:
        yield connection


def sqlstate(connection: psycopg.Connection, key: str) -> str | None:
    with pytest.raises(psycopg.Error) as raised:
        connection.execute(WAKE, [key])
    return raised.value.sqlstate


def test_a_wake_by_sql_is_refused_as_one_from_python(store: PostgresStore, sql: psycopg.Connection) -> None:
    set_quota(store, Quota("default", None, max_queued=1))
    sql.execute(WAKE, ["a"])
    assert sqlstate(sql, "b") == "DG002"
    remove_quota(store, "default", None)
    store.put(Document("allow", list_key("types"), ANY_VERSION, {"names": ["another"]}))
    assert sqlstate(sql, "b") == "DG003"


def test_what_counts_and_marks_runs_with_its_owners_rights(sql: psycopg.Connection) -> None:
    """Whoever may only wake or claim can't write documents, and is counted all the same."""
    found = sql.execute(
        "SELECT proname, prosecdef, proconfig[1] FROM pg_proc "
        "WHERE proname IN ('admit_wakes', 'mark_limited', 'take_turns') ORDER BY 1"
    ).fetchall()
    guarded = "search_path=pg_catalog, pg_temp"
    assert found == [(name, True, guarded) for name in ("admit_wakes", "mark_limited", "take_turns")]


def test_an_open_transaction_that_has_woken_keeps_no_claim_from_its_place(store: PostgresStore, url: str) -> None:
    set_quota(store, Quota("default", None, max_queued=5, max_in_flight=1))
    id_ = store.wake([wake("a")])[0].id
    with psycopg.connect(url) as caller:
        caller.execute(WAKE, ["b"])
        assert store.claim([claim(id_)])[0].job is not None


def test_the_mark_of_limits_comes_with_the_first_and_goes_with_the_last(
    store: PostgresStore, sql: psycopg.Connection
) -> None:
    def limited() -> bool:
        [found] = sql.execute(LIMITED).fetchone() or ()
        return bool(found)

    assert not limited()
    with pytest.raises(ZeroDivisionError), store.transaction() as tx:
        tx.put(Document("quota", "a\x1f", 0, {"max_queued": 1}))
        raise ZeroDivisionError
    assert not limited()
    set_quota(store, Quota("a", None, max_queued=1))
    store.put(Document("allow", list_key("types"), 0, {"names": []}))
    assert limited()
    remove_quota(store, "a", None)
    assert limited()
    store.remove("allow", list_key("types"))
    assert not limited()
