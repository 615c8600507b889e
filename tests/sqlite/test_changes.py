"""The change signal over ``data_version``: what the contract's suite can't see from outside."""

from __future__ import annotations

import threading

from store import clock
from store.sqlite.store import SqliteStore
from tests.contract.rows import wake


def test_what_happens_between_two_waits_is_not_missed(store: SqliteStore) -> None:
    signal = store.changes()
    store.wake([wake("a")])
    assert signal.wait(0)
    assert not signal.wait(0)

    store.wake([wake("b")])
    assert signal.wait(0)
    signal.close()


def test_a_wait_ends_when_the_signal_is_closed(store: SqliteStore) -> None:
    signal = store.changes()
    started, ended = threading.Event(), []

    def wait() -> None:
        started.set()
        before = clock.elapsed()
        ended.append((signal.wait(60), clock.elapsed() - before))

    thread = threading.Thread(target=wait)
    thread.start()
    assert started.wait(30)
    signal.close()
    thread.join(30)

    [(changed, seconds)] = ended
    assert not changed
    assert seconds < 30


def test_a_wait_takes_no_lock_from_writers(store: SqliteStore) -> None:
    signal = store.changes()

    with store.transaction() as tx:
        assert not signal.wait(0.05)
        tx.wake([wake()])
        assert not signal.wait(0.05)

    assert signal.wait(30)
    signal.close()
