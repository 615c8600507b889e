"""Statements of the hot path are prepared in a session of our own; one that has lost them serves all the same."""

from __future__ import annotations

from collections.abc import Callable

import psycopg

from store.postgres.connections import Connections
from store.postgres.store import PostgresStore
from tests.contract.acts import publish
from tests.contract.rows import TYPE, wake
from tests.postgres.acts import one

PREPARED = "SELECT count(*) FROM pg_prepared_statements"


def prepared(store: PostgresStore) -> int:
    """Of the session that the store's next statement goes to."""
    with store.transaction() as tx:
        [(count,)] = tx.execute(PREPARED)
    return int(count)


def woken(store: PostgresStore) -> None:
    assert store.wake([wake(None)], notify=False)[0].created


def test_what_is_asked_once_is_not_prepared_and_what_is_asked_again_is(store: PostgresStore) -> None:
    woken(store)
    assert prepared(store) == 0

    for _ in range(3):
        woken(store)
    assert prepared(store) == 1


def test_a_session_that_forgot_what_was_prepared_is_asked_in_plain_words(
    store: PostgresStore, connect: Callable[[], psycopg.Connection]
) -> None:
    publish(store, TYPE)
    for _ in range(3):
        woken(store)
        store.due()
    assert prepared(store) == 2
    with store.transaction() as tx:
        tx.execute("DEALLOCATE ALL")

    woken(store)
    assert len(store.due()) == 4
    assert prepared(store) == 0
    assert one(connect(), "SELECT count(*) FROM dramaturg.job") == 4


def test_a_statement_whose_answer_has_got_other_columns_is_asked_anew(url: str) -> None:
    connections = Connections(url, 1)
    with connections.lend() as connection:
        for kind, size in (("smallint", 2), ("bigint", 8)):
            connection.execute("DROP FUNCTION IF EXISTS pg_temp.seven()")
            connection.execute(f"CREATE FUNCTION pg_temp.seven() RETURNS {kind} LANGUAGE sql AS 'SELECT 7::{kind}'")
            for _ in range(3):
                assert connection.ask(b"SELECT pg_temp.seven()", []).get_value(0, 0) == b"\x07".rjust(size, b"\0")
    connections.close()
