"""The signal on Postgres: it survives the loss of its connection, and lets go of who waits."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import psycopg

from store.postgres.store import PostgresStore
from tests.contract.rows import wake
from tests.postgres.acts import eventually, one

Connect = Callable[[], psycopg.Connection]

LISTENERS = (
    "SELECT coalesce(max(pid), 0) FROM pg_stat_activity "
    "WHERE datname = current_database() AND query LIKE 'LISTEN%' AND pid <> pg_backend_pid()"
)


def test_what_piled_up_is_few_answers(store: PostgresStore) -> None:
    with closing(store.changes()) as changes:
        for number in range(50):
            store.wake([wake(str(number))])

        answers = 0
        while changes.wait(1):
            answers += 1
        assert 1 <= answers < 25


def test_a_wake_is_heard_at_once(store: PostgresStore) -> None:
    with closing(store.changes()) as changes, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(changes.wait, 30)
        start = time.monotonic()
        store.wake([wake()])
        assert waiting.result(30)
    assert time.monotonic() - start < 15


def test_a_connection_that_is_lost_is_no_error_and_comes_back(store: PostgresStore, connect: Connect) -> None:
    stranger = connect()
    with closing(store.changes()) as changes:
        lost = one(stranger, LISTENERS)
        assert one(stranger, "SELECT pg_terminate_backend(%s, 10000)", lost)

        start = time.monotonic()
        heard = changes.wait(0.1)
        assert time.monotonic() - start < 5
        assert heard or eventually(lambda: changes.wait(0.1))  # listening anew: something may have been missed

        assert one(stranger, LISTENERS) not in (0, lost)
        while changes.wait(0.1):
            pass
        store.wake([wake()])
        assert changes.wait(20)


def test_closing_lets_go_of_who_waits_and_of_the_connection(store: PostgresStore, connect: Connect) -> None:
    stranger, changes = connect(), store.changes()

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(changes.wait, 60)
        assert not waiting.done()
        changes.close()
        assert waiting.result(20) is False

    assert eventually(lambda: one(stranger, LISTENERS) == 0)
    assert changes.wait(60) is False


def test_closing_while_the_connection_is_sought_leaves_nothing(store: PostgresStore, connect: Connect) -> None:
    stranger, changes = connect(), store.changes()
    assert one(stranger, "SELECT pg_terminate_backend(%s, 10000)", one(stranger, LISTENERS))
    eventually(lambda: changes.wait(0) or changes._seeker is not None)

    changes.close()

    assert eventually(lambda: one(stranger, LISTENERS) == 0)


def test_behind_a_pooler_nothing_listens_and_the_wait_is_only_time(pooled_url: str, behind_pooler: str) -> None:
    store = PostgresStore(pooled_url)
    changes = store.changes()
    store.wake([wake()])

    start = time.monotonic()
    assert not changes.wait(0.2)
    assert time.monotonic() - start >= 0.2
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(changes.wait, 60)
        changes.close()
        assert waiting.result(20) is False

    with psycopg.connect(behind_pooler) as stranger:
        assert one(stranger, LISTENERS) == 0
    store.close()
