"""After a fork a child makes connections of its own, and can do nothing to its parent's."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import psycopg

from store.errors import StoreUnavailable
from store.postgres.store import PostgresStore
from tests.contract.acts import read, take
from tests.contract.rows import claim, wake
from tests.postgres.acts import SESSIONS, backend, eventually, in_a_child, one, sleeper

Connect = Callable[[], psycopg.Connection]


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
