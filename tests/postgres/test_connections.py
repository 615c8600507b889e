"""What becomes of connections: lost, hung, all in use, grown old."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from store.engines.postgres import Postgres
from store.errors import StoreUnavailable, UsageError
from store.postgres import connections
from store.postgres.store import PostgresStore
from tests.contract.acts import publish, read, take
from tests.contract.rows import TYPE, claim, wake
from tests.postgres.acts import SESSIONS, backend, eventually, one, sleeper

Connect = Callable[[], psycopg.Connection]


# --- lost -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def server(fresh_home: Path) -> Iterator[Postgres]:
    """A server that may be stopped."""
    with Postgres(fresh_home / "postgres") as server:
        yield server


def test_a_store_survives_its_server(server: Postgres) -> None:
    store = PostgresStore(server.url)
    store.migrate()
    publish(store, TYPE)
    store.wake([wake("before")])
    with store.transaction(), store.transaction():
        pass  # two idle connections

    server.restart()
    assert read(store, wake("before").id).state == "queued"

    server.stop()
    for _ in range(5):
        start = time.monotonic()
        with pytest.raises(StoreUnavailable):
            store.claim([claim(wake("before").id)])
        assert time.monotonic() - start < connections.QUEUEING
    server.start()
    assert take(store, wake("before").id).attempt == 1

    server.kill()
    server.start()
    assert read(store, wake("before").id).state == "processing"
    store.close()


def test_a_session_that_is_ended_between_two_verbs_is_not_noticed(store: PostgresStore, connect: Connect) -> None:
    pid, stranger = backend(store), connect()

    assert one(stranger, "SELECT pg_terminate_backend(%s, 10000)", pid)

    assert store.wake([wake()])[0].created
    assert backend(store) != pid


def test_a_session_that_is_ended_in_mid_statement_is_unavailable_and_the_store_goes_on(
    store: PostgresStore, connect: Connect
) -> None:
    stranger = connect()

    def sleep() -> None:
        with store.transaction() as tx:
            tx.wake([wake("lost")])
            tx.execute("SELECT pg_sleep(60)")

    with ThreadPoolExecutor(1) as pool:
        sleeping = pool.submit(sleep)
        one(stranger, "SELECT pg_terminate_backend(%s)", eventually(lambda: sleeper(stranger)))
        with pytest.raises(StoreUnavailable, match="57P01"):
            sleeping.result(20)

    assert store.read([wake("lost").id]) == [None]
    assert store.wake([wake("found")])[0].created


def test_a_session_that_is_ended_before_the_commit_is_unavailable(store: PostgresStore, connect: Connect) -> None:
    stranger = connect()

    with pytest.raises(StoreUnavailable), store.transaction() as tx:
        tx.wake([wake()])
        [(pid,)] = tx.execute("SELECT pg_backend_pid()")
        one(stranger, "SELECT pg_terminate_backend(%s, 10000)", pid)

    assert store.read([wake().id]) == [None]


def test_a_statement_that_somebody_cancels_is_unavailable(store: PostgresStore, connect: Connect) -> None:
    stranger = connect()

    def sleep() -> None:
        with store.transaction() as tx:
            tx.execute("SELECT pg_sleep(60)")

    with ThreadPoolExecutor(1) as pool:
        sleeping = pool.submit(sleep)
        one(stranger, "SELECT pg_cancel_backend(%s)", eventually(lambda: sleeper(stranger)))
        with pytest.raises(StoreUnavailable, match="57014"):
            sleeping.result(20)


# --- hung -------------------------------------------------------------------------------------------------------------


def test_a_server_that_does_not_answer_is_given_up(url: str) -> None:
    store = PostgresStore(url, patience=0.5)
    pid = backend(store)
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(StoreUnavailable):
            store.wake([wake()])
    finally:
        os.kill(pid, signal.SIGCONT)

    assert read_or_none(store) in (None, "queued")  # nothing is known of the wake
    assert backend(store) != pid
    store.close()


def read_or_none(store: PostgresStore) -> str | None:
    """The state of the row, where there is one."""
    [job] = store.read([wake().id])
    return None if job is None else job.state


def test_a_statement_that_takes_too_long_is_given_up_and_cancelled(url: str, connect: Connect) -> None:
    store, stranger = PostgresStore(url, patience=0.5), connect()

    with pytest.raises(StoreUnavailable), store.transaction() as tx:
        tx.execute("SELECT pg_sleep(60)")

    assert eventually(lambda: not sleeper(stranger))
    assert store.ping()
    store.close()


def test_a_lock_that_is_not_to_be_had_is_waited_for_but_not_for_ever(
    store: PostgresStore, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_BEGIN", connections._BEGIN.replace("'10s'", "'200ms'"))
    stranger = connect()

    with stranger.transaction():
        stranger.execute("LOCK TABLE dramaturg.document")
        with pytest.raises(StoreUnavailable, match="55P03"), store.transaction() as tx:
            tx.execute("SELECT * FROM dramaturg.document")

    assert store.list("policy")


# --- all in use -------------------------------------------------------------------------------------------------------


def test_when_all_connections_are_in_use_one_is_waited_for_but_not_for_ever(url: str) -> None:
    store = PostgresStore(url, pool_size=2, patience=0.3)

    with store.transaction(), store.transaction():
        with pytest.raises(StoreUnavailable, match="all 2 connections"):
            store.ping()

    assert store.ping()
    store.close()


def test_no_more_connections_are_made_than_allowed(url: str, connect: Connect) -> None:
    store, stranger = PostgresStore(url, pool_size=3), connect()
    with ThreadPoolExecutor(12) as pool:
        list(pool.map(lambda n: store.wake([wake(str(n))]), range(60)))

    assert 1 <= one(stranger, SESSIONS) <= 3
    store.close()
    assert eventually(lambda: one(stranger, SESSIONS) == 0)


@pytest.mark.parametrize("limit", ["LIFETIME", "IDLE"])
def test_connections_do_not_grow_old(
    store: PostgresStore, connect: Connect, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    stranger = connect()
    with store.transaction(), store.transaction():
        pass
    before = backend(store)
    assert backend(store) == before

    monkeypatch.setattr(connections, limit, 0.0)
    after = [backend(store), backend(store)]

    assert eventually(lambda: one(stranger, SESSIONS) == 1)  # those that were closed take a moment to be gone
    if limit == "LIFETIME":
        assert before not in after
        assert after[0] != after[1]


def test_no_session_is_left_in_a_transaction(store: PostgresStore, connect: Connect) -> None:
    stranger = connect()
    store.wake([wake(str(n)) for n in range(3)])
    changes = store.changes()
    take(store, wake("1").id)
    for _ in range(3):
        with pytest.raises(KeyError), store.transaction() as tx:
            tx.wake([wake("x")])
            raise KeyError
    while changes.wait(0.05):
        pass

    states = stranger.execute(
        "SELECT DISTINCT state, backend_xmin FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()"
    ).fetchall()
    changes.close()
    assert states == [("idle", None)]


def test_a_transaction_that_is_over_can_not_be_used_again(store: PostgresStore) -> None:
    with store.transaction() as tx:
        pass

    with pytest.raises(UsageError, match="over"):
        tx.wake([wake()])


@pytest.mark.parametrize(
    "wrong", ["postgresql://[", "postgresql://hidden-word@h/%zz", "postgresql://h/x?nonsense=hidden-word"]
)
def test_a_url_that_can_not_be_read_is_refused_at_once_and_not_shown(wrong: str) -> None:
    with pytest.raises(UsageError) as refused:
        PostgresStore(wrong)

    assert "hidden-word" not in str(refused.value)
