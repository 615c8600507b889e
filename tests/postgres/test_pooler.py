"""Behind a pooler in transaction mode with two sessions: everything works, and nothing is left in a session."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest

from store.contract import Change, Document, Renewal
from store.errors import Refused
from store.events import Failure, Kind
from store.filters import Filter
from store.policy import Policy
from store.postgres.store import PostgresStore
from store.transitions import decide
from tests.contract.acts import publish, read, take
from tests.contract.rows import TYPE, claim, finish, wake
from tests.postgres.acts import eventually, one

#: What a session keeps from one statement to the next, and what it would be if nobody had been there.
LEFT: dict[str, tuple[str, Any]] = {
    "prepared statements": ("SELECT count(*) FROM pg_prepared_statements", 0),
    "listening": ("SELECT count(*) FROM pg_listening_channels()", 0),
    "locks": ("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'", 0),
    "tables": ("SELECT count(*) FROM pg_class WHERE relpersistence = 't'", 0),
    "settings": (
        "SELECT coalesce(string_agg(name, ', '), '') FROM pg_settings "
        "WHERE source = 'session' AND name NOT IN ('application_name', 'client_encoding')",
        "",
    ),
}


@pytest.fixture
def stores(pooled_url: str) -> Iterator[list[PostgresStore]]:
    """Two processes' stores, as far as one process can show it."""
    stores = [PostgresStore(pooled_url) for _ in range(2)]
    yield stores
    for store in stores:
        store.close()


def test_all_verbs_work_and_leave_nothing_in_a_session(stores: list[PostgresStore], pooled_url: str) -> None:
    store, other = stores
    assert store.migrate() == 0
    store.check_schema()
    signals = [store.changes(), other.changes()]

    def work(number: int) -> int:
        mine = stores[number % 2]
        ids = [woken.id for woken in mine.wake([wake(f"{number}-{n}") for n in range(10)])]
        finished = 0
        for id_ in ids:
            job = take(mine, id_)
            again = mine.claim([claim(id_, job.lease_id)])[0].job
            assert again is not None
            assert again.attempt == 1
            assert mine.renew([Renewal(id_, job.lease_id or "", 1, 90, (50, "half"))])[0].held
            failed = finish(job, Kind.RETRY, failure=Failure.of_code("broken"))
            finished += mine.swap([Change(id_, job.revision, decide(job, failed, Policy(TYPE)))])[0]
            assert len(mine.history(id_)) == 1
            with mine.transaction() as tx:
                tx.wake([wake(f"{number}-more")])
                assert tx.put(Document("tick", id_, 0, {}))
        with pytest.raises(Refused):
            mine.wake([wake(f"{number}-bad", priority=11)])
        assert not signals[number % 2].wait(0)
        return finished

    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(work, range(6))) == [10] * 6
    assert {len(mine.due()) for mine in stores} == {6}
    assert sum(tally.scheduled for tally in store.tally(Filter())) == 60
    for signal in signals:
        signal.close()

    with ExitStack() as stack:
        sessions = [stack.enter_context(psycopg.connect(pooled_url, prepare_threshold=None)) for _ in range(2)]
        pids = {one(session, "SELECT pg_backend_pid()") for session in sessions}
        assert len(pids) == 2  # both sessions that there are
        for session in sessions:
            assert {name: one(session, statement) for name, (statement, _) in LEFT.items()} == {
                name: expected for name, (_, expected) in LEFT.items()
            }


def test_twenty_repeated_claims_get_one_answer(stores: list[PostgresStore]) -> None:
    stores[0].wake([wake()])
    asked = claim(wake().id)

    answers = [stores[n % 2].claim([asked])[0] for n in range(20)]

    assert answers == [answers[0]] * 20
    assert answers[0].job == read(stores[1], wake().id)


def test_a_leader_that_vanished_is_followed_when_its_term_runs_out(stores: list[PostgresStore]) -> None:
    first, second = stores
    assert first.lead("shift", "first", 0.5).held
    assert not second.lead("shift", "second", 0.5).held
    first.close()

    assert eventually(lambda: second.lead("shift", "second", 5).held)


def test_an_empty_database_is_migrated_through_it(postgres_url: str, through_pooler: Callable[[str], str]) -> None:
    stores = [PostgresStore(through_pooler(postgres_url)) for _ in range(4)]

    with ThreadPoolExecutor(4) as pool:
        counts = list(pool.map(lambda store: store.migrate(), stores))

    assert sum(counts) == 4
    publish(stores[0], TYPE)
    assert stores[1].wake([wake()])[0].created
    for store in stores:
        store.close()


def test_more_threads_than_sessions_wait_for_their_turn(stores: list[PostgresStore]) -> None:
    def order(number: int) -> None:
        with stores[number % 2].transaction() as tx:
            tx.wake([wake(str(number))])
            tx.execute("SELECT pg_sleep(0.01)")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(order, range(24)))

    assert all(stores[0].read([wake(str(number)).id for number in range(24)]))
