"""Where the database lies, and what is said of a place that won't do."""

from __future__ import annotations

import os
import sqlite3
import stat
from pathlib import Path

import pytest

from store.contract import Store
from store.errors import Refused, StoreUnavailable, UsageError
from store.sqlite import place
from store.sqlite.store import SqliteStore
from tests.contract.rows import wake


def test_three_slashes_name_a_relative_path_and_four_an_absolute_one() -> None:
    assert place.path_of("sqlite:///data/jobs.db") == Path.cwd() / "data" / "jobs.db"
    assert place.path_of("sqlite:////var/data/jobs.db") == Path("/var/data/jobs.db")


def test_a_relative_path_stays_what_it_was_when_the_program_goes_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    store = SqliteStore("sqlite:///jobs.db")
    monkeypatch.chdir(tmp_path / "there")

    store.migrate()
    store.close()

    assert (tmp_path / "here" / "jobs.db").is_file()


@pytest.mark.parametrize("name", ["a b.db", "ü%20#1.db", "50%.db", "a;b'c\".db"])
def test_a_path_is_taken_as_it_stands(tmp_path: Path, name: str) -> None:
    store = SqliteStore(f"sqlite:///{tmp_path}/{name}")
    store.migrate()
    store.wake([wake()])
    store.close()

    assert [found.name for found in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize(
    "url",
    ["sqlite:", "sqlite://", "sqlite:///", "sqlite:////", "sqlite://jobs.db", "jobs.db", "sqlite:///data/"],
)
def test_a_url_without_a_path_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="sqlite:///relative"):
        SqliteStore(url)


@pytest.mark.parametrize("url", ["sqlite:///:memory:", "sqlite:///jobs.db?mode=memory"])
def test_a_database_that_processes_can_not_share_and_options_are_refused(url: str) -> None:
    with pytest.raises(UsageError):
        SqliteStore(url)


def test_a_missing_directory_is_made_for_its_owner_alone(path: Path, store: Store) -> None:
    assert path.is_file()
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_only_migrating_makes_a_database(path: Path, url: str) -> None:
    store = SqliteStore(url)

    with pytest.raises(StoreUnavailable, match="dramaturg migrate") as refused:
        store.wake([wake()])
    with pytest.raises(Refused, match="dramaturg migrate"):
        store.check_schema()

    assert str(path) in str(refused.value)
    assert not path.parent.exists()


def test_a_file_in_the_place_of_the_directory_is_told(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("in the way")

    with pytest.raises(StoreUnavailable, match=f"{tmp_path}/data"):
        SqliteStore(f"sqlite:///{tmp_path}/data/jobs.db").migrate()


def test_a_directory_in_the_place_of_the_file_is_told(path: Path, url: str) -> None:
    path.mkdir(parents=True)

    with pytest.raises(StoreUnavailable, match=str(path)):
        SqliteStore(url).migrate()


def test_a_file_that_is_no_database_is_told_and_left_alone(path: Path, url: str) -> None:
    path.parent.mkdir()
    path.write_bytes(b"a letter to a friend\n" * 500)
    store = SqliteStore(url)

    for act in (store.migrate, store.ping):
        with pytest.raises(StoreUnavailable, match="not a SQLite database"):
            act()

    assert path.read_bytes() == b"a letter to a friend\n" * 500


def test_a_database_without_our_tables_is_told(path: Path, url: str) -> None:
    path.parent.mkdir()
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE theirs (id integer)")
    connection.close()

    with pytest.raises(Refused, match="dramaturg migrate"):
        SqliteStore(url).wake([wake()])


def test_our_tables_can_stand_beside_a_callers(path: Path, url: str) -> None:
    path.parent.mkdir()
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE job (id integer)")
    connection.close()
    store = SqliteStore(url)

    assert store.migrate() > 0
    assert store.wake([wake()])[0].created
    store.close()


def test_a_database_that_was_removed_under_us_is_told_and_made_anew_by_migrating(path: Path, store: Store) -> None:
    store.wake([wake()])
    for file in path.parent.iterdir():
        file.unlink()
    path.parent.rmdir()

    with pytest.raises(StoreUnavailable, match=str(path)):
        store.wake([wake()])
    with pytest.raises(StoreUnavailable, match=str(path)):
        store.due()

    assert store.migrate() > 0
    assert store.wake([wake()])[0].created


def test_a_database_that_took_the_place_of_ours_is_the_one_that_is_written(
    path: Path, store: Store, tmp_path: Path
) -> None:
    elsewhere = SqliteStore(f"sqlite:///{tmp_path}/another.db")
    elsewhere.migrate()
    elsewhere.close()
    store.wake([wake("before")])

    path.rename(path.with_name("moved.db"))
    (tmp_path / "another.db").rename(path)
    for left in ("-wal", "-shm"):
        path.with_name(path.name + left).unlink(missing_ok=True)
    [woken] = store.wake([wake("after")])

    reader = sqlite3.connect(path)
    assert reader.execute("SELECT id FROM dramaturg_job").fetchall() == [(woken.id,)]
    reader.close()


def test_an_older_sqlite_is_refused_in_plain_words(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 37, 2))

    with pytest.raises(Refused, match=r"3\.38"):
        SqliteStore(url)


def test_making_a_store_opens_nothing(path: Path, url: str) -> None:
    before = os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else []

    SqliteStore(url)

    assert not path.parent.exists()
    assert before == (os.listdir("/proc/self/fd") if before else [])
