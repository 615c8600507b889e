"""The change signal: some row may have become due."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from store.contract import Signal, Store
from tests.contract.acts import GivenUp
from tests.contract.adapters import Adapter
from tests.contract.rows import NOW, wake

#: Long enough for any commit to be noticed on a busy machine; a signal that works never waits so long.
PATIENCE = 20.0


@pytest.fixture
def signal(store: Store) -> Iterator[Signal]:
    """A signal that has told all that happened so far."""
    signal = store.changes()
    while signal.wait(0.1):
        pass
    yield signal
    signal.close()


def _by_the_same_store(store: Store, adapter: Adapter) -> None:
    store.wake([wake()])


def _by_another_store(store: Store, adapter: Adapter) -> None:
    adapter.open().wake([wake()])


def _in_a_transaction(store: Store, adapter: Adapter) -> None:
    with store.transaction() as tx:
        tx.wake([wake()])


def _in_a_callers_transaction(store: Store, adapter: Adapter) -> None:
    connection = adapter.connect()
    store.adopt(connection).wake([wake()])
    connection.commit()


WAYS = [_by_the_same_store, _by_another_store, _in_a_transaction, _in_a_callers_transaction]


@pytest.mark.parametrize("way", WAYS)
def test_a_wake_is_signalled_once_it_is_committed(
    store: Store, adapter: Adapter, signal: Signal, way: Callable[[Store, Adapter], None]
) -> None:
    way(store, adapter)

    assert signal.wait(PATIENCE)
    while signal.wait(0.1):
        pass  # one change may be told more than once, but not for ever


@pytest.mark.parametrize("way", WAYS)
def test_a_wait_that_is_going_on_ends_with_the_commit(
    store: Store, adapter: Adapter, signal: Signal, way: Callable[[Store, Adapter], None]
) -> None:
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(signal.wait, PATIENCE)
        way(store, adapter)

        assert waiting.result(2 * PATIENCE)


def test_where_nothing_happens_a_wait_ends_with_its_time(signal: Signal) -> None:
    start = time.monotonic()

    assert not signal.wait(0.2)

    assert time.monotonic() - start >= 0.2
    assert not signal.wait(0)


def test_what_is_not_committed_is_not_signalled(store: Store, adapter: Adapter, signal: Signal) -> None:
    connection = adapter.connect()
    store.adopt(connection).wake([wake("a")])
    assert not signal.wait(0.1)
    connection.rollback()

    with suppress(GivenUp), store.transaction() as tx:
        tx.wake([wake("b")])
        raise GivenUp
    assert not signal.wait(0.1)


def test_reading_signals_nothing(store: Store, signal: Signal) -> None:
    store.read([wake().id])
    store.due()
    store.list("policy")

    assert not signal.wait(0.1)


def test_a_wake_can_be_left_unsignalled_for_who_rings_another_bell(
    store: Store, adapter: Adapter, signal: Signal
) -> None:
    store.wake([wake()], now=NOW, notify=False)

    # Where any commit is a signal, it can't be left out: harmless, for whoever hears it only looks.
    assert signal.wait(0.2) == ("quiet_wakes" in adapter.gaps)
    assert store.read([wake().id]) != [None]


def test_every_signal_hears_of_a_change(store: Store, other: Store, signal: Signal) -> None:
    second = other.changes()
    try:
        while second.wait(0.1):
            pass
        store.wake([wake()], now=NOW)
        assert signal.wait(PATIENCE)
        assert second.wait(PATIENCE)
    finally:
        second.close()


def test_a_signal_that_was_closed_can_be_closed_again(store: Store) -> None:
    signal = store.changes()
    signal.close()
    signal.close()

    store.wake([wake()], now=NOW)
