"""What a worker and a sender ask of the store and of Valkey: far less than once a job, since they ask in batches.

A worker's batches follow how fast its jobs come, so these budgets are wide: they tell one question for many jobs from
one for each.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import dramatiq
import pytest

from middleware.broker import Broker
from middleware.build import build_broker
from middleware.job import JobActor, Payload, declare
from middleware.run import Run
from middleware.settings import WorkerSettings
from scheduler.reconcile import declare_shift
from store.settings import StoreSettings
from tests.bench.budget import judge
from tests.bench.conftest import Metered
from tests.bench.meters import ValkeyMeter

JOBS = 300

#: Drains, the first of which has a worker in it that only begins; the lowest counts of the others are judged.
DRAINS = 3


class Done:
    """Counts runs, and tells when there were enough."""

    def __init__(self) -> None:
        self._left = 0
        self._lock = threading.Lock()
        self._all = threading.Event()

    def expect(self, number: int) -> None:
        self._left = number
        self._all.clear()

    def run(self, payload: Payload, run: Run) -> None:
        with self._lock:
            self._left -= 1
            if not self._left:
                self._all.set()

    def wait(self) -> None:
        assert self._all.wait(60), f"{self._left} jobs were not run"


@pytest.fixture
def done() -> Done:
    return Done()


@pytest.fixture
def broker(metered: Metered, valkey_url: str, tmp_path: Path) -> Iterator[Broker]:
    made = build_broker(
        StoreSettings.model_validate(
            {"JOBS_HOME": tmp_path, "JOBS_DB_URL": metered.url, "JOBS_VALKEY_URL": valkey_url},
        ),
        WorkerSettings.model_validate({"WORKER_CONCURRENCY": 8}),
    )
    declare_shift(made)
    yield made
    made.close()


@pytest.fixture
def actor(broker: Broker, done: Done) -> JobActor:
    made = declare(broker, done.run, "bench.counted", Payload, None, {})
    broker.runtime.publish()
    return made


def asked(metered: Metered, valkey_meter: ValkeyMeter) -> Counter[str]:
    valkey = {f"Valkey {name}": count for name, count in valkey_meter.read().items() if name != "commands"}
    return metered.meter.seen() + Counter(valkey)


def test_a_drain_asks_for_many_jobs_at_a_time(
    metered: Metered, broker: Broker, actor: JobActor, done: Done, valkey_meter: ValkeyMeter
) -> None:
    worker = dramatiq.Worker(broker, worker_timeout=100)
    worker.start()
    spent: list[Counter[str]] = []
    try:
        for _ in range(DRAINS):
            done.expect(JOBS)
            wakes = [actor.request() for _ in range(JOBS)]
            broker.wake(wakes)
            before = asked(metered, valkey_meter)
            done.wait()
            assert broker.runtime.completion.flush(20)
            spent.append(asked(metered, valkey_meter) - before)
    finally:
        worker.stop()
    least = {name: min(counts[name] for counts in spent[1:]) for name in spent[0]}
    judge("drain", {f"{metered.name}, {JOBS} jobs": least}, tight=False)


def test_a_send_asks_the_store_once_and_valkey_less_often(
    metered: Metered, broker: Broker, actor: JobActor, valkey_meter: ValkeyMeter
) -> None:
    for _ in range(2):  # a connection prepares what it is asked a second time
        actor.send()
    assert broker.runtime.ringing.flush(10)
    before = asked(metered, valkey_meter)
    for _ in range(100):
        actor.send()
    assert broker.runtime.ringing.flush(10)
    judge("send", {f"{metered.name}, 100 sends": asked(metered, valkey_meter) - before}, tight=False)
