"""A queue that is paused: nothing is claimed, nothing is lost, nobody is kept busy."""

from __future__ import annotations

from store.valkey.entries import Ack, Delay, Offer
from store.valkey.leases import Leases
from tests.leases.inside import Inside
from tests.leases.test_offer import FULL, offer


def test_a_paused_queue_hands_out_nothing_until_it_is_resumed(leases: Leases, queue: str) -> None:
    offer(leases, queue, "j:1", "j:2")
    assert leases.pause(queue)
    assert not leases.pause(queue)
    assert leases.claim(queue, ["t1"], full_ms=FULL).taken == []
    assert leases.resume(queue)
    assert not leases.resume(queue)
    assert [one.member for one in leases.claim(queue, ["t1", "t2"], full_ms=FULL).taken] == ["j:1", "j:2"]


def test_what_is_in_flight_goes_on_and_a_lost_answer_is_given_again(leases: Leases, queue: str) -> None:
    offer(leases, queue, "j:1", "j:2")
    leases.claim(queue, ["t1"], full_ms=FULL)
    leases.pause(queue)
    assert [one.member for one in leases.claim(queue, ["t1", "t2"], full_ms=FULL).taken] == ["j:1"]
    assert leases.ack(queue, [Ack("j:1", "t1")]) == [True]


def test_leases_that_run_out_and_delays_that_end_wait_as_ready(leases: Leases, queue: str, inside: Inside) -> None:
    offer(leases, queue, "j:1")
    leases.claim(queue, ["t1"], full_ms=FULL)
    leases.delay(queue, [Delay("m:1", 60_000, "5", b"letter")])
    leases.pause(queue)
    inside.lapse("j:1")
    inside.mature("m:1")
    claims = leases.claim(queue, ["t2", "t3"], full_ms=FULL)
    assert claims.taken == []
    assert claims.next_ms is None
    assert set(inside.scores("ready")) == {"j:1", "m:1"}


def test_nobody_is_woken_for_what_can_not_be_claimed(leases: Leases, queue: str, inside: Inside) -> None:
    offer(leases, queue, "j:1", "j:2")
    leases.pause(queue)
    assert inside.bell() == 0
    leases.offer(queue, [Offer("j:3", "5")], watermark=10)
    leases.claim(queue, ["t1"], full_ms=FULL)  # whoever was woken by the offer puts it to rest
    assert inside.bell() == 0


def test_a_resume_wakes_somebody_where_there_is_work(leases: Leases, queue: str, inside: Inside) -> None:
    leases.pause(queue)
    leases.resume(queue)
    assert inside.bell() == 0
    leases.pause(queue)
    offer(leases, queue, "j:1")
    leases.claim(queue, ["t1"], full_ms=FULL)
    leases.resume(queue)
    assert inside.bell() == 1


def test_a_pause_is_of_one_queue(leases: Leases, queue: str) -> None:
    offer(leases, queue + "x", "j:1")
    leases.pause(queue)
    assert len(leases.claim(queue + "x", ["t1"], full_ms=FULL).taken) == 1
