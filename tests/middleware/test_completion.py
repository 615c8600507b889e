"""Finishes are durable before anything is acked, none is lost, and no bad one holds up its neighbours."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from middleware import completion as completion_module
from middleware.broker import Broker
from middleware.build import build_broker
from middleware.job import Payload
from middleware.run import Run
from middleware.settings import WorkerSettings
from store.errors import UsageError, ValkeyUnavailable
from store.events import Finish, Kind, Release
from store.settings import StoreSettings
from tests.endtoend.house import eventually
from tests.middleware.test_fence import Hands, job, unsteady


@pytest.fixture
def broker(working_broker: Broker) -> Iterator[Broker]:
    job(working_broker, lambda payload, run: None)
    yield working_broker
    working_broker.runtime.completion.close(5)


def taken(broker: Broker, number: int) -> list[Any]:
    """So many claimed rows, not yet run."""
    actor: Any = broker.actors["test.job"]
    broker.runtime.slots.concurrency = number
    for _ in range(number):
        actor.send()
    hands = Hands(broker)
    return [hands.take() for _ in range(number)]


def taken_of(broker: Broker, id_: str) -> list[Any]:
    message = Hands(broker).take()
    assert message.holding.job.id == id_
    return [message]


def done(message: Any) -> Finish:
    job_ = message.holding.job
    return Finish(job_.lease_id, job_.attempt, job_.generation, Kind.DONE)


def refuse_for_ever(path: Path, id_: str) -> None:
    """A trigger of the database's owner that lets this row never leave processing."""
    with sqlite3.connect(path) as connection:
        connection.execute(
            "CREATE TRIGGER stubborn BEFORE UPDATE ON dramaturg_job "
            f"WHEN old.id = '{id_}' AND new.state <> 'processing' "
            "BEGIN SELECT RAISE(ABORT, 'no'); END"
        )
    connection.close()


def state_of(broker: Broker, message: Any) -> str | None:
    row = broker.runtime.store.read([message.holding.job.id])[0]
    return None if row is None else row.state


def test_finishes_that_gathered_are_written_in_one_statement(broker: Broker) -> None:
    store = unsteady(broker)
    messages = taken(broker, 20)
    completion = broker.runtime.completion
    store.away.add("swap")
    completion.put(messages[0].holding, done(messages[0]))
    eventually(lambda: "swap" in store.calls)
    for message in messages[1:]:
        completion.put(message.holding, done(message))
    store.calls.clear()
    store.away.clear()
    assert completion.flush(10)
    assert store.calls.count("swap") <= 2
    assert {state_of(broker, message) for message in messages} == {"completed"}


def test_nothing_is_acked_before_the_row_is_durable(broker: Broker) -> None:
    store = unsteady(broker)
    [message] = taken(broker, 1)
    store.away.add("swap")
    broker.runtime.completion.put(message.holding, done(message))
    assert not broker.runtime.completion.flush(0.3)
    assert broker.runtime.leases.sizes("default").in_flight == 1
    assert broker.runtime.in_hand.rows() == [message.holding]  # so its lease is renewed meanwhile
    store.away.clear()
    assert broker.runtime.completion.flush(10)
    assert broker.runtime.leases.sizes("default").in_flight == 0
    assert broker.runtime.in_hand.rows() == []


def test_a_finish_whose_answer_was_lost_is_written_once(broker: Broker) -> None:
    store = unsteady(broker)
    [message] = taken(broker, 1)
    store.deaf.add("swap")
    broker.runtime.completion.put(message.holding, done(message))
    eventually(lambda: store.calls.count("swap") >= 1)
    store.deaf.clear()
    assert broker.runtime.completion.flush(10)
    row = broker.runtime.store.read([message.holding.job.id])[0]
    assert row is not None
    assert (row.state, row.retries) == ("completed", 0)
    assert broker.runtime.in_hand.rows() == []


def test_only_the_first_end_of_a_run_counts(broker: Broker) -> None:
    [message] = taken(broker, 1)
    holding = message.holding
    broker.runtime.completion.put(holding, done(message))
    broker.runtime.completion.put(holding, Release(holding.lease_id, holding.job.attempt))
    broker.runtime.completion.drop(holding)
    assert broker.runtime.completion.flush(10)
    assert state_of(broker, message) == "completed"


def test_a_valkey_that_is_away_keeps_no_row_from_being_written(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    [message] = taken(broker, 1)

    def away(*_: Any) -> None:
        raise ValkeyUnavailable("away in this test")

    monkeypatch.setattr(broker.runtime.leases, "ack", away)
    broker.runtime.completion.put(message.holding, done(message))
    assert broker.runtime.completion.flush(10)
    assert state_of(broker, message) == "completed"
    assert broker.runtime.in_hand.rows() == []


def test_a_row_that_the_database_always_refuses_holds_up_no_neighbour(broker: Broker, tmp_path: Path) -> None:
    messages = taken(broker, 5)
    refuse_for_ever(tmp_path / "jobs.db", messages[0].holding.job.id)
    for message in messages:
        broker.runtime.completion.put(message.holding, done(message))
    for message in messages[1:]:
        eventually(lambda message=message: state_of(broker, message) == "completed", 3, "the neighbours' finishes")
    eventually(lambda: len(broker.runtime.in_hand.rows()) <= 1, 3, "the neighbours to be out of hand")


def test_a_release_that_the_database_refuses_holds_up_no_neighbour(broker: Broker, tmp_path: Path) -> None:
    bad, good = taken(broker, 2)
    refuse_for_ever(tmp_path / "jobs.db", bad.holding.job.id)
    broker.runtime.completion.put(bad.holding, Release(bad.holding.lease_id, bad.holding.job.attempt))
    broker.runtime.completion.put(good.holding, done(good))
    eventually(lambda: state_of(broker, good) == "completed", 3, "the neighbour's finish")


def test_too_many_finishes_make_worker_threads_wait_and_a_close_frees_them(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(completion_module, "WAITING_MOST", 2)
    store = unsteady(broker)
    messages = taken(broker, 6)
    store.away.add("swap")
    completion = broker.runtime.completion
    threads = [threading.Thread(target=completion.put, args=(message.holding, done(message))) for message in messages]
    for thread in threads:
        thread.start()
    eventually(lambda: sum(thread.is_alive() for thread in threads) >= 1)
    time.sleep(0.1)
    assert any(thread.is_alive() for thread in threads)
    began = time.monotonic()
    assert not completion.close(0.2)
    for thread in threads:
        thread.join(3)
        assert not thread.is_alive()
    assert time.monotonic() - began < 5
    store.away.clear()


def test_back_pressure_ends_when_the_store_is_back(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completion_module, "WAITING_MOST", 2)
    store = unsteady(broker)
    messages = taken(broker, 6)
    store.away.add("swap")
    threads = [
        threading.Thread(target=broker.runtime.completion.put, args=(message.holding, done(message)))
        for message in messages
    ]
    for thread in threads:
        thread.start()
    time.sleep(0.1)
    store.away.clear()
    for thread in threads:
        thread.join(10)
    assert broker.runtime.completion.flush(10)
    assert {state_of(broker, message) for message in messages} == {"completed"}


def test_a_close_ends_in_time_though_the_store_is_away(broker: Broker) -> None:
    store = unsteady(broker)
    [message] = taken(broker, 1)
    store.away.add("*")
    broker.runtime.completion.put(message.holding, done(message))
    began = time.monotonic()
    assert not broker.runtime.completion.close(0.3)
    assert time.monotonic() - began < 4
    store.away.clear()


def test_an_error_of_ours_with_half_a_character_in_its_text_holds_up_no_finish(broker: Broker) -> None:
    def handler(payload: Payload, run: Run) -> None:
        raise UsageError("the branch caf\udce9 is odd")  # as a path or a git reference that is no UTF-8 is spelled

    odd = job(broker, handler, "test.odd").send()
    [message] = taken_of(broker, odd.id)
    hands = Hands(broker)
    hands.run(message)
    [neighbour] = taken(broker, 1)
    broker.runtime.completion.put(neighbour.holding, done(neighbour))
    eventually(lambda: state_of(broker, neighbour) == "completed", 3, "the neighbour's finish")
    row = broker.runtime.store.read([odd.id])[0]
    assert row is not None
    assert (row.state, row.retries, row.failure_code) == ("queued", 1, "usage")


@pytest.mark.parametrize("number", [Decimal("1.5"), 2**70])
def test_a_count_of_an_odd_kind_of_number_holds_up_no_finish_on_postgres(
    tmp_path: Path, valkey_url: str, postgres_url: str, number: Any
) -> None:
    made = build_broker(
        StoreSettings.model_validate(
            {"JOBS_HOME": tmp_path, "JOBS_DB_URL": postgres_url, "JOBS_VALKEY_URL": valkey_url}
        ),
        WorkerSettings.model_validate({"WORKER_CONCURRENCY": 4}),
    )
    made.runtime.store.migrate()

    def handler(payload: Payload, run: Run) -> None:
        run.count("rows", number)

    def plain(payload: Payload, run: Run) -> None:
        pass

    counting, neighbour = job(made, handler, "test.counts"), job(made, plain, "test.plain")
    try:
        ids = [counting.send().id, neighbour.send().id]
        hands = Hands(made)
        hands.run()
        hands.run()
        assert made.runtime.completion.flush(3), "all finishes of this process wait for one that can't be written"
        rows = made.runtime.store.read(ids)
        assert all(row is not None and row.state in ("completed", "queued") for row in rows)
        hands.nothing_left()
    finally:
        made.runtime.completion.close(1)
        made.close()
