"""``proposal.repository`` against a storage that wants to know who reads: real workers, real TLS, real git."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from store.filters import Filter
from tests.access.peers import Peers
from tests.endtoend.house import ROOT, House, eventually
from tests.proposals.repositories import Workshop


@pytest.fixture
def house(tmp_path: Path, peers: Peers, valkey_url: str) -> Iterator[House]:
    home = tmp_path / "home"
    home.mkdir()
    made = House(home, f"sqlite:///{home}/jobs.db", valkey_url, PROPOSAL_CHECK_INTERVAL_SECONDS="5", **peers.settings)
    yield made
    made.close()


def dramaturg(house: House, *words: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "ops.cli.main", *words, "--json"],
        cwd=ROOT,
        env=house.environment,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_proposals_on_a_storage_are_tracked_through_refusal_and_replacement(
    house: House, peers: Peers, workshop: Workshop
) -> None:
    fork = workshop.commit("main", {"a.txt": "a\n"})
    workshop.branch("feature", fork)
    workshop.commit("feature", {"b.txt": "b\n"})
    dramaturg(house, "migrate")
    opened = dramaturg(house, "proposals", "open", peers.url("team/app.git"), "main", "feature")
    assert opened["repository"] == "team/app"
    house.worker("actors")

    def ahead() -> int | None:
        [found] = dramaturg(house, "proposals", "list")
        number: int | None = found["ahead"]
        return number

    eventually(lambda: ahead() == 1, 30, "the first comparison")
    workshop.commit("feature", {"c.txt": "c\n"})
    eventually(lambda: ahead() == 2, 30, "the commit to be seen")

    def code() -> str | None:
        [job] = house.store.find(Filter(job_type="proposal.repository"))
        return job.failure_code

    peers.revoked.add("first")
    peers.barred.update(peers.fetched)
    eventually(lambda: code() == "worker_credential_refused", 30, "the refusal")
    peers.credential("second")
    eventually(lambda: code() is None, 60, "a run with the new credential")
    peers.granted.clear()
    eventually(lambda: code() == "worker_repository_hidden", 30, "the repository to be hidden")
    [job] = house.store.find(Filter(job_type="proposal.repository"))
    assert "reader grant" in json.loads(job.failure or "")["message"]
    log = (house.folder / "worker-0.log").read_text()
    assert "PRIVATE KEY" not in log + repr(job)


def test_a_worker_refuses_to_start_where_the_auth_server_asks_for_a_credential(house: House) -> None:
    house.settings.pop("SCRIBE_READER_CREDENTIAL_FILE")
    done = subprocess.run(
        [sys.executable, "-m", "dramatiq", "actors", "-p", "1"],
        cwd=ROOT,
        env=house.environment,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode != 0
    assert b"SCRIBE_READER_CREDENTIAL_FILE" in done.stdout + done.stderr
