"""What a user without rights hears, and what a full disk leaves behind. Root may do anything, so a child gives up
being root first."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from store.errors import StoreUnavailable, UsageError
from store.events import GiveBack
from store.sqlite.store import SqliteStore
from tests.contract.acts import settle, take
from tests.contract.rows import wake
from tests.sqlite.children import Fork, fork

__all__ = ["fork"]

NOBODY = 65534


@pytest.fixture
def readable() -> Iterator[Path]:
    """A directory that everybody may read and nobody but root write, with a migrated database in it."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        store = SqliteStore(f"sqlite:///{directory}/jobs.db")
        store.migrate()
        store.close()
        (directory / "jobs.db").chmod(0o444)
        directory.chmod(0o555)
        yield directory
        directory.chmod(0o755)


def refused(act: Callable[[], object], *words: str) -> Callable[[], None]:
    """As somebody without rights: ``act`` raises StoreUnavailable, and says ``words``."""

    def run() -> None:
        if os.geteuid() == 0:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
        with pytest.raises(StoreUnavailable) as caught:
            act()
        for word in words:
            assert word in str(caught.value)

    return run


def fill(store: SqliteStore, *, spare: int) -> None:
    """Let the database grow by ``spare`` pages and no more, as far as the connection lent next is concerned."""
    with store._connections.lend() as connection:
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages + spare}")


def test_a_database_that_may_not_be_written_is_told(readable: Path, fork: Fork) -> None:
    store = SqliteStore(f"sqlite:///{readable}/jobs.db")

    assert fork(refused(lambda: store.wake([wake()]), f"{readable}/jobs.db", "write")).wait() == 0


def test_a_directory_that_may_not_be_made_is_told(readable: Path, fork: Fork) -> None:
    store = SqliteStore(f"sqlite:///{readable}/data/jobs.db")

    assert fork(refused(store.migrate, f"{readable}/data", "EACCES")).wait() == 0


def test_a_directory_in_which_nothing_may_be_made_is_told(readable: Path, fork: Fork) -> None:
    store = SqliteStore(f"sqlite:///{readable}/other.db")

    assert fork(refused(store.migrate, f"{readable}/other.db", "write")).wait() == 0


def test_a_directory_that_may_not_be_entered_is_told(readable: Path, fork: Fork) -> None:
    (readable / "jobs.db").chmod(0o644)
    readable.chmod(0o000)
    store = SqliteStore(f"sqlite:///{readable}/jobs.db")

    assert fork(refused(lambda: store.wake([wake()]), f"{readable}/jobs.db", "EACCES")).wait() == 0


def test_a_full_disk_is_told_and_loses_nothing_that_was_committed(store: SqliteStore, path: Path) -> None:
    store.wake([wake("before")])
    fill(store, spare=2)

    with pytest.raises(StoreUnavailable, match="free some space") as caught:
        store.wake([wake(str(number), payload=f'"{"x" * 4000}"') for number in range(20)])

    assert str(path) in str(caught.value)
    assert store.read([wake("before").id, wake("0").id])[0] is not None
    assert store.read([wake("0").id]) == [None]
    assert store.wake([wake("after")])[0].created


def test_a_full_disk_in_the_history_takes_the_rows_with_it_and_is_told(store: SqliteStore) -> None:
    store.wake([wake()])
    job = take(store, wake().id)
    assert job.lease_id
    fill(store, spare=0)

    with capture_logs() as logs, pytest.raises(StoreUnavailable, match="free some space"):
        settle(store, job, GiveBack(job.lease_id, job.attempt, 1.0, "x" * 9000))

    assert store.read([job.id]) == [job]
    assert not logs


def test_a_transaction_that_a_full_disk_has_undone_takes_no_more_work(store: SqliteStore) -> None:
    with store.transaction() as tx:
        tx.execute("CREATE TABLE notes (text TEXT)")
    fill(store, spare=0)

    def go_on_regardless() -> None:
        with store.transaction() as tx:
            tx.wake([wake()])
            with pytest.raises(StoreUnavailable, match="free some space"):
                tx.execute("INSERT INTO notes VALUES (:text)", {"text": "x" * 9000})
            with pytest.raises(UsageError, match="ended"):
                tx.wake([wake()])
            with pytest.raises(UsageError, match="ended"):
                tx.execute("INSERT INTO notes VALUES ('small')")

    with pytest.raises(UsageError, match="ended"):
        go_on_regardless()

    with store.transaction() as tx:
        assert tx.execute("SELECT count(*) FROM notes") == [(0,)]
    assert store.read([wake().id]) == [None]


def test_a_wake_that_found_no_room_is_undone_by_itself_where_the_transaction_goes_on(
    store: SqliteStore, path: Path
) -> None:
    with closing(sqlite3.connect(path)) as connection:
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages}")
        tx = store.adopt(connection)
        tx.wake([wake("before")])
        with pytest.raises(StoreUnavailable, match="free some space"):
            tx.wake([wake("large", payload=f'"{"x" * 9000}"')])
        tx.wake([wake("next")])
        connection.commit()

    states = [row and row.state for row in store.read([wake(key).id for key in ("before", "large", "next")])]
    assert states == ["queued", None, "queued"]


def test_what_follows_in_a_callers_undone_transaction_does_not_begin_another(store: SqliteStore, path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages}")
        tx = store.adopt(connection)
        tx.wake([wake("lost")])
        with pytest.raises(StoreUnavailable, match="free some space"):
            tx.wake([wake(key, payload=f'"{"x" * 9000}"') for key in ("large", "larger")])

        with pytest.raises(UsageError, match="ended"):
            tx.wake([wake("next")])
        connection.commit()

    assert store.read([wake(key).id for key in ("lost", "large", "next")]) == [None, None, None]
