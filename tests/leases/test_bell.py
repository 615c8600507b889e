"""The doorbell: at most one element, rung by all that leaves work behind."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from store.valkey.entries import Ack, Burial, Delay, Offer, Release
from store.valkey.leases import Leases
from tests.leases.inside import Inside

FULL = 60_000


def silent(leases: Leases, queue: str) -> None:
    """Takes the ring that is there."""
    assert leases.block(queue, 5.0)


def held(leases: Leases, queue: str, *members: str) -> None:
    """These messages are in flight under tokens of the same name, and were offered again meanwhile."""
    offers = [Offer(member, "5", b"letter") for member in members]
    leases.offer(queue, offers, watermark=10)
    leases.claim(queue, members, full_ms=FULL)
    leases.offer(queue, offers, watermark=10)


def offer(leases: Leases, queue: str) -> None:
    leases.offer(queue, [Offer("m:3", "5", b"letter")], watermark=10)


def offer_what_is_known(leases: Leases, queue: str) -> None:
    leases.offer(queue, [Offer("m:3", "5", b"letter")], watermark=10)
    silent(leases, queue)
    leases.offer(queue, [Offer("m:3", "5", b"letter")], watermark=10)


def claim_one_of_two(leases: Leases, queue: str) -> None:
    leases.offer(queue, [Offer("m:3", "5", b"letter"), Offer("m:4", "5", b"letter")], watermark=10)
    silent(leases, queue)
    leases.claim(queue, ["t"], full_ms=FULL)


def release_for_a_while(leases: Leases, queue: str) -> None:
    leases.offer(queue, [Offer("j:1", "1")], watermark=10)
    leases.claim(queue, ["t"], full_ms=FULL)
    leases.release(queue, [Release("j:1", "t", 1000)])


LEAVES_WORK: dict[str, Callable[[Leases, str], object]] = {
    "offer": offer,
    "offer of what is ready": offer_what_is_known,
    "claim": claim_one_of_two,
    "ack of what was offered again": lambda leases, queue: leases.ack(queue, [Ack("m:1", "m:1")]),
    "ack that asks for more": lambda leases, queue: leases.ack(queue, [Ack("m:1", "m:1", again=True)]),
    "release": lambda leases, queue: leases.release(queue, [Release("m:1", "m:1")]),
    "release for a while": release_for_a_while,
    "bury of what was offered again": lambda leases, queue: leases.bury(queue, [Burial("m:1", "m:1")]),
    "delay": lambda leases, queue: leases.delay(queue, [Delay("m:5", 1000, "5", b"letter")]),
}


@pytest.mark.parametrize("verb", list(LEAVES_WORK))
def test_every_script_that_leaves_work_behind_rings_once(leases: Leases, queue: str, inside: Inside, verb: str) -> None:
    held(leases, queue, "m:1", "m:2")
    assert inside.bell() == 0
    LEAVES_WORK[verb](leases, queue)
    assert inside.bell() == 1
    leases.offer(queue, [Offer("m:9", "5", b"letter"), Offer("m:8", "5", b"letter")], watermark=10)
    assert inside.bell() == 1


def test_only_a_delay_that_is_the_soonest_rings(leases: Leases, queue: str, inside: Inside) -> None:
    leases.delay(queue, [Delay("m:1", 30_000, "5", b"letter")])
    silent(leases, queue)
    leases.delay(queue, [Delay("m:2", 60_000, "5", b"letter")])
    assert inside.bell() == 0
    leases.delay(queue, [Delay("m:3", 10_000, "5", b"letter")])
    assert inside.bell() == 1


def test_a_claim_that_leaves_nothing_silences_the_bell(leases: Leases, queue: str, inside: Inside) -> None:
    leases.offer(queue, [Offer("j:1", "5")], watermark=10)
    assert inside.bell() == 1
    leases.claim(queue, ["t"], full_ms=FULL)
    assert inside.bell() == 0


def test_an_ack_that_leaves_nothing_does_not_ring(leases: Leases, queue: str, inside: Inside) -> None:
    leases.offer(queue, [Offer("j:1", "5")], watermark=10)
    leases.claim(queue, ["t"], full_ms=FULL)
    leases.ack(queue, [Ack("j:1", "t")])
    assert inside.left() == set()


def test_a_wait_ends_when_its_time_is_over(leases: Leases, queue: str) -> None:
    started = time.monotonic()
    assert leases.block(queue, 0.05) is False
    assert leases.block(queue, 0) is False
    assert 0.04 <= time.monotonic() - started < 5.0


def test_a_wait_ends_when_work_is_offered_and_holds_up_nobody(leases: Leases, queue: str) -> None:
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(leases.block, queue, 5.0)
        for n in range(50):
            leases.sizes(queue)
            assert not waiting.done(), n
        leases.offer(queue, [Offer("j:1", "5")], watermark=10)
        assert waiting.result(timeout=5.0) is True


def test_two_who_wait_are_both_woken_by_two_members(leases: Leases, queue: str) -> None:
    def consume(token: str) -> list[str]:
        assert leases.block(queue, 5.0)
        return [one.member for one in leases.claim(queue, [token], full_ms=FULL).taken]

    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(consume, token) for token in ("t1", "t2")]
        leases.offer(queue, [Offer("j:1", "5"), Offer("j:2", "5")], watermark=10)
        assert sorted(member for done in waiting for member in done.result(timeout=10.0)) == ["j:1", "j:2"]
