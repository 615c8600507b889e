"""What only Postgres can show: a wake from plain psql, a server that restarts under load, a pooler in front."""

from __future__ import annotations

import subprocess
from pathlib import Path

from store.engines.postgres import Postgres
from tests.endtoend.house import House, eventually


def run_psql(url: str, script: str) -> None:
    subprocess.run(
        ["psql", "--no-psqlrc", "--quiet", "--set", "ON_ERROR_STOP=1", url],
        input=script.encode(),
        check=True,
        capture_output=True,
        timeout=30,
    )


def test_a_wake_from_psql_runs_if_its_transaction_commits_and_never_otherwise(
    tmp_path: Path, postgres_url: str, valkey_url: str
) -> None:
    house = House(tmp_path, postgres_url, valkey_url)
    try:
        house.worker()
        wake = "SELECT dramaturg.wake('test.keyed', key => '{0}', payload => '{{\"thing\": \"{0}\", \"value\": 1}}');"
        run_psql(postgres_url, f"BEGIN; {wake.format('never')} ROLLBACK;")
        run_psql(postgres_url, f"BEGIN; {wake.format('committed')} COMMIT;")
        house.wait_lines(1, "keyed", "committed")
        assert house.lines("keyed", "never") == []
    finally:
        house.close()


def test_a_postgres_that_restarts_under_load_loses_no_wake(fresh_home: Path, tmp_path: Path, valkey_url: str) -> None:
    server = Postgres(fresh_home).start()
    house = House(tmp_path, server.url, valkey_url, JOBS_LEASE_SECONDS="4")
    try:
        house.worker()
        house.worker()
        gated = house.wake("test.gated", "over-the-restart")
        house.wait_lines(1, "begin", "over-the-restart")
        for number in range(150):
            house.wake("test.plain", f"t{number}", number)
        server.kill()
        server.start()
        house.open_gate("over-the-restart")
        for number in range(150, 200):
            house.wake("test.plain", f"t{number}", number)
        house.wait_lines(200, "plain", seconds=60)
        house.wait_state(gated, "completed", seconds=60)
        assert {line[1] for line in house.lines("plain")} == {f"t{number}" for number in range(200)}
        # Runs whose finish was cut off may have run twice; none is left behind.
        eventually(lambda: not house.leases.sizes("default").in_flight, what="Valkey to hold nothing more")
    finally:
        house.close()
        server.stop()
