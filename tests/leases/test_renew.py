"""Renewing a lease whose row was claimed just now."""

from __future__ import annotations

from store.valkey.entries import Ack, Offer, Renewal
from store.valkey.leases import Leases

FULL = 120_000


def offer(leases: Leases, queue: str, member: str) -> None:
    leases.offer(queue, [Offer(member, "1")], watermark=10)


def test_what_was_offered_before_its_row_was_claimed_is_being_served(leases: Leases, queue: str) -> None:
    offer(leases, queue, "j:1")
    leases.claim(queue, ["t1"], full_ms=FULL)
    offer(leases, queue, "j:1")  # the scheduler, which read the row as due before it was claimed
    assert leases.renew(queue, [Renewal("j:1", "t1", FULL)], row_claimed=True) == [True]
    assert leases.ack(queue, [Ack("j:1", "t1")]) == [True]
    assert leases.sizes(queue) == (0, 0, 0, 0)


def test_what_is_offered_after_its_row_was_claimed_is_wanted_again(leases: Leases, queue: str) -> None:
    offer(leases, queue, "j:1")
    leases.claim(queue, ["t1"], full_ms=FULL)
    leases.renew(queue, [Renewal("j:1", "t1", FULL)], row_claimed=True)
    offer(leases, queue, "j:1")
    leases.renew(queue, [Renewal("j:1", "t1", FULL)])
    leases.ack(queue, [Ack("j:1", "t1")])
    assert leases.sizes(queue).ready == 1


def test_a_stale_holder_forgets_nothing_for_others(leases: Leases, queue: str) -> None:
    offer(leases, queue, "j:1")
    leases.claim(queue, ["t1"], full_ms=FULL)
    offer(leases, queue, "j:1")
    assert leases.renew(queue, [Renewal("j:1", "other", FULL)], row_claimed=True) == [False]
    leases.ack(queue, [Ack("j:1", "t1")])
    assert leases.sizes(queue).ready == 1
