"""What is done in a transaction commits or vanishes with it, be it ours or a caller's own."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from store.contract import ANY_VERSION, Document, Store, Tx
from store.errors import DramaturgError, Refused, StoreUnavailable, UsageError
from store.events import Cancel
from store.policy import Policy
from store.transitions import decide
from tests.contract.acts import GivenUp, at_once, change, publish, read
from tests.contract.adapters import Adapter, Postgres, Sqlite
from tests.contract.rows import NOW, TYPE, wake


@pytest.fixture
def orders(store: Store, adapter: Adapter) -> Store:
    """The store beside which a caller has a table of its own."""
    with store.transaction() as tx:
        assert tx.execute(adapter.say("make orders")) == []
    store.wake([wake("old")], now=NOW)
    return store


def everything(tx: Tx, store: Store, adapter: Adapter) -> None:
    """One of each thing that a transaction can do."""
    old = read(store, wake("old").id)
    tx.execute(adapter.say("add order"), {"id": 1, "note": "ö'%s :x 🎭"})
    assert tx.wake([wake("new")], now=NOW)[0].created
    assert tx.put(Document("tick", "x", 0, {"at": 1}), now=NOW)
    cancelled = decide(old, Cancel(), Policy(TYPE))
    assert tx.swap([change(old)._replace(decision=cancelled)], now=NOW) == [True]


def seen(store: Store, adapter: Adapter) -> tuple[Any, ...]:
    """What others see of it."""
    with store.transaction() as tx:
        notes = tx.execute(adapter.say("all orders"))
    new = store.read([wake("new").id])[0]
    old = read(store, wake("old").id)
    history = [entry.kind for entry in store.history(old.id)]
    return notes, new is not None, store.get("tick", "x"), old.state, history


NOTHING: tuple[Any, ...] = ([], False, None, "queued", [])
EVERYTHING = ([(1, "ö'%s :x 🎭")], True, Document("tick", "x", 1, {"at": 1}), "cancelled", ["cancelled"])


# --- ours -------------------------------------------------------------------------------------------------------------


def test_all_of_a_transaction_is_committed_at_its_end(orders: Store, other: Store, adapter: Adapter) -> None:
    with orders.transaction() as tx:
        everything(tx, other, adapter)
        assert other.read([wake("new").id]) == [None]
        assert other.get("tick", "x") is None
        assert read(other, wake("old").id).state == "queued"

    assert seen(other, adapter) == EVERYTHING


@pytest.mark.parametrize("error", [GivenUp, KeyboardInterrupt, UsageError])
def test_nothing_of_a_transaction_is_left_when_it_raises(
    orders: Store, other: Store, adapter: Adapter, error: type[BaseException]
) -> None:
    raised = error("mine")

    def give_up() -> None:
        with orders.transaction() as tx:
            everything(tx, other, adapter)
            raise raised

    with pytest.raises(error) as caught:
        give_up()

    assert caught.value is raised
    assert seen(other, adapter) == NOTHING


def test_a_transaction_sees_its_own_work(orders: Store, adapter: Adapter) -> None:
    with orders.transaction() as tx:
        tx.wake([wake("new", payload="[1]")], now=NOW)
        [again] = tx.wake([wake("new", payload="[2]")], now=NOW)
        tx.execute(adapter.say("add order"), {"id": 7, "note": "seven"})
        assert tx.execute(adapter.say("all orders")) == [(7, "seven")]
        assert tx.put(Document("tick", "x", 0, {}), now=NOW)
        assert not tx.put(Document("tick", "x", 0, {}), now=NOW)
        assert not again.created


def test_statements_answer_their_rows(orders: Store, adapter: Adapter) -> None:
    with orders.transaction() as tx:
        for number in (1, 2, 3):
            assert tx.execute(adapter.say("add order"), {"id": number, "note": "n"}) == []
        assert tx.execute(adapter.say("orders beyond"), {"id": 1}) == [(2, "n"), (3, "n")]
        assert tx.execute(adapter.say("remove order"), {"id": 3}) == []
        assert tx.execute(adapter.say("note on all"), {"note": "m"}) == [(1, "m"), (2, "m")]


BAD_STATEMENTS = {
    "a syntax error": "SELEKT 'hidden-word'",
    "an unknown table": "SELECT * FROM hidden_word",
    "a doubled key": "INSERT INTO ORDERS (id, note) VALUES (1, 'hidden-word'), (1, 'hidden-word')",
    "a missing value": "INSERT INTO ORDERS (id, note) VALUES (1, NULL)",
}


@pytest.mark.parametrize("statement", BAD_STATEMENTS.values(), ids=BAD_STATEMENTS)
def test_a_statement_that_the_database_refuses_is_refused_in_our_words(
    orders: Store, adapter: Adapter, statement: str
) -> None:
    def ask() -> None:
        with orders.transaction() as tx:
            tx.wake([wake("new")], now=NOW)
            tx.execute(statement.replace("ORDERS", adapter.orders))

    with pytest.raises(Refused) as refused:
        ask()

    shown = str(refused.value)
    assert "hidden" not in shown
    assert "SELE" not in shown
    assert orders.read([wake("new").id]) == [None]


@pytest.mark.parametrize("statement", BAD_STATEMENTS.values(), ids=BAD_STATEMENTS)
def test_no_work_is_lost_silently_when_a_refusal_is_passed_over(
    orders: Store, adapter: Adapter, statement: str
) -> None:
    committed = False
    with suppress(DramaturgError):
        with orders.transaction() as tx:
            tx.wake([wake("new")], now=NOW)
            with suppress(Refused):
                tx.execute(statement.replace("ORDERS", adapter.orders))
        committed = True

    assert (orders.read([wake("new").id]) != [None]) == committed


def test_a_refused_wake_takes_the_transaction_with_it(orders: Store, other: Store, adapter: Adapter) -> None:
    def ask() -> None:
        with orders.transaction() as tx:
            everything(tx, other, adapter)
            tx.wake([wake("bad", priority=11)], now=NOW)

    with pytest.raises(Refused):
        ask()

    assert seen(orders, adapter) == NOTHING


def test_a_store_goes_on_after_a_transaction_that_failed(orders: Store) -> None:
    for _ in range(20):
        with pytest.raises(Refused), orders.transaction() as tx:
            tx.execute("SELECT * FROM no_such_table")
    with orders.transaction() as tx:
        tx.wake([wake("new")], now=NOW)

    assert read(orders, wake("new").id)


def test_transactions_of_many_threads_do_not_mix(orders: Store, adapter: Adapter) -> None:
    def order(number: int) -> None:
        with suppress(GivenUp), orders.transaction() as tx:
            tx.execute(adapter.say("add order"), {"id": number, "note": str(number)})
            tx.wake([wake(str(number))], now=NOW)
            if number % 2:
                raise GivenUp

    at_once([partial(order, number) for number in range(10)])

    with orders.transaction() as tx:
        assert tx.execute(adapter.say("all orders")) == [(number, str(number)) for number in (0, 2, 4, 6, 8)]
    found = orders.read([wake(str(number)).id for number in range(10)])
    assert [job is not None for job in found] == [True, False] * 5


def test_a_transaction_begins_as_a_writer(orders: Store, adapter: Adapter) -> None:
    def add_one() -> None:
        with orders.transaction() as tx:
            [(note,)] = tx.execute(adapter.say("note to change"))
            tx.execute(adapter.say("note on all"), {"note": str(int(note) + 1)})

    def count() -> None:
        for _ in range(5):
            if "locks" not in adapter.gaps:
                add_one()
                continue
            while True:  # nobody is kept waiting, but who was told something that has changed is refused
                with suppress(StoreUnavailable):
                    add_one()
                    break

    with orders.transaction() as tx:
        tx.execute(adapter.say("add order"), {"id": 1, "note": "0"})
    at_once([count] * 6)

    with orders.transaction() as tx:
        assert tx.execute(adapter.say("all orders")) == [(1, "30")]


def test_a_transaction_of_ours_is_adopted_as_it_is(store: Store) -> None:
    with store.transaction() as tx:
        assert store.adopt(tx) is tx


# --- a caller's own ---------------------------------------------------------------------------------------------------


def _sqlite_rows(adapter: Adapter) -> Any:
    connection = adapter.connect()
    connection.row_factory = sqlite3.Row
    return connection


def _sqlite_bytes(adapter: Adapter) -> Any:
    connection = adapter.connect()
    connection.text_factory = bytes
    return connection


def _sqlite_by_hand(adapter: Adapter) -> Any:
    connection = adapter.connect(isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    return connection


def _postgres_dicts(adapter: Adapter) -> Any:
    return adapter.connect(row_factory=dict_row)


def _postgres_by_hand(adapter: Adapter) -> Any:
    connection = adapter.connect(autocommit=True)
    connection.execute("BEGIN")
    return connection


def _postgres_odd_session(adapter: Adapter) -> Any:
    connection = adapter.connect()
    connection.execute("SET TIME ZONE 'Asia/Kathmandu'")
    connection.execute("SET DateStyle TO 'SQL, DMY'")
    connection.execute("SET search_path TO pg_catalog")
    connection.commit()
    return connection


def _postgres_serializable(adapter: Adapter) -> Any:
    connection = adapter.connect()
    connection.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
    return connection


def _plain(adapter: Adapter) -> Any:
    return adapter.connect()


CALLERS: dict[str, tuple[Callable[[Adapter], Any], type[Adapter]]] = {
    "plain": (_plain, Adapter),
    "sqlite rows": (_sqlite_rows, Sqlite),
    "sqlite bytes": (_sqlite_bytes, Sqlite),
    "sqlite by hand": (_sqlite_by_hand, Sqlite),
    "postgres dicts": (_postgres_dicts, Postgres),
    "postgres by hand": (_postgres_by_hand, Postgres),
    "postgres odd session": (_postgres_odd_session, Postgres),
    "postgres serializable": (_postgres_serializable, Postgres),
}


@pytest.mark.parametrize("name", CALLERS)
def test_a_callers_commit_commits_all_and_its_rollback_none(
    orders: Store, other: Store, adapter: Adapter, name: str
) -> None:
    make, kind = CALLERS[name]
    connection = (make if isinstance(adapter, kind) else _plain)(adapter)
    connection.execute(f"INSERT INTO {adapter.orders} (id, note) VALUES (5, 'by hand')")
    tx = orders.adopt(connection)
    [woken] = tx.wake([wake("new")], now=NOW)
    assert (woken.created, woken.due, woken.state) == (True, True, "queued")
    assert tx.put(Document("tick", "x", 0, {"at": 1}), now=NOW)
    assert len(tx.execute(f"SELECT id, note FROM {adapter.orders}")) == 1
    assert other.read([woken.id]) == [None]

    connection.rollback()
    assert seen(other, adapter) == NOTHING

    if "by hand" in name and isinstance(adapter, kind):
        connection.execute("BEGIN")
    [woken] = orders.adopt(connection).wake([wake("new")], now=NOW)
    connection.commit()
    assert read(other, woken.id).state == "queued"


def test_a_caller_can_do_all_that_a_transaction_can(orders: Store, other: Store, adapter: Adapter) -> None:
    connection = adapter.connect()

    everything(orders.adopt(connection), other, adapter)
    connection.rollback()
    assert seen(other, adapter) == NOTHING

    everything(orders.adopt(connection), other, adapter)
    connection.commit()
    assert seen(other, adapter) == EVERYTHING


def test_a_refused_wake_leaves_the_rollback_to_the_caller(orders: Store, other: Store, adapter: Adapter) -> None:
    connection = adapter.connect()
    tx = orders.adopt(connection)
    tx.wake([wake("new")], now=NOW)

    with pytest.raises(Refused):
        tx.wake([wake("bad", priority=0)], now=NOW)
    connection.rollback()

    assert seen(other, adapter) == NOTHING
    assert orders.adopt(connection).wake([wake("new")], now=NOW)[0].created
    connection.commit()


def test_two_callers_on_one_connection_share_its_transaction(orders: Store, other: Store, adapter: Adapter) -> None:
    connection = adapter.connect()

    orders.adopt(connection).wake([wake("a")], now=NOW)
    orders.adopt(connection).wake([wake("b")], now=NOW)
    connection.rollback()

    assert other.read([wake("a").id, wake("b").id]) == [None, None]


def _of_another_driver(adapter: Adapter) -> Any:
    return sqlite3.connect(":memory:") if isinstance(adapter, Postgres) else psycopg.Connection


NONSENSE: dict[str, Callable[[Adapter], Any]] = {
    "none": lambda _: None,
    "an object": lambda _: object(),
    "a url": lambda adapter: adapter.url,
    "a store": lambda adapter: adapter.open(),
    "a part of a connection": lambda adapter: adapter.connect().execute,
    "a connection that commits each statement": lambda adapter: adapter.committing(),
    "another driver's": _of_another_driver,
}


@pytest.mark.parametrize("make", NONSENSE.values(), ids=NONSENSE)
def test_what_is_no_transaction_is_not_adopted(store: Store, adapter: Adapter, make: Callable[[Adapter], Any]) -> None:
    thing = make(adapter)

    with pytest.raises(UsageError) as refused:
        store.adopt(thing)

    assert adapter.url not in str(refused.value)
    if isinstance(thing, sqlite3.Connection):
        thing.close()


def test_what_a_type_is_published_as_in_a_transaction_counts_from_its_commit(store: Store) -> None:
    with suppress(GivenUp), store.transaction() as tx:
        assert tx.put(Document("policy", "test.new", ANY_VERSION, Policy("test.new").document()))
        raise GivenUp
    store.wake([wake(job_type="test.new")], now=NOW)

    assert store.due(now=NOW) == []
    publish(store, "test.new")
    assert len(store.due(now=NOW)) == 1
