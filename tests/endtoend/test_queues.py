"""A pause, under load, with real workers: starts end, runs don't, and losing Valkey changes nothing."""

from __future__ import annotations

import redis

from store import queues
from store.valkey.keys import PARTS, keys_of
from tests.endtoend.house import House, eventually

#: More than a worker runs between two looks of the test.
MANY = 3_000


def test_a_pause_under_load_survives_the_loss_of_valkey_and_a_resume_goes_on(house: House) -> None:
    house.worker(WORKER_CONCURRENCY="2")
    running = house.wake("test.gated", "slow", priority=1)
    house.wait_lines(1, "begin", "slow")
    house.wake_many("test.keyed", [f"n{number}" for number in range(MANY)])
    house.wait_lines(20, "keyed")

    queues.pause(house.store, house.leases, "default", drain=True)
    # What was in hand starts within a moment or goes back: the long run alone is left.
    eventually(lambda: queues.standing(house.store, "default").running == 1, 3, "starts to end")
    started = len(house.lines("keyed"))
    assert started < MANY, "the load was over before the pause: this test would tell nothing"
    house.open_gate("slow")
    house.wait_state(running, "completed")  # what runs goes on

    assert queues.wait_drained(house.store, "default", None, 10).running == 0
    valkey = redis.Redis.from_url(house.settings["JOBS_VALKEY_URL"])
    valkey.flushall()
    late = [house.wake("test.keyed", f"late{number}") for number in range(5)]  # they ring, where the pause is lost
    eventually(lambda: valkey.exists(keys_of("default")[PARTS.index("paused")]), 10, "the scheduler to tell Valkey")
    assert len(house.lines("keyed")) == started
    assert [house.row(id_).attempt for id_ in late] == [0] * 5

    queues.resume(house.store, house.leases, "default")
    house.wait_lines(started + 1, "keyed", seconds=5)
    eventually(lambda: len(house.lines("keyed")) == MANY + 5, 60, "all of them to run, each once")
    assert not house.logged("job_retry")
