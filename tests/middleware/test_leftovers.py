"""What is left in Valkey of a job that has ended is dropped, and starts nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from middleware.broker import Broker
from middleware.build import build_broker
from middleware.settings import WorkerSettings
from store.errors import ValkeyUnavailable
from store.outcome import Retry
from store.settings import StoreSettings
from tests.endtoend.house import eventually
from tests.middleware.test_fence import Hands, job


@pytest.fixture
def broker(tmp_path: Path, valkey_url: str) -> Iterator[Broker]:
    """A broker whose leases run out in a second."""
    made = build_broker(
        StoreSettings.model_validate(
            {"JOBS_HOME": tmp_path, "JOBS_DB_URL": f"sqlite:///{tmp_path}/jobs.db", "JOBS_VALKEY_URL": valkey_url}
        ),
        WorkerSettings.model_validate({"WORKER_CONCURRENCY": 2, "JOBS_LEASE_SECONDS": 1}),
    )
    made.runtime.store.migrate()
    yield made
    made.runtime.completion.close(5)
    made.close()


@pytest.mark.parametrize(("outcome", "state"), [(None, "completed"), (Retry("busy"), "queued")], ids=["done", "retry"])
def test_an_ack_that_never_arrives_runs_nothing_twice(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, outcome: Any, state: str
) -> None:
    runs = []

    def once(payload: Any, run: Any) -> Any:
        runs.append(run.attempt)
        return outcome

    id_ = job(broker, once).send().id
    hands = Hands(broker)
    message = hands.take()

    def reset(*_: Any) -> None:
        raise ValkeyUnavailable("the connection was reset")

    with monkeypatch.context() as broken:
        broken.setattr(broker.runtime.leases, "ack", reset)
        broken.setattr(broker.runtime, "revive_valkey", lambda: None)
        hands.run(message)
        assert broker.runtime.completion.flush(10)
    broker.runtime.completion._unheard.clear()  # the process that knew of the ack is gone
    ended = hands.row(id_)
    assert ended is not None
    assert ended.state == state
    assert broker.runtime.leases.sizes("default").in_flight == 1

    def dropped() -> bool:
        assert next(hands.consumer) is None
        sizes = broker.runtime.leases.sizes("default")
        return (sizes.ready, sizes.in_flight, sizes.delayed) == (0, 0, 0)

    eventually(dropped, 15, "the leftover to be recovered and dropped")
    assert hands.row(id_) == ended
    assert runs == [1]
