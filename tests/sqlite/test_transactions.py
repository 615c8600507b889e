"""What is particular about transactions on SQLite: one writer, and callers' connections in all their shapes."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from store import clock
from store.errors import Refused, StoreUnavailable, UsageError
from store.sqlite.store import SqliteStore
from tests.contract.acts import change, read
from tests.contract.rows import NOW, wake


@pytest.fixture
def caller(store: SqliteStore, path: Path) -> Iterator[sqlite3.Connection]:
    """A caller's own connection, as the driver makes it; it doesn't wait for locks."""
    with closing(sqlite3.connect(path, timeout=0)) as connection:
        yield connection


# --- ours -------------------------------------------------------------------------------------------------------------


def test_every_connection_is_durable_and_waits_by_itself(store: SqliteStore) -> None:
    with store.transaction() as tx:
        settings = {
            name: tx.execute(f"PRAGMA {name}")[0][0] for name in ("journal_mode", "synchronous", "busy_timeout")
        }

    assert settings == {"journal_mode": "wal", "synchronous": 2, "busy_timeout": 0}


def test_a_write_beside_a_transaction_of_the_same_thread_is_refused_at_once(store: SqliteStore) -> None:
    before = clock.elapsed()

    with store.transaction() as tx:
        for write in (lambda: store.wake([wake()]), lambda: store.transaction().__enter__()):
            with pytest.raises(UsageError, match="through that transaction"):
                write()
        assert store.read([wake().id]) == [None]
        tx.wake([wake()])

    assert clock.elapsed() - before < 9  # nobody waited for a lock
    assert store.wake([wake()])[0].created is False


def test_a_transaction_may_end_in_another_thread_than_it_began_in(store: SqliteStore) -> None:
    block = store.transaction()
    tx = block.__enter__()
    tx.wake([wake("a")])

    thread = threading.Thread(target=block.__exit__, args=(None, None, None))
    thread.start()
    thread.join()

    assert store.read([wake("a").id]) != [None]
    assert store.wake([wake("b")])[0].created


def test_a_transaction_that_has_ended_takes_no_more_work(store: SqliteStore) -> None:
    with store.transaction() as tx:
        tx.wake([wake()])

    for late in (partial(tx.wake, [wake()]), partial(tx.execute, "DELETE FROM dramaturg_job")):
        with pytest.raises(UsageError, match="ended"):
            late()
    assert read(store, wake().id).revision == 1


@pytest.mark.parametrize("statement", ["COMMIT", "ROLLBACK"])
def test_a_statement_can_not_end_our_transaction_unnoticed(store: SqliteStore, statement: str) -> None:
    def end() -> None:
        with store.transaction() as tx:
            tx.wake([wake()])
            tx.execute(statement)
            with pytest.raises(UsageError, match="ended"):
                tx.wake([wake()])

    with pytest.raises(UsageError, match="ended"):
        end()
    assert store.wake([wake("after")])[0].created


def test_who_waits_too_long_for_the_lock_hears_of_it(url: str, store: SqliteStore) -> None:
    hasty = SqliteStore(url, patience=0.05)

    with store.transaction():
        with pytest.raises(StoreUnavailable, match="transaction open"):
            hasty.wake([wake()])
        assert hasty.read([wake().id]) == [None]

    assert hasty.wake([wake()])[0].created
    hasty.close()


def test_closing_the_store_leaves_a_transaction_to_its_end(store: SqliteStore) -> None:
    with store.transaction() as tx:
        store.close()
        tx.wake([wake()])

    assert read(store, wake().id)


def test_more_threads_than_connections_are_kept_all_get_through(store: SqliteStore) -> None:
    woken: list[str] = []

    def work(number: int) -> None:
        for step in range(5):
            woken.append(store.wake([wake(f"{number}-{step}")])[0].id)
            assert store.read([woken[-1]]) != [None]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(woken) == 60
    assert all(store.read(woken))


def test_the_log_stays_small_however_much_is_written(store: SqliteStore, path: Path) -> None:
    for batch in range(20):
        store.wake([wake(f"{batch}-{number}", payload=f'"{"x" * 4000}"') for number in range(200)])

    assert path.stat().st_size > 12_000_000
    assert path.with_name("jobs.db-wal").stat().st_size < 12_000_000


# --- a caller's -------------------------------------------------------------------------------------------------------


def test_a_callers_connection_keeps_its_settings(store: SqliteStore, caller: sqlite3.Connection) -> None:
    caller.row_factory = sqlite3.Row
    caller.text_factory = lambda raw: raw.decode().upper()

    store.wake([wake("other", payload='"ß"', owner="ö")], now=NOW)

    tx = store.adopt(caller)
    [woken] = tx.wake([wake()])
    assert (woken.state, woken.id) == ("queued", wake().id)
    assert tx.read([wake("none").id, wake("other").id]) == [None, read(store, wake("other").id)]
    caller.commit()

    assert caller.row_factory is sqlite3.Row
    assert caller.execute("SELECT state AS s FROM dramaturg_job").fetchone()["s"] == "QUEUED"


def test_declared_types_of_a_caller_do_not_reach_us(store: SqliteStore, path: Path) -> None:
    def adopted() -> Any:
        with closing(sqlite3.connect(path, detect_types=sqlite3.PARSE_DECLTYPES)) as connection:
            tx = store.adopt(connection)
            [woken] = tx.wake([wake()])
            [row] = tx.read([woken.id])
            connection.commit()
        return woken, row

    sqlite3.register_converter("INTEGER", lambda raw: f"decoded {raw!r}")
    try:
        woken, row = adopted()
    finally:
        sqlite3.register_converter("INTEGER", int)

    assert row == read(store, woken.id)
    assert woken.generation == clock.micros(read(store, woken.id).created_at)


def test_a_refused_batch_leaves_nothing_in_a_transaction_that_is_committed_all_the_same(
    store: SqliteStore, caller: sqlite3.Connection
) -> None:
    store.wake([wake("old")], now=NOW)
    old = read(store, wake("old").id)
    tx = store.adopt(caller)
    tx.wake([wake("kept")])

    with pytest.raises(Refused, match="dramaturg_job_priority"):
        tx.wake([wake("first"), wake("bad", priority=11)])
    with pytest.raises(Refused, match="dramaturg_job_state"):
        tx.swap([change(old, retries=9), change(old._replace(revision=2), state="odd")])
    caller.commit()

    assert [row is not None for row in store.read([wake(key).id for key in ("kept", "first", "bad")])] == [
        True,
        False,
        False,
    ]
    assert read(store, old.id) == old


def test_the_first_wake_on_a_plain_connection_begins_its_transaction(
    store: SqliteStore, caller: sqlite3.Connection
) -> None:
    with pytest.raises(Refused):
        store.adopt(caller).wake([wake("good"), wake("bad", priority=0)])
    store.adopt(caller).wake([wake("a"), wake("b")])

    assert caller.in_transaction
    assert store.read([wake("a").id]) == [None]
    caller.rollback()
    assert store.read([wake(key).id for key in ("a", "b", "good")]) == [None, None, None]


def test_a_deferred_transaction_that_has_read_nothing_waits_for_its_turn(store: SqliteStore, path: Path) -> None:
    adopted, going_on = threading.Event(), threading.Event()

    def wait_and_wake() -> None:
        with closing(sqlite3.connect(path, timeout=30)) as connection:
            connection.execute("BEGIN")
            tx = store.adopt(connection)
            adopted.set()
            going_on.wait(30)
            tx.wake([wake("waited")])
            connection.commit()

    thread = threading.Thread(target=wait_and_wake)
    thread.start()
    assert adopted.wait(30)
    store.wake([wake("meanwhile")])
    going_on.set()
    thread.join()

    assert all(store.read([wake("waited").id, wake("meanwhile").id]))


def test_a_transaction_that_read_before_is_told_how_to_begin(store: SqliteStore, caller: sqlite3.Connection) -> None:
    caller.execute("BEGIN")
    caller.execute("SELECT count(*) FROM dramaturg_job").fetchall()
    tx = store.adopt(caller)
    store.wake([wake("meanwhile")])

    with pytest.raises(StoreUnavailable, match="BEGIN IMMEDIATE"):
        tx.wake([wake("late")])


def test_a_transaction_that_its_owner_ended_is_not_written_any_more(store: SqliteStore, path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        tx = store.adopt(connection)
        connection.execute("COMMIT")

        for late in (partial(tx.wake, [wake()]), partial(tx.execute, "DELETE FROM dramaturg_job")):
            with pytest.raises(UsageError, match="ended"):
                late()

    assert store.read([wake().id]) == [None]


def test_a_deletion_on_a_connection_without_foreign_keys_takes_the_history_along(
    store: SqliteStore, caller: sqlite3.Connection
) -> None:
    store.wake([wake()])
    with store.transaction() as tx:
        tx.execute(
            "INSERT INTO dramaturg_history (job_id, at, kind, attempt, detail) VALUES (:id, 1, 'counted', 1, '{}')",
            {"id": wake().id},
        )
    assert len(store.history(wake().id)) == 1

    caller.execute("PRAGMA foreign_keys = OFF")
    caller.execute("DELETE FROM dramaturg_job")
    caller.commit()

    assert store.history(wake().id) == []


def elsewhere(tmp_path: Path) -> sqlite3.Connection:
    return sqlite3.connect(tmp_path / "another.db")


@pytest.mark.parametrize("make", [lambda _: sqlite3.connect(":memory:"), elsewhere], ids=["memory", "another file"])
def test_a_connection_to_another_database_is_refused(
    store: SqliteStore, path: Path, tmp_path: Path, make: Callable[[Path], sqlite3.Connection]
) -> None:
    with closing(make(tmp_path)) as connection, pytest.raises(Refused, match=str(path)):
        store.adopt(connection)


def test_a_connection_by_another_way_to_the_same_file_is_taken(store: SqliteStore, path: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(path.parent)
    with closing(sqlite3.connect(tmp_path / "link" / "jobs.db")) as connection:
        store.adopt(connection).wake([wake()])
        connection.commit()

    assert read(store, wake().id)


def test_a_connection_that_commits_every_statement_is_told_to_begin(store: SqliteStore, path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        with pytest.raises(UsageError, match="BEGIN IMMEDIATE"):
            store.adopt(connection)


def test_a_connection_that_is_closed_or_of_another_thread_is_told(store: SqliteStore, path: Path) -> None:
    closed = sqlite3.connect(path)
    closed.close()
    made: list[sqlite3.Connection] = []
    thread = threading.Thread(target=lambda: made.append(sqlite3.connect(path)))
    thread.start()
    thread.join()

    for connection in (closed, *made):
        with pytest.raises(UsageError, match="closed"):
            store.adopt(connection)


def test_a_transaction_of_another_store_is_refused(store: SqliteStore, tmp_path: Path) -> None:
    another = SqliteStore(f"sqlite:///{tmp_path}/another.db")
    another.migrate()

    with another.transaction() as tx, pytest.raises(UsageError, match="another store"):
        store.adopt(tx)
    another.close()


def test_reading_begins_nothing_on_a_callers_connection(store: SqliteStore, caller: sqlite3.Connection) -> None:
    store.wake([wake()])

    [row] = store.adopt(caller).read([wake().id])
    store.wake([wake()])

    assert row is not None
    assert not caller.in_transaction
    [again] = store.adopt(caller).read([wake().id])
    assert again is not None
    assert again.revision == row.revision + 1
