from __future__ import annotations

from store.valkey.entries import Ack, Offer, Offered, Release
from store.valkey.leases import BATCH, Leases
from tests.leases.inside import Inside

FULL = 60_000


def offer(leases: Leases, queue: str, *members: str, watermark: int = 1000, force: bool = False) -> Offered:
    return leases.offer(
        queue, [Offer(member, str(n)) for n, member in enumerate(members)], watermark=watermark, force=force
    )


def test_offered_jobs_are_claimed_in_the_order_of_their_scores(leases: Leases, queue: str) -> None:
    offers = [Offer("j:last", "5001700000000002"), Offer("j:first", "7"), Offer("j:second", "5001700000000001")]
    assert leases.offer(queue, offers, watermark=10) == Offered(3, 0, 0, 3)
    claims = leases.claim(queue, ["t1", "t2", "t3"], full_ms=FULL)
    assert [one.member for one in claims.taken] == ["j:first", "j:second", "j:last"]


def test_equal_scores_go_in_the_order_of_their_bytes(leases: Leases, queue: str) -> None:
    leases.offer(queue, [Offer(member, "5") for member in ("j:b", "j:ä", "j:a")], watermark=10)
    claims = leases.claim(queue, ["t1", "t2", "t3"], full_ms=FULL)
    assert [one.member for one in claims.taken] == ["j:a", "j:b", "j:ä"]


def test_offering_what_is_ready_changes_nothing_but_a_worse_score(leases: Leases, queue: str, inside: Inside) -> None:
    leases.offer(queue, [Offer("j:1", "500")], watermark=10)
    assert leases.offer(queue, [Offer("j:1", "900")], watermark=10) == Offered(0, 1, 0, 1)
    assert inside.scores("ready") == {"j:1": 500}
    assert leases.offer(queue, [Offer("j:1", "100")], watermark=10) == Offered(0, 1, 0, 1)
    assert inside.scores("ready") == {"j:1": 100}


def test_a_member_twice_in_one_batch_is_new_once(leases: Leases, queue: str, inside: Inside) -> None:
    assert leases.offer(queue, [Offer("j:1", "9"), Offer("j:1", "4")], watermark=10) == Offered(1, 1, 0, 1)
    assert inside.scores("ready") == {"j:1": 4}


def test_offering_what_is_in_flight_only_marks_it(leases: Leases, queue: str, inside: Inside) -> None:
    offer(leases, queue, "j:1")
    leases.claim(queue, ["t1"], full_ms=FULL, short_ms=20_000)
    lease = inside.scores("leases")
    assert offer(leases, queue, "j:1") == Offered(0, 1, 0, 0)
    assert inside.scores("leases") == lease
    assert leases.claim(queue, ["t2"], full_ms=FULL).taken == []


def test_above_the_watermark_new_jobs_are_dropped_and_messages_are_not(leases: Leases, queue: str) -> None:
    assert offer(leases, queue, "j:1", "j:2", "j:3", watermark=2) == Offered(2, 0, 1, 2)
    assert leases.offer(queue, [Offer("m:1", "1", b"x"), Offer("j:4", "1")], watermark=2) == Offered(1, 0, 1, 3)
    assert offer(leases, queue, "j:1", watermark=2) == Offered(0, 1, 0, 3)
    assert offer(leases, queue, "j:5", watermark=2, force=True) == Offered(1, 0, 0, 4)


def test_a_mark_is_not_dropped_above_the_watermark(leases: Leases, queue: str) -> None:
    offer(leases, queue, "j:1", "j:2")
    leases.claim(queue, ["t1"], full_ms=FULL)
    assert offer(leases, queue, "j:1", watermark=0) == Offered(0, 1, 0, 1)
    assert leases.ack(queue, [Ack("j:1", "t1")]) == [True]
    assert leases.sizes(queue).ready == 2


def test_offers_do_not_cut_short_the_delay_of_a_job_given_back(leases: Leases, queue: str) -> None:
    offer(leases, queue, "j:1")
    leases.claim(queue, ["t1"], full_ms=FULL)
    leases.release(queue, [Release("j:1", "t1", 60_000)])
    assert offer(leases, queue, "j:1") == Offered(0, 1, 0, 0)
    assert leases.claim(queue, ["t2"], full_ms=FULL).taken == []


def test_a_batch_of_any_length_is_taken_and_counted_together(leases: Leases, queue: str) -> None:
    members = [f"j:{n}" for n in range(2 * BATCH + 7)]
    watermark = 2 * BATCH
    assert offer(leases, queue, *members, watermark=watermark) == Offered(watermark, 0, 7, watermark)
    assert offer(leases, queue) == Offered(0, 0, 0, 0)
