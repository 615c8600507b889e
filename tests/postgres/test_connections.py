"""What becomes of connections: lost, hung, all in use, forked, and the caller's own."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from psycopg.rows import dict_row

from store.clock import PARKED
from store.engines.postgres import Postgres
from store.errors import StoreUnavailable, UsageError
from store.postgres import connections
from store.postgres.store import PostgresStore
from tests.contract.acts import publish, read, take
from tests.contract.rows import TYPE, claim, wake
from tests.postgres.acts import SESSIONS, eventually, in_a_child, one

Connect = Callable[[], psycopg.Connection]


def backend(store: PostgresStore) -> int:
    """The server's process that the store's next statement goes to."""
    with store.transaction() as tx:
        [(pid,)] = tx.execute("SELECT pg_backend_pid()")
    return int(pid)


def sleeper(connection: psycopg.Connection) -> int:
    """The server's process that runs pg_sleep; 0 where there is none."""
    active = (
        "SELECT coalesce(max(pid), 0) FROM pg_stat_activity WHERE state = 'active' AND query LIKE '%pg_sleep%' "
        "AND datname = current_database() AND pid <> pg_backend_pid()"
    )
    return int(one(connection, active))


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

    assert one(stranger, SESSIONS) == 1
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


# --- forked -----------------------------------------------------------------------------------------------------------


def test_a_child_makes_connections_of_its_own_and_leaves_the_parents_alone(store: PostgresStore) -> None:
    parents = backend(store)

    def work() -> str:
        assert store.wake([wake("child")])[0].created
        take(store, wake("child").id)
        pid = backend(store)
        store.close()
        return str(pid)

    childs = int(in_a_child(work))

    assert childs != parents == backend(store)
    assert read(store, wake("child").id).state == "processing"


def test_four_children_claim_each_row_once(store: PostgresStore) -> None:
    ids = [woken.id for woken in store.wake([wake(str(n)) for n in range(40)])]
    backend(store)

    def drain() -> str:
        return " ".join(answer.job.id for id_ in ids for answer in store.claim([claim(id_)]) if answer.job)

    with ThreadPoolExecutor(4) as pool:
        taken = [pool.submit(in_a_child, drain) for _ in range(4)]

    got = [id_ for child in taken for id_ in child.result(60).split()]
    assert sorted(got) == sorted(ids)
    assert {read(store, id_).attempt for id_ in ids} == {1}


def test_a_fork_in_the_middle_of_everything_harms_neither_side(store: PostgresStore, connect: Connect) -> None:
    stranger, stop = connect(), threading.Event()

    def busy() -> int:
        turns = 0
        while not stop.is_set():
            turns += store.wake([wake("busy")])[0].id == wake("busy").id
        return turns

    def sleep() -> list[tuple[object, ...]]:
        with store.transaction() as tx:
            tx.wake([wake("kept")])
            return tx.execute("SELECT 1 FROM pg_sleep(1)")

    with ThreadPoolExecutor(4) as pool:
        work = [pool.submit(busy) for _ in range(3)]
        sleeping = pool.submit(sleep)
        eventually(lambda: sleeper(stranger))
        with store.transaction() as tx:
            tx.wake([wake("open")])
            for n in range(5):
                assert in_a_child(lambda n=n: store.wake([wake(f"child-{n}")])[0].id) == wake(f"child-{n}").id  # type: ignore[misc]
        stop.set()
        assert sleeping.result(30) == [(1,)]
        assert all(each.result(30) for each in work)

    assert all(store.read([wake(key).id for key in ("kept", "open", "child-0", "child-4")]))


def test_a_child_can_send_nothing_on_what_it_inherited(store: PostgresStore) -> None:
    with store.transaction() as tx:
        tx.wake([wake()])

        def work() -> str:
            try:
                tx.execute("SELECT 1")
            except StoreUnavailable:
                return "gone"
            return "sent"

        assert in_a_child(work) == "gone"
        assert tx.execute("SELECT 1") == [(1,)]

    assert read(store, wake().id)


def test_the_server_sees_the_end_of_a_parent_whose_child_lives_on(url: str, connect: Connect) -> None:
    stranger = connect()
    holds, lives = os.pipe()

    parent = os.fork()
    if not parent:
        try:
            with PostgresStore(url).transaction() as tx:
                tx.wake([wake()])
                if not os.fork():
                    os.close(lives)
                    os.read(holds, 1)  # until the test lets go
        finally:
            os._exit(0)  # the parent as in a crash, in the middle of its transaction
    os.waitpid(parent, 0)

    assert eventually(lambda: one(stranger, SESSIONS) == 0)
    os.close(lives)
    os.close(holds)


# --- the caller's own -------------------------------------------------------------------------------------------------


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
