"""What only Postgres can show of the outbox: transactions that commit late, strangers' rights, poolers, dumps."""

from __future__ import annotations

import subprocess
import uuid
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from store.contract import ANY_VERSION, Document
from store.engines.places import postgres_programs
from store.engines.postgres import Postgres
from store.errors import StoreUnavailable
from store.following import armed
from store.postgres.store import PostgresStore
from tests.contract.rows import TYPE, wake
from tests.contract.test_outbox import limit, turn
from tests.postgres.acts import eventually, one

WAKE = "SELECT dramaturg.wake('test.job', key => %s, request_id => 'req')"


def keys(store: PostgresStore, after: int | None = None) -> list[str | None]:
    return [event.key for event in store.events(after).events]


def test_an_event_that_commits_late_is_told_behind_the_cursor_that_did_not_wait_for_it(
    store: PostgresStore, url: str
) -> None:
    turn(store)
    with psycopg.connect(url) as first, psycopg.connect(url) as second, psycopg.connect(url) as third:
        first.execute(WAKE, ["late"])
        third.execute(WAKE, ["never"])
        second.execute(WAKE, ["early"])
        second.commit()
        page = store.events(0)
        assert [(event.position, event.key) for event in page.events] == [(1, "early")]
        assert store.events(page.cursor).events == []

        third.rollback()
        first.commit()
        page = store.events(page.cursor)
        assert [(event.position, event.key, event.request_id) for event in page.events] == [(2, "late", "req")]

        second.execute(WAKE, ["last"])
        second.commit()
        assert [event.position for event in store.events(page.cursor).events] == [3]
    assert keys(store, 0) == ["early", "late", "last"]


def test_a_reader_that_began_before_another_numbered_gives_no_position_twice(store: PostgresStore, url: str) -> None:
    turn(store)
    store.wake([wake("a")])
    with psycopg.connect(url) as slow, ThreadPoolExecutor(1) as pool:
        slow.execute("SELECT dramaturg.number_events(100)")  # has the lock, and has not committed
        store.wake([wake("b")])
        reading = pool.submit(store.events, 0)
        with psycopg.connect(url, autocommit=True) as watch:
            assert eventually(
                lambda: one(watch, "SELECT count(*) FROM pg_locks WHERE NOT granted") == 1,
            )
        slow.commit()
        assert [(event.position, event.key) for event in reading.result(30).events] == [(1, "a"), (2, "b")]


def test_of_two_that_switch_at_once_the_later_word_holds(store: PostgresStore, url: str) -> None:
    limit(store, duration=1.0)
    store.put(Document("sla", TYPE, ANY_VERSION, {"removed": True}))
    with psycopg.connect(url) as first, ThreadPoolExecutor(1) as pool, psycopg.connect(url, autocommit=True) as watch:
        assert one(first, "SELECT dramaturg.arm()") is True  # nothing is wanted any more, as far as it has seen
        store.put(Document("outbox", "events", ANY_VERSION, {"on": True}))
        second = pool.submit(armed, store)
        assert eventually(lambda: second.done() or one(watch, "SELECT count(*) FROM pg_locks WHERE NOT granted") == 1)
        first.commit()
        second.result(30)
    store.wake([wake("a")])
    assert keys(store) == ["a"]


def test_a_numbering_that_is_rolled_back_is_done_again(store: PostgresStore, url: str) -> None:
    turn(store)
    store.wake([wake("a")])
    with psycopg.connect(url) as gone:
        assert one(gone, "SELECT dramaturg.number_events(100)") == 1
        gone.rollback()
    assert store.extent() == (1, 1)
    assert keys(store, 0) == ["a"]


def test_a_numbering_under_an_old_snapshot_is_refused(store: PostgresStore, url: str) -> None:
    turn(store)
    store.wake([wake("a")])
    with psycopg.connect(url) as old:
        old.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        old.execute("SELECT 1")
        assert keys(store, 0) == ["a"]
        store.wake([wake("b")])
        with pytest.raises(psycopg.errors.SerializationFailure):
            old.execute("SELECT dramaturg.number_events(100)")


def test_positions_that_were_told_are_durable_even_where_commits_are_not(store: PostgresStore, url: str) -> None:
    turn(store)
    store.wake([wake("a")])
    with psycopg.connect(url, options="-c synchronous_commit=off") as lax:
        lax.execute("SELECT dramaturg.number_events(100)")
        assert one(lax, "SHOW synchronous_commit") == "on"
        lax.commit()
        assert one(lax, "SHOW synchronous_commit") == "off"


def test_a_stranger_who_may_only_wake_wakes_with_events_on(
    store: PostgresStore, url: str, postgres_server: Postgres
) -> None:
    turn(store)
    database = url.rsplit("/", 1)[1].split("?")[0]
    waker = f"waker_{uuid.uuid4().hex}"
    with psycopg.connect(postgres_server.admin_url, dbname=database, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {waker}")
        admin.execute(f"GRANT USAGE ON SCHEMA dramaturg TO {waker}")
        admin.execute(f"GRANT SELECT ON dramaturg.document TO {waker}")
        admin.execute(f"GRANT SELECT, INSERT, UPDATE ON dramaturg.job TO {waker}")
        try:
            admin.execute(f"SET ROLE {waker}")
            admin.execute("SET app.domain_allowlist = 'default'")
            admin.execute(WAKE, ["x"])
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                admin.execute("DELETE FROM dramaturg.outbox_arrival")
            assert keys(store, 0) == ["x"]
        finally:
            admin.execute("RESET ROLE")
            admin.execute(f"DROP OWNED BY {waker}")
            admin.execute(f"DROP ROLE {waker}")


def test_a_dump_that_is_restored_elsewhere_goes_on_with_its_positions(
    store: PostgresStore, url: str, postgres_server: Postgres
) -> None:
    turn(store)
    store.wake([wake("a"), wake("b")])
    assert [event.position for event in store.events(0).events] == [1, 2]
    store.wake([wake("c")])  # arrived, and not numbered yet
    name = f"restored_{uuid.uuid4().hex}"
    target = postgres_server.create_database(name)
    programs = postgres_programs()
    dump = [programs / "pg_dump", "--schema=dramaturg", "--no-owner", url]
    done = subprocess.run(dump, capture_output=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    sql = done.stdout
    restore = [programs / "psql", "--quiet", "--set=ON_ERROR_STOP=1", target]
    subprocess.run(restore, input=sql, capture_output=True, check=True, timeout=60)

    copy = PostgresStore(target)
    assert not copy.arm()  # it is on there, too
    copy.wake([wake("d")])
    assert [(event.position, event.key) for event in copy.events(2).events] == [(3, "c"), (4, "d")]
    copy.close()
    postgres_server.drop_database(name)


def test_switching_gives_way_to_a_transaction_that_writes_jobs(store: PostgresStore, url: str) -> None:
    store.put(Document("outbox", "events", ANY_VERSION, {"on": True}))
    with psycopg.connect(url) as busy:
        busy.execute(WAKE, ["x"])
        with pytest.raises(StoreUnavailable):
            store.arm()
        busy.commit()
    assert store.arm()


def test_events_travel_through_a_pooler_and_leave_nothing_in_a_session(pooled_url: str) -> None:
    stores = [PostgresStore(pooled_url) for _ in range(2)]
    turn(stores[0])

    def work(number: int) -> list[int]:
        store, seen, cursor = stores[number % 2], [], 0
        for step in range(10):
            store.wake([wake(f"{number}-{step}")])
            page = store.events(cursor, limit=5)
            seen += [event.position for event in page.events]
            cursor = page.cursor
        while len(seen) < 60:
            page = store.events(cursor)
            seen += [event.position for event in page.events]
            cursor = page.cursor
        return seen

    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(work, range(6), timeout=60)) == [list(range(1, 61))] * 6
    with psycopg.connect(pooled_url, prepare_threshold=None) as session:
        left = "SELECT count(*) FROM pg_settings WHERE source = 'session' AND name LIKE 'synchronous%%'"
        assert one(session, left) == 0
        assert one(session, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == 0
    for store in stores:
        store.close()
