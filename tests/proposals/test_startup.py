"""A worker that boots asks for the scan, and waits for nobody to do so; then all of it in real processes."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from actors.proposals.ledger import Proposals
from actors.proposals.model import Compared
from actors.proposals.scanning import Scan
from actors.proposals.startup import ScanAtBoot
from actors.proposals.statements import SUBJECT
from middleware.broker import Broker
from middleware.build import build_broker
from middleware.job import declare
from middleware.settings import WorkerSettings
from store.filters import Filter
from store.settings import StoreSettings
from tests.endtoend.house import House, eventually
from tests.proposals.repositories import Workshop


@pytest.fixture
def broker(tmp_path: Path, valkey_url: str) -> Iterator[Broker]:
    """A broker over a database that isn't there yet."""
    settings = StoreSettings(home=tmp_path, db_url=f"sqlite:///{tmp_path}/jobs.db", valkey_url=valkey_url)  # type: ignore[arg-type]
    made = build_broker(settings, WorkerSettings())
    yield made
    made.close()


@pytest.fixture
def at_boot(broker: Broker) -> Iterator[ScanAtBoot]:
    made = ScanAtBoot(declare(broker, lambda scan, run: None, "proposal.scan", Scan, "scan", {"keep_finished": False}))
    yield made
    broker.runtime.stopping.set()
    made.after_worker_shutdown(broker, None)  # type: ignore[arg-type]


def asked(broker: Broker) -> bool:
    return broker.runtime.store.find(Filter(job_type="proposal.scan")) != []


def test_a_boot_does_not_wait_for_a_store_that_is_away_and_asks_when_it_is_back(
    broker: Broker, at_boot: ScanAtBoot
) -> None:
    at_boot.after_worker_boot(broker, None)  # type: ignore[arg-type]
    assert "proposal-scan" in {thread.name for thread in threading.enumerate()}
    broker.runtime.store.migrate()
    eventually(lambda: asked(broker), what="the scan to be asked for")
    eventually(lambda: "proposal-scan" not in {thread.name for thread in threading.enumerate()})


def test_workers_that_boot_together_ask_for_one_scan(broker: Broker, at_boot: ScanAtBoot) -> None:
    broker.runtime.store.migrate()
    for _ in range(3):
        at_boot.after_worker_boot(broker, None)  # type: ignore[arg-type]
        at_boot.after_worker_shutdown(broker, None)  # type: ignore[arg-type]
    [tally] = broker.runtime.store.tally(Filter(job_type="proposal.scan"))
    assert tally.ready == 1


def test_a_stop_ends_the_waiting(broker: Broker, at_boot: ScanAtBoot) -> None:
    at_boot.after_worker_boot(broker, None)  # type: ignore[arg-type]
    broker.runtime.stopping.set()
    begun = time.monotonic()
    at_boot.after_worker_shutdown(broker, None)  # type: ignore[arg-type]
    assert "proposal-scan" not in {thread.name for thread in threading.enumerate()}
    assert time.monotonic() - begun < 5


def test_real_workers_track_proposals_that_they_find_at_boot_and_notice_a_commit(
    tmp_path: Path, valkey_url: str
) -> None:
    house = House(tmp_path, f"sqlite:///{tmp_path}/jobs.db", valkey_url, PROPOSAL_CHECK_INTERVAL_SECONDS="5")
    try:
        house.store.migrate([SUBJECT])
        workshop = Workshop(tmp_path / "scribe.git")
        workshop.branch("feature", workshop.commit("main", {"a.txt": "a"}))
        workshop.commit("feature", {"b.txt": "b"})
        proposals = Proposals(house.store)
        proposal = proposals.open("scribe", "main", "feature", "t", path=workshop.path)
        with house.store.transaction() as tx:
            tx.execute("DELETE FROM dramaturg_job")  # the scan must bring it back

        def compared() -> Compared | None:
            return proposals.get(proposal.id).compared

        house.worker("actors")
        eventually(compared, what="the proposal to be compared")
        workshop.commit("feature", {"c.txt": "c"})
        eventually(lambda: (found := compared()) and found.ahead == 2, what="the commit to be noticed")
        second = proposals.open("scribe", "feature", "main", "the other way round")
        eventually(lambda: proposals.get(second.id).compared, what="the second proposal to be compared")
        merged = proposals.merge(proposal.id)
        assert merged.merge_commit is not None
        eventually(lambda: (found := proposals.get(second.id).compared) and found.head_commit == merged.merge_commit)
    finally:
        house.close()
