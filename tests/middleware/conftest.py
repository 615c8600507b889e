from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import dramatiq
import pytest

from middleware.broker import Broker
from middleware.build import build_broker
from middleware.settings import WorkerSettings
from scheduler.reconcile import declare_shift
from store.settings import StoreSettings


@pytest.fixture
def working_broker(tmp_path: Path, valkey_url: str) -> Iterator[Broker]:
    """A broker on a real Valkey and a SQLite store, with the scheduler's shift declared."""
    made = build_broker(
        StoreSettings.model_validate(
            {"JOBS_HOME": tmp_path, "JOBS_DB_URL": f"sqlite:///{tmp_path}/jobs.db", "JOBS_VALKEY_URL": valkey_url}
        ),
        WorkerSettings.model_validate({"WORKER_CONCURRENCY": 4, "JOBS_LEASE_SECONDS": 5}),
    )
    made.runtime.store.migrate()
    declare_shift(made)
    yield made
    made.close()


@pytest.fixture
def start_worker(working_broker: Broker) -> Iterator[Callable[[], dramatiq.Worker]]:
    """Starts a worker in this process; it is stopped at the end."""
    started: list[dramatiq.Worker] = []

    def start() -> dramatiq.Worker:
        worker = dramatiq.Worker(working_broker, worker_timeout=100)
        worker.start()
        started.append(worker)
        return worker

    yield start
    for worker in started:
        worker.stop()
