"""A pause, under load, with real workers: starts end, runs don't, and losing Valkey changes nothing."""

from __future__ import annotations

import time

import redis

from store import queues
from tests.endtoend.house import House, eventually


def test_a_pause_under_load_survives_the_loss_of_valkey_and_a_resume_goes_on(house: House) -> None:
    house.worker(WORKER_CONCURRENCY="2")
    running = house.wake("test.gated", "slow", priority=1)
    house.wait_lines(1, "begin", "slow")
    ids = [house.wake("test.keyed", f"n{number}") for number in range(400)]
    house.wait_lines(20, "keyed")

    queues.pause(house.store, house.leases, "default", drain=True)
    time.sleep(1.2)  # what was in hand had a second to start or to go back
    started = len(house.lines("keyed"))
    assert started < 400, "the load was over before the pause: this test would tell nothing"
    house.open_gate("slow")
    house.wait_state(running, "completed")  # what runs goes on

    assert queues.wait_drained(house.store, "default", None, 10).running == 0
    redis.Redis.from_url(house.settings["JOBS_VALKEY_URL"]).flushall()
    for number in range(5):
        ids.append(house.wake("test.keyed", f"late{number}"))  # which ring Valkey, where the pause is lost
    time.sleep(2)
    assert len(house.lines("keyed")) == started
    assert {row.attempt for row in house.store.read(ids) if row is not None and row.state == "queued"} == {0}

    began = time.monotonic()
    queues.resume(house.store, house.leases, "default")
    house.wait_lines(started + 1, "keyed", seconds=5)
    assert time.monotonic() - began < 5
    eventually(lambda: len(house.lines("keyed")) == 405, 60, "all of them to run, each once")
    assert not house.logged("job_retry")
