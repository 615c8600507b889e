"""A store as a whole: its clock, its connections, and what it says when nobody answers."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial

import pytest

from store.clock import PARKED
from store.contract import Store
from store.errors import StoreUnavailable
from store.open import open_store
from tests.contract.acts import at_once, publish, read
from tests.contract.adapters import Adapter
from tests.contract.rows import wake


def test_the_databases_clock_goes_forward_in_utc(store: Store) -> None:
    readings = [store.ping() for _ in range(20)]

    assert readings == sorted(readings)
    assert {reading.utcoffset() for reading in readings} == {timedelta(0)}
    assert max(readings) < PARKED


def test_a_store_that_was_closed_opens_again_when_it_is_asked(store: Store) -> None:
    store.wake([wake()])
    store.close()
    store.close()

    assert read(store, wake().id).state == "queued"
    store.close()
    assert store.wake([wake()])[0].created is False


def test_one_store_serves_many_threads(store: Store) -> None:
    def work(number: int) -> bool:
        for turn in range(5):
            [woken] = store.wake([wake(f"{number}-{turn}")])
            if read(store, woken.id).key != f"{number}-{turn}":
                return False
        return True

    assert all(at_once([partial(work, number) for number in range(16)]))


def test_making_a_store_asks_nobody(adapter: Adapter) -> None:
    open_store(adapter.nowhere).close()


VERBS: dict[str, Callable[[Store], object]] = {
    "ping": lambda store: store.ping(),
    "wake": lambda store: store.wake([wake()]),
    "read": lambda store: store.read([wake().id]),
    "publish": lambda store: publish(store, "x"),
    "transaction": lambda store: store.transaction().__enter__(),
    "changes": lambda store: store.changes().wait(0),
}


@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
def test_a_database_that_is_not_there_is_unavailable_and_no_secret_is_told(
    adapter: Adapter, verb: Callable[[Store], object]
) -> None:
    store = open_store(adapter.nowhere)
    try:
        with pytest.raises(StoreUnavailable) as failed:
            verb(store)
    finally:
        store.close()

    assert "hidden-word" not in str(failed.value)
