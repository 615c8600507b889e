"""Several processes on one file: no job twice, no error for a lock, nothing lost by a kill."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from store.events import Claim
from store.filters import Filter
from store.identity import new_lease_id
from store.sqlite.store import SqliteStore
from tests.contract.rows import wake
from tests.sqlite.children import Fork, Line, fork

__all__ = ["fork"]

JOBS = 120
TAKEN = Filter(states=("processing",))


def test_six_claim_while_a_seventh_wakes_and_no_job_is_taken_twice(url: str, store: SqliteStore, fork: Fork) -> None:
    taken = Line()

    def wake_all() -> None:
        mine = SqliteStore(url)
        for number in range(JOBS):
            mine.wake([wake(str(number))])

    def claim_all() -> None:
        mine, signal = SqliteStore(url), SqliteStore(url).changes()
        while len(mine.find(TAKEN, limit=JOBS)) < JOBS:
            found = mine.due(limit=3)
            for claimed in mine.claim([Claim(row.id, new_lease_id(), "w", 600) for row in found]):
                if claimed.job is not None:
                    taken.say(claimed.job.id)
            if not found:
                signal.wait(1)

    children = [fork(claim_all) for _ in range(6)] + [fork(wake_all)]
    assert [child.wait() for child in children] == [0] * 7

    assert sorted(taken.rest()) == sorted(wake(str(number)).id for number in range(JOBS))


def test_a_writer_gets_its_turn_while_others_never_stop(url: str, fork: Fork, store: SqliteStore) -> None:
    writing = Line()

    def write_for_ever(name: str) -> None:
        mine = SqliteStore(url)
        mine.wake([wake(name)])
        writing.say()
        while True:
            mine.wake([wake(name)])

    hammers = [fork(lambda name=name: write_for_ever(name)) for name in ("a", "b", "c")]  # type: ignore[misc]
    for _ in hammers:
        writing.hear()
    for number in range(40):
        store.wake([wake(f"mine {number}")])  # StoreUnavailable after ten seconds without the lock
    for hammer in hammers:
        hammer.kill()

    assert all(store.read([wake(f"mine {number}").id for number in range(40)]))


@pytest.mark.parametrize("after", [1, 17, 60])
def test_a_kill_loses_nothing_that_was_committed(
    url: str, path: Path, store: SqliteStore, fork: Fork, after: int
) -> None:
    said = Line()

    def write_for_ever() -> None:
        mine, number = SqliteStore(url), 0
        while True:
            batch = [wake(f"{number}-{part}", payload=f'"{"x" * 3000}"') for part in range(5)]
            mine.wake(batch)
            said.say(str(number))
            number += 1

    child = fork(write_for_ever)
    for _ in range(after):
        said.hear()
    child.kill()
    last = int((said.rest() or [str(after - 1)])[-1])

    rows = store.read([wake(f"{number}-{part}").id for number in range(last + 1) for part in range(5)])
    assert all(rows)
    batch = store.read([wake(f"{last + 1}-{part}").id for part in range(5)])
    assert all(batch) or not any(batch)
    assert store.wake([wake("after")])[0].created  # the dead hold no lock
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
