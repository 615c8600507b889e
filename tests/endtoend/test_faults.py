"""Workers that are killed, frozen and stopped; a Valkey that forgets. No wake is lost and nothing stale is believed."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import redis

from tests.endtoend.house import House, eventually

SHORT = {"JOBS_LEASE_SECONDS": "2"}


def test_a_job_whose_worker_was_killed_is_finished_by_another(make_house: Callable[..., House]) -> None:
    house = make_house(**SHORT)
    first = house.worker()
    id_ = house.wake("test.gated", "k")
    house.wait_lines(1, "begin", "k")
    second = house.worker()
    house.kill(first)
    house.wait_lines(2, "begin", "k")
    house.open_gate("k")
    row = house.wait_state(id_, "completed")
    assert second.poll() is None
    assert row.attempt == 2
    assert [(e.kind, e.code) for e in house.store.history(id_)[::-1]] == [
        ("attempt_failed", "worker_lost"),
        ("recovered", None),
    ]


def test_a_worker_frozen_beyond_its_lease_can_change_nothing_afterwards(make_house: Callable[..., House]) -> None:
    house = make_house(**SHORT)
    first = house.worker()
    id_ = house.wake("test.deaf", "z", 1)
    house.wait_lines(1, "begin", "z")
    frozen = house.child_of(first)
    os.kill(frozen, signal.SIGSTOP)
    house.worker()
    house.wait_lines(2, "begin", "z")
    house.wake("test.deaf", "z", 2)
    os.kill(frozen, signal.SIGCONT)
    house.open_gate("z")
    # The newer wake is served by whoever holds the row, the old run's finish is refused.
    eventually(lambda: house.store.read([id_]) == [None], what="the row to retire")
    house.wait_lines(1, "end", "z", 2)
    eventually(lambda: house.logged("job_stale"), what="the stale finish to be told")


def test_a_valkey_that_forgets_everything_under_load_loses_no_job(house: House, valkey_url: str) -> None:
    server = redis.Redis.from_url(valkey_url)
    for number in range(200):
        house.wake("test.plain", f"t{number}", number)
    house.worker()
    house.worker()
    for number in range(200, 400):
        house.wake("test.plain", f"t{number}", number)
        if number % 50 == 0:
            server.flushall()
    server.close()
    house.wait_lines(400, "plain")
    assert {line[1] for line in house.lines("plain")} == {f"t{number}" for number in range(400)}


def test_a_graceful_stop_lets_running_jobs_end_and_gives_the_others_back_uncounted(
    make_house: Callable[..., House],
) -> None:
    house = make_house(WORKER_CONCURRENCY="1")
    first = house.worker()
    running = house.wake("test.gated", "r")
    house.wait_lines(1, "begin", "r")
    waiting = [house.wake("test.keyed", f"w{number}") for number in range(20)]
    os.kill(first.pid, signal.SIGTERM)
    os.kill(first.pid, signal.SIGTERM)  # a doubled signal changes nothing
    eventually(lambda: house.row(running).stopping, what="the row in hand to be marked")
    house.open_gate("r")
    assert first.wait(30) == 0
    assert house.row(running).state == "completed"
    assert all(house.row(id_).state == "queued" for id_ in waiting)
    house.worker()
    for id_ in waiting:
        row = house.wait_state(id_, "completed")
        assert (row.retries, row.failure_code) == (0, None)


def test_a_run_that_outlasts_the_stop_is_interrupted_and_released_unpunished(make_house: Callable[..., House]) -> None:
    house = make_house(JOBS_SHUTDOWN_WAIT_FOR_LEASES_SEC="0")
    ids = []
    for round_ in range(3):
        worker = house.worker()
        ids.append(house.wake("test.interrupted", "s"))
        house.wait_lines(round_ + 1, "begin", "s")
        os.kill(worker.pid, signal.SIGTERM)
        assert worker.wait(30) == 0
        row = house.row(ids[0])
        assert (row.state, row.retries, row.failure_code) == ("queued", 0, None)
    assert [line[2] for line in house.lines("stopped", "s")] == ["Stopped"] * 3


def test_a_deploy_that_kills_after_the_signal_counts_as_no_failure(make_house: Callable[..., House]) -> None:
    house = make_house(**SHORT)
    first = house.worker()
    id_ = house.wake("test.deaf", "m")
    house.wait_lines(1, "begin", "m")
    os.kill(first.pid, signal.SIGTERM)
    eventually(lambda: house.row(id_).stopping, what="the mark")
    house.kill(first)
    house.worker()
    house.wait_lines(2, "begin", "m")
    assert house.row(id_).retries == 0
    house.open_gate("m")
    eventually(lambda: house.store.read([id_]) == [None])


def test_the_health_file_tells_a_worker_that_hangs(make_house: Callable[..., House]) -> None:
    from middleware.health import judge

    house = make_house()
    assert not judge(house.folder).healthy
    worker = house.worker()
    eventually(lambda: judge(house.folder).healthy, what="a healthy worker")
    os.kill(worker.pid, signal.SIGTERM)
    worker.wait(30)
    assert judge(house.folder).reasons[0].startswith("no worker is running")
