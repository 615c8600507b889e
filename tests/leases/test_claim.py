from __future__ import annotations

import time
import uuid

import pytest

from store.errors import UsageError
from store.valkey.entries import Ack, Claims, Delay, Offer, Renewal
from store.valkey.leases import BATCH, Leases
from tests.leases.inside import Inside

FULL = 60_000
DEADLINE = 10.0


def jobs(leases: Leases, queue: str, *members: str) -> None:
    leases.offer(queue, [Offer(member, "5") for member in members], watermark=1000)


def claim_until_some(leases: Leases, queue: str, token: str) -> Claims:
    deadline = time.monotonic() + DEADLINE
    while True:
        claims = leases.claim(queue, [token], full_ms=FULL)
        if claims.taken or time.monotonic() > deadline:
            return claims
        time.sleep(min(claims.next_ms or 1, 1000) / 1000)


def test_a_claim_takes_one_member_a_token_and_says_what_is_left(leases: Leases, queue: str) -> None:
    jobs(leases, queue, "j:1", "j:2", "j:3")
    claims = leases.claim(queue, ["t1", "t2"], full_ms=FULL, short_ms=30_000)
    assert [(one.member, one.token, one.envelope, one.lost) for one in claims.taken] == [
        ("j:1", "t1", b"", 0),
        ("j:2", "t2", b"", 0),
    ]
    assert claims.ready == 1
    assert claims.next_ms == 30_000


def test_a_claim_of_an_empty_queue_takes_nothing(leases: Leases, queue: str) -> None:
    assert leases.claim(queue, ["t1"], full_ms=FULL) == Claims([], None, 0)


def test_a_job_is_leased_briefly_and_a_message_in_full(leases: Leases, queue: str, inside: Inside) -> None:
    leases.offer(queue, [Offer("j:1", "1"), Offer("m:1", "2", b"letter")], watermark=10)
    before = inside.millis()
    claims = leases.claim(queue, ["t1", "t2"], full_ms=90_000, short_ms=20_000)
    after = inside.millis()
    assert [one.envelope for one in claims.taken] == [b"", b"letter"]
    ends = inside.scores("leases")
    assert before + 20_000 <= ends["j:1"] <= after + 20_000
    assert before + 90_000 <= ends["m:1"] <= after + 90_000


def test_a_claim_repeated_gets_the_same_answer(leases: Leases, queue: str) -> None:
    leases.offer(queue, [Offer("j:1", "1"), Offer("m:2", "2", b"letter"), Offer("j:3", "3")], watermark=10)
    first = leases.claim(queue, ["t1", "t2"], full_ms=FULL)
    again = leases.claim(queue, ["t1", "t2"], full_ms=FULL)
    assert again.taken == first.taken
    assert again.ready == first.ready == 1


def test_a_token_that_holds_nothing_claims_beside_one_that_does(leases: Leases, queue: str) -> None:
    jobs(leases, queue, "j:1")
    leases.claim(queue, ["t1", "t2"], full_ms=FULL)
    jobs(leases, queue, "j:2")
    taken = leases.claim(queue, ["t2", "t1"], full_ms=FULL).taken
    assert sorted((one.member, one.token) for one in taken) == [("j:1", "t1"), ("j:2", "t2")]


def test_a_repeated_claim_never_shortens_what_a_renewal_gave(leases: Leases, queue: str, inside: Inside) -> None:
    jobs(leases, queue, "j:1")
    leases.claim(queue, ["t1"], full_ms=FULL)
    leases.renew(queue, [Renewal("j:1", "t1", 500_000)])
    lease = inside.scores("leases")
    leases.claim(queue, ["t1"], full_ms=FULL)
    assert inside.scores("leases") == lease


def test_a_repeated_claim_keeps_a_lease_that_has_run_out_meanwhile(leases: Leases, queue: str, inside: Inside) -> None:
    jobs(leases, queue, "j:1")
    first = leases.claim(queue, ["t1"], full_ms=FULL)
    inside.lapse("j:1")
    assert leases.claim(queue, ["t1"], full_ms=FULL).taken == first.taken
    assert leases.claim(queue, ["t2"], full_ms=FULL).taken == []


def test_a_token_may_claim_anew_once_its_lease_has_ended(leases: Leases, queue: str) -> None:
    jobs(leases, queue, "j:1", "j:2")
    leases.claim(queue, ["t1"], full_ms=FULL)
    leases.ack(queue, [Ack("j:1", "t1")])
    assert [one.member for one in leases.claim(queue, ["t1"], full_ms=FULL).taken] == ["j:2"]


def test_a_lease_that_ran_out_is_claimed_by_another_and_its_holder_has_lost(leases: Leases, queue: str) -> None:
    jobs(leases, queue, "j:1")
    leases.claim(queue, ["t1"], full_ms=FULL, short_ms=50)
    claims = claim_until_some(leases, queue, "t2")
    assert [(one.member, one.token, one.lost) for one in claims.taken] == [("j:1", "t2", 0)]
    assert leases.renew(queue, [Renewal("j:1", "t1", FULL)]) == [False]


def test_a_recovered_message_keeps_its_place_its_envelope_and_a_count(
    leases: Leases, queue: str, inside: Inside
) -> None:
    leases.offer(queue, [Offer("m:1", "5001700000000001", b"letter")], watermark=10)
    for lost in range(3):
        leases.offer(queue, [Offer("m:2", "5001700000000002", b"other")], watermark=10)
        (claim,) = leases.claim(queue, [f"t{lost}"], full_ms=FULL).taken
        assert (claim.member, claim.envelope, claim.lost) == ("m:1", b"letter", lost)
        inside.lapse("m:1")
    assert leases.claim(queue, ["t", "u"], full_ms=FULL).taken[0].lost == 3


def test_an_ack_forgets_how_often_a_message_was_lost(leases: Leases, queue: str, inside: Inside) -> None:
    leases.offer(queue, [Offer("m:1", "1", b"letter")], watermark=10)
    leases.claim(queue, ["t1"], full_ms=FULL)
    inside.lapse("m:1")
    leases.claim(queue, ["t2"], full_ms=FULL)
    leases.ack(queue, [Ack("m:1", "t2")])
    assert inside.left() == set()


def test_a_claim_recovers_no_more_than_its_limit(leases: Leases, queue: str, inside: Inside) -> None:
    jobs(leases, queue, "j:1", "j:2", "j:3")
    leases.claim(queue, ["t1", "t2", "t3"], full_ms=FULL)
    for member in ("j:1", "j:2", "j:3"):
        inside.lapse(member)
    claims = leases.claim(queue, ["u1", "u2", "u3"], full_ms=FULL, limit=2)
    assert len(claims.taken) == 2
    assert claims.next_ms == 0
    assert len(leases.claim(queue, ["u4"], full_ms=FULL).taken) == 1


def test_what_was_offered_in_flight_is_recovered_once_at_the_better_place(
    leases: Leases, queue: str, inside: Inside
) -> None:
    leases.offer(queue, [Offer("j:1", "500")], watermark=10)
    leases.claim(queue, ["t1"], full_ms=FULL)
    leases.offer(queue, [Offer("j:1", "300")], watermark=10)
    inside.lapse("j:1")
    leases.offer(queue, [Offer("j:2", "400"), Offer("j:3", "200")], watermark=10)
    claims = leases.claim(queue, ["t3", "t2"], full_ms=FULL)
    assert [one.member for one in claims.taken] == ["j:3", "j:1"]
    assert claims.ready == 1
    leases.claim(queue, ["t4"], full_ms=FULL)
    leases.ack(queue, [Ack("j:2", "t4"), Ack("j:3", "t3")])
    leases.ack(queue, [Ack("j:1", "t2")])
    assert inside.left() == set()


def test_next_ms_is_the_nearest_of_delays_and_leases(leases: Leases, queue: str) -> None:
    jobs(leases, queue, "j:1", "j:2")
    assert leases.claim(queue, ["t1"], full_ms=FULL, short_ms=40_000).next_ms == 40_000
    assert leases.claim(queue, ["t2"], full_ms=FULL, short_ms=25_000).next_ms == 25_000
    later = leases.claim(queue, ["t3"], full_ms=FULL).next_ms
    assert later is not None
    assert 0 < later <= 25_000


def test_next_ms_forgets_what_the_claim_has_just_put_back(leases: Leases, queue: str, inside: Inside) -> None:
    jobs(leases, queue, "j:1")
    leases.claim(queue, ["t1"], full_ms=FULL)
    inside.lapse("j:1")
    assert leases.claim(queue, ["t1"], full_ms=FULL, short_ms=30_000).next_ms == 30_000
    inside.lapse("j:1")
    assert leases.claim(queue, ["t2"], full_ms=FULL, short_ms=30_000).next_ms == 30_000
    leases.delay(queue, [Delay("m:1", 60_000, "5", b"letter")])
    inside.mature("m:1")
    assert leases.claim(queue, ["t3"], full_ms=90_000).next_ms in range(20_000, 30_001)


def test_what_an_evicting_server_lost_does_not_stop_recovery(leases: Leases, queue: str, inside: Inside) -> None:
    leases.offer(queue, [Offer("m:1", "7", b"letter")], watermark=10)
    leases.claim(queue, ["t1"], full_ms=FULL)
    inside.lapse("m:1")
    for part in ("tokens", "held", "envelopes"):
        inside.command("DEL", part)
    (claim,) = leases.claim(queue, ["t2"], full_ms=FULL).taken
    assert (claim.member, claim.token, claim.envelope) == ("m:1", "t2", b"")


@pytest.mark.parametrize("tokens", [[], ["t", "t"], [""], [str(uuid.uuid4()) for _ in range(BATCH + 1)]])
@pytest.mark.parametrize("way", ["server"], indirect=True)
def test_tokens_that_make_no_sense_are_refused(leases: Leases, queue: str, tokens: list[str]) -> None:
    with pytest.raises(UsageError):
        leases.claim(queue, tokens, full_ms=FULL)


@pytest.mark.parametrize("way", ["server"], indirect=True)
def test_a_batch_as_large_as_may_be_is_claimed_and_acked_whole(leases: Leases, queue: str, inside: Inside) -> None:
    leases.offer(queue, [Offer(f"m:{n}", "1", b"x" * 200) for n in range(BATCH)], watermark=1)
    taken = leases.claim(queue, [f"t{n}" for n in range(BATCH)], full_ms=FULL).taken
    assert {one.member for one in taken} == {f"m:{n}" for n in range(BATCH)}
    assert leases.ack(queue, [Ack(one.member, one.token) for one in taken]) == [True] * BATCH
    assert inside.left() == set()
