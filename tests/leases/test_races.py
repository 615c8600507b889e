from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from store.valkey.entries import Ack, Claims, Offer, Sizes
from store.valkey.leases import Leases
from tests.leases.inside import Inside

FULL = 60_000


def at_once(*work: Callable[[], object]) -> list[object]:
    """Lets all begin at the same moment, and gives their results."""
    start = threading.Barrier(len(work), timeout=10.0)

    def run(one: Callable[[], object]) -> object:
        start.wait()
        return one()

    with ThreadPoolExecutor(len(work)) as pool:
        return list(pool.map(run, work))


def test_no_member_is_claimed_twice(leases: Leases, queue: str, inside: Inside) -> None:
    members = [f"j:{n}" for n in range(300)]
    leases.offer(queue, [Offer(member, "5") for member in members], watermark=1000)

    def consume() -> list[str]:
        mine: list[str] = []
        while taken := leases.claim(queue, [str(uuid.uuid4()) for _ in range(7)], full_ms=FULL).taken:
            mine += [one.member for one in taken]
            assert all(leases.ack(queue, [Ack(one.member, one.token) for one in taken]))
        return mine

    found = [member for mine in at_once(*[consume] * 4) for member in mine]  # type: ignore[attr-defined]
    assert sorted(found) == sorted(members)
    assert inside.left() == set()


def test_of_a_late_ack_and_the_next_claim_one_wins(leases: Leases, queue: str, inside: Inside) -> None:
    for round_ in range(40):
        leases.offer(queue, [Offer("j:1", "5")], watermark=9)
        leases.claim(queue, ["old"], full_ms=FULL)
        inside.lapse("j:1")
        acked, claims = at_once(
            lambda: leases.ack(queue, [Ack("j:1", "old")]), lambda: leases.claim(queue, ["new"], full_ms=FULL)
        )
        assert isinstance(claims, Claims)
        assert acked == [not claims.taken], round_
        leases.ack(queue, [Ack("j:1", "new")])
        assert leases.sizes(queue) == Sizes(0, 0, 0, 0)


def test_an_offer_beside_an_ack_is_never_lost(leases: Leases, queue: str) -> None:
    for round_ in range(40):
        leases.offer(queue, [Offer("j:1", "5")], watermark=9)
        leases.claim(queue, ["t"], full_ms=FULL)
        at_once(
            lambda: leases.ack(queue, [Ack("j:1", "t")]),
            lambda: leases.offer(queue, [Offer("j:1", "5")], watermark=9),
        )
        assert leases.sizes(queue) == Sizes(1, 0, 0, 0), round_
        leases.claim(queue, ["t"], full_ms=FULL)
        leases.ack(queue, [Ack("j:1", "t")])


def test_one_lapsed_lease_goes_to_one_of_many_claimers(leases: Leases, queue: str, inside: Inside) -> None:
    leases.offer(queue, [Offer("m:1", "5", b"letter")], watermark=9)
    leases.claim(queue, ["old"], full_ms=FULL)
    inside.lapse("m:1")
    results = at_once(*[lambda token=token: leases.claim(queue, [token], full_ms=FULL) for token in ("a", "b", "c")])
    taken = [one for claims in results if isinstance(claims, Claims) for one in claims.taken]
    assert [(one.member, one.lost) for one in taken] == [("m:1", 1)]
