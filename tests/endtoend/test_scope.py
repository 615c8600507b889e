"""Two fleets on one database and one Valkey, each for domains of its own: neither takes the other's work, nor waits for
the other's scheduler."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable

from store.events import Wake
from store.identity import job_id
from tests.endtoend.house import ROOT, House, eventually


def test_each_fleet_runs_the_jobs_of_its_domains(make_house: Callable[..., House]) -> None:
    house = make_house()
    ids = {}
    for domain in ("chat", "print"):
        ids[domain] = job_id(domain, "default", "test.keyed", domain)
        payload = json.dumps({"thing": domain, "value": 0})
        house.store.wake([Wake(ids[domain], domain, "default", "test.keyed", domain, payload)])
    house.worker(JOBS_DOMAINS="chat")
    eventually(lambda: house.row(ids["chat"]).state == "completed", 30, "the job of its own domain")

    told = subprocess.run(
        [sys.executable, "-m", "ops.cli.main", "list", "--json"],
        cwd=ROOT,
        env=house.environment | {"JOBS_DOMAINS": "chat"},
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert [row["domain"] for row in json.loads(told.stdout)] == ["chat"]
    assert (house.row(ids["print"]).state, house.row(ids["print"]).attempt) == ("queued", 0)

    house.worker(JOBS_DOMAINS="print,mail")
    eventually(lambda: house.row(ids["print"]).state == "completed", 30, "the other fleet, beside the first one's term")
    assert house.row(ids["print"]).attempt == 1
    assert [line[1] for line in house.lines("keyed")] == ["chat", "print"]
