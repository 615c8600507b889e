"""Somebody with the Valkey port: forged offers, claims, acks and junk change no row, and hold up nobody else's work."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from store.identity import new_id, new_lease_id
from store.valkey.entries import Ack, Offer
from store.valkey.keys import PARTS, keys_of
from tests.endtoend.house import House, eventually


@pytest.fixture
def house(tmp_path: Path, valkey_url: str) -> Iterator[House]:
    made = House(tmp_path, f"sqlite:///{tmp_path}/jobs.db", valkey_url)
    yield made
    made.close()


def key(part: str) -> bytes:
    return keys_of("default")[PARTS.index(part)]


def test_what_a_stranger_puts_into_valkey_changes_no_row_and_holds_up_nobody(house: House) -> None:
    valkey = redis.Redis.from_url(house.settings["JOBS_VALKEY_URL"])
    house.worker(WORKER_CONCURRENCY="2")
    running = house.wake("test.gated", "slow")
    house.wait_lines(1, "begin", "slow")
    parked = house.wake("test.keyed", "later", delay=3600.0)
    held, waiting = house.row(running), house.row(parked)

    # Offered though it is not due, though it runs, though there is no such job; and things that are no job at all.
    odd = [f"j:{parked}", f"j:{running}", f"j:{new_id()}", "j:", "j:not-an-id", "m:", "x", "j:" + "9" * 5000]
    for member in odd:
        valkey.zadd(key("ready"), {member: 1})
    for number, envelope in enumerate([b"", b"{}", b"[" * 100_000, b"\xff\x00", b'{"actor_name": "no.such"}']):
        valkey.hset(key("envelopes"), f"m:{number}", envelope)
        valkey.zadd(key("ready"), {f"m:{number}": 1})
    valkey.lpush(key("bell"), *range(3))
    # A claim and an ack of a stranger's own, for the job that runs.
    house.leases.offer("default", [Offer(f"j:{running}", "1")], watermark=1_000, force=True)
    token = new_lease_id()
    valkey.hset(key("tokens"), f"j:{running}", f"{1:016d}{token}")
    valkey.hset(key("held"), token, f"j:{running}")
    house.leases.ack("default", [Ack(f"j:{running}", token)])

    done = house.wake("test.keyed", "now")
    house.wait_state(done, "completed")
    eventually(lambda: valkey.zcard(key("ready")) == 0, 30, "the junk to be taken away")
    assert house.row(parked) == waiting
    now = house.row(running)
    assert (now.state, now.lease_id, now.attempt) == (held.state, held.lease_id, held.attempt)
    assert len(house.lines("begin", "slow")) == 1
    house.open_gate("slow")
    house.wait_state(running, "completed")
    assert house.row(running).attempt == 1
    assert house.row(parked).attempt == 0
