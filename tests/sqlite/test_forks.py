"""A fork: the child makes its own connections, and nothing that either side commits is lost.

SQLite itself would lose it: a child that opens the file beside an inherited connection holds no lock, so the log is
deleted under it when its parent closes the file.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from store.errors import UsageError
from store.events import Claim
from store.sqlite.store import SqliteStore
from tests.contract.acts import read
from tests.contract.rows import claim, wake
from tests.sqlite.children import Fork, Line, fork

__all__ = ["fork"]

#: Set when a fork begins, before anything else that is to be done then.
FORKING = threading.Event()
os.register_at_fork(before=FORKING.set)


def test_what_a_child_commits_outlives_its_parents_connections(store: SqliteStore, url: str, fork: Fork) -> None:
    store.wake([wake("parent")])
    woken, closed = Line(), Line()

    def work() -> None:
        store.wake([wake("first")])
        woken.say()
        closed.hear()
        store.wake([wake("second")])

    child = fork(work)
    woken.hear()
    store.wake([wake("meanwhile")])
    store.close()
    closed.say()
    assert child.wait() == 0

    fresh = SqliteStore(url)
    assert all(fresh.read([wake(key).id for key in ("parent", "first", "meanwhile", "second")]))
    fresh.close()


def test_children_and_their_parent_claim_every_row_once(store: SqliteStore, fork: Fork) -> None:
    store.wake([wake(str(number)) for number in range(100)])
    claims = [claim(wake(str(number)).id, seconds=600) for number in range(100)]
    said = Line()

    def work(name: str) -> None:
        for mine in claims:
            [claimed] = store.claim([Claim(mine.id, mine.lease_id, name, mine.seconds)])
            assert claimed.job is not None  # the same claim, whoever sends it
            said.say(claimed.job.worker or "")

    children = [fork(lambda name=name: work(name)) for name in ("a", "b", "c", "d")]  # type: ignore[misc]
    assert [child.wait() for child in children] == [0, 0, 0, 0]

    assert {read(store, mine.id).attempt for mine in claims} == {1}
    assert len(said.rest()) == 400


def test_a_fork_waits_for_the_transactions_of_other_threads(store: SqliteStore, fork: Fork) -> None:
    begun = threading.Event()
    FORKING.clear()

    def hold() -> None:
        with store.transaction() as tx:
            tx.wake([wake("thread")])
            begun.set()
            assert FORKING.wait(30)
            tx.wake([wake("still")])

    thread = threading.Thread(target=hold)
    thread.start()
    assert begun.wait(30)
    child = fork(lambda: store.wake([wake("child")]))
    thread.join()

    assert child.wait() == 0
    assert all(store.read([wake(key).id for key in ("thread", "still", "child")]))


def test_a_child_of_an_open_transaction_is_refused_and_the_transaction_is_unharmed(
    store: SqliteStore, url: str, fork: Fork
) -> None:
    def work() -> None:
        for act in (store.due, lambda: store.wake([wake("child")]), lambda: tx.wake([wake("child")])):
            with pytest.raises(UsageError, match="fork"):
                act()

    with store.transaction() as tx:
        tx.wake([wake("parent")])
        child = fork(work)
        assert child.wait() == 0

    assert read(store, wake("parent").id)
    assert store.read([wake("child").id]) == [None]


def test_a_child_that_leaves_the_block_commits_nothing(store: SqliteStore, fork: Fork) -> None:
    block = store.transaction()
    tx = block.__enter__()
    tx.wake([wake("parent")])

    def leave() -> None:
        with pytest.raises(UsageError, match="fork"):
            block.__exit__(None, None, None)

    child = fork(leave)
    assert child.wait() == 0
    assert store.read([wake("parent").id]) == [None]
    block.__exit__(None, None, None)

    assert read(store, wake("parent").id)


def test_a_signal_goes_on_in_a_child(store: SqliteStore, fork: Fork) -> None:
    signal = store.changes()
    waiting, woken = Line(), Line()

    def work() -> None:
        signal.wait(0)  # a connection of its own counts as news
        assert not signal.wait(0)
        waiting.say()
        assert signal.wait(30)
        woken.say("woken")

    child = fork(work)
    waiting.hear()
    store.wake([wake()])

    assert woken.hear() == "woken"
    assert child.wait() == 0
    assert signal.wait(30)
    signal.close()


def test_a_child_of_a_child_has_connections_of_its_own_too(store: SqliteStore, fork: Fork, path: Path) -> None:
    store.wake([wake("parent")])

    def child() -> None:
        store.wake([wake("child")])
        assert fork(lambda: store.wake([wake("grandchild")])).wait() == 0
        store.wake([wake("child again")])

    assert fork(child).wait() == 0
    assert all(store.read([wake(key).id for key in ("parent", "child", "grandchild", "child again")]))
