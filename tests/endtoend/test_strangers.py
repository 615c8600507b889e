"""Somebody with Valkey's port and nothing else: what they put there or take away changes no row."""

from __future__ import annotations

import json
import uuid

import redis

from store.clock import PARKED
from store.valkey.entries import Ack, Offer
from tests.endtoend.house import House, eventually


def forged(house: House, *members: str, envelope: bytes = b"") -> None:
    house.leases.offer("default", [Offer(member, "0", envelope) for member in members], watermark=10_000)


def served_after_it(house: House, name: str) -> None:
    """A job that is woken now is done, and nothing that was offered before it is still on its way."""
    house.wait_state(house.wake("test.keyed", name), "completed")
    eventually(lambda: house.leases.sizes("default")[:3] == (0, 0, 0), what="all that was offered to be looked at")


def test_an_offer_of_a_row_that_may_not_run_changes_nothing(house: House) -> None:
    house.worker()
    done = house.wake("test.keyed", "done")
    house.wait_state(done, "completed")
    later = house.wake("test.keyed", "later", run_at=PARKED, ring=False)
    before = house.store.read([done, later])
    forged(house, f"j:{done}", f"j:{later}", f"j:{uuid.uuid4()}")
    served_after_it(house, "after")
    assert house.store.read([done, later]) == before
    assert len(house.lines("keyed")) == 2


def test_a_member_that_is_no_job_at_all_holds_nobody_up(house: House) -> None:
    house.worker()
    forged(house, "j:", "j:no-uuid", f"j:{str(uuid.uuid4()).upper()}", "j:' OR 1=1 --", "x:other")
    served_after_it(house, "after")


def test_a_forged_message_in_the_name_of_a_job_type_runs_no_handler(house: House) -> None:
    house.worker()
    for args in ([], [{"thing": "forged", "value": 1}, None]):  # as a payload and a run would be handed over
        message = {
            "queue_name": "default", "actor_name": "test.loose", "args": args, "kwargs": {}, "options": {},
            "message_id": str(uuid.uuid4()), "message_timestamp": 0,
        }  # fmt: skip
        forged(house, f"m:{message['message_id']}", envelope=json.dumps(message).encode())
    forged(house, "m:junk", envelope=b"\x80\x04junk")
    served_after_it(house, "after")
    eventually(lambda: house.leases.sizes("default").dead == 3, what="three dead letters")
    assert house.lines("loose") == []


def test_a_run_whose_lease_in_valkey_is_taken_away_keeps_its_row(house: House, valkey_url: str) -> None:
    house.worker()
    id_ = house.wake("test.gated", "mine")
    house.wait_lines(1, "begin", "mine")
    held = house.row(id_)
    house.leases.ack("default", [Ack(f"j:{id_}", str(held.lease_id))])
    server = redis.Redis.from_url(valkey_url)
    server.flushall()
    server.close()
    forged(house, f"j:{id_}")
    house.wait_state(house.wake("test.keyed", "after"), "completed")
    row = house.row(id_)
    assert (row.state, row.lease_id, row.attempt) == ("processing", held.lease_id, 1)
    house.open_gate("mine")
    house.wait_state(id_, "completed")
    assert len(house.lines("begin", "mine")) == 1
