"""A caller's own connection: used as it is, and left as it was."""

from __future__ import annotations

import psycopg
import pytest
from psycopg.rows import dict_row

from store.clock import PARKED
from store.errors import UsageError
from store.postgres.store import PostgresStore
from tests.contract.rows import wake


def test_nothing_of_a_callers_connection_is_changed(store: PostgresStore, url: str) -> None:
    with psycopg.connect(url, row_factory=dict_row, prepare_threshold=1) as connection:
        for key in "abc":
            tx = store.adopt(connection)
            tx.wake([wake(key)])
            tx.execute("SELECT %(a)s::int", {"a": 1})
        row = connection.execute(
            "SELECT count(*) AS prepared, gen_random_uuid() AS id, '{}'::jsonb AS json, "
            "current_setting('lock_timeout') AS patience FROM pg_prepared_statements"
        ).fetchone()
        assert row is not None
        assert (row["prepared"], type(row["id"]).__name__, row["json"], row["patience"]) == (0, "UUID", {}, "0")


def test_an_async_connection_is_refused_with_the_way_out(store: PostgresStore) -> None:
    with pytest.raises(UsageError, match=r"dramaturg\.wake"):
        store.adopt(object.__new__(psycopg.AsyncConnection))


def test_a_connection_in_autocommit_is_adopted_inside_its_transaction_block(store: PostgresStore, url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        with pytest.raises(UsageError, match="commits each statement"):
            store.adopt(connection)
        with connection.transaction(force_rollback=True):
            store.adopt(connection).wake([wake("a")])
        with connection.transaction():
            store.adopt(connection).wake([wake("b")])

    assert [job is not None for job in store.read([wake("a").id, wake("b").id])] == [False, True]


def test_a_connection_whose_transaction_failed_or_that_is_closed_is_refused(store: PostgresStore, url: str) -> None:
    with psycopg.connect(url) as connection:
        with pytest.raises(psycopg.Error):
            connection.execute("SELECT 1 / 0")
        with pytest.raises(UsageError, match="failed"):
            store.adopt(connection)
    with pytest.raises(UsageError, match="closed"):
        store.adopt(connection)


def test_statements_of_a_caller_see_ids_and_json_as_text_and_moments_in_utc(store: PostgresStore) -> None:
    with store.transaction() as tx:
        tx.execute("SET LOCAL TIME ZONE 'Asia/Kathmandu'")
        [row] = tx.execute(
            """SELECT '01a22e8d-9075-7131-ba6d-6f4445f86e05'::uuid, '{"a": 1}'::json, '{"a":1}'::jsonb,
               timestamptz 'infinity', timestamptz '2026-05-04 12:00+00', %(now)s = timestamptz 'infinity',
               NULL::uuid""",
            {"now": PARKED},
        )

    assert row[:3] == ("01a22e8d-9075-7131-ba6d-6f4445f86e05", '{"a": 1}', '{"a": 1}')
    assert row[3] == PARKED
    assert row[4].isoformat() == "2026-05-04T12:00:00+00:00"
    assert row[5:] == (True, None)
