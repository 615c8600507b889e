"""How a lease ends or goes on: ack, release, renew, bury; and that a token that holds no longer changes nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from store.errors import UsageError
from store.valkey.entries import Ack, Burial, Offer, Release, Renewal, Sizes
from store.valkey.leases import Leases
from tests.leases.inside import Inside

FULL = 60_000


def take(leases: Leases, queue: str, member: str = "j:1", envelope: bytes = b"", score: str = "500") -> None:
    leases.offer(queue, [Offer(member, score, envelope)], watermark=10)
    assert [one.member for one in leases.claim(queue, ["t1"], full_ms=FULL).taken] == [member]


def test_an_ack_leaves_nothing_behind(leases: Leases, queue: str, inside: Inside) -> None:
    for member, envelope in (("j:1", b""), ("m:1", b"letter")):
        take(leases, queue, member, envelope)
        assert leases.ack(queue, [Ack(member, "t1")]) == [True]
        assert inside.left() == set()


@pytest.mark.parametrize(("member", "envelope"), [("j:1", b""), ("m:1", b"letter")])
def test_what_was_offered_in_flight_is_ready_after_the_ack(
    leases: Leases, queue: str, inside: Inside, member: str, envelope: bytes
) -> None:
    take(leases, queue, member, envelope)
    for score in ("800", "700", "900"):
        leases.offer(queue, [Offer(member, score, envelope)], watermark=10)
    assert leases.ack(queue, [Ack(member, "t1")]) == [True]
    assert inside.scores("ready") == {member: 700}  # the best of the offers, not the place that it has had already
    (claim,) = leases.claim(queue, ["t2"], full_ms=FULL).taken
    assert (claim.member, claim.envelope) == (member, envelope)
    leases.ack(queue, [Ack(member, "t2")])
    assert inside.left() == set()


def test_an_ack_may_ask_for_the_member_again(leases: Leases, queue: str, inside: Inside) -> None:
    take(leases, queue)
    leases.ack(queue, [Ack("j:1", "t1", again=True)])
    assert inside.scores("ready") == {"j:1": 500}
    leases.claim(queue, ["t2"], full_ms=FULL)
    leases.ack(queue, [Ack("j:1", "t2", again=True, score="600")])
    assert inside.scores("ready") == {"j:1": 600}
    leases.claim(queue, ["t3"], full_ms=FULL)
    leases.offer(queue, [Offer("j:1", "650")], watermark=10)
    leases.ack(queue, [Ack("j:1", "t3", again=True, score="700")])
    assert inside.scores("ready") == {"j:1": 650}


def test_the_newest_envelope_is_the_one_that_comes_back(leases: Leases, queue: str) -> None:
    take(leases, queue, "m:1", b"first try")
    leases.offer(queue, [Offer("m:1", "9", b"second try")], watermark=10)
    leases.ack(queue, [Ack("m:1", "t1")])
    assert leases.claim(queue, ["t2"], full_ms=FULL).taken[0].envelope == b"second try"


def test_a_release_gives_back_place_and_envelope(leases: Leases, queue: str, inside: Inside) -> None:
    take(leases, queue, "m:1", b"letter", "5001700000000001")
    assert leases.release(queue, [Release("m:1", "t1")]) == [True]
    assert inside.scores("ready") == {"m:1": 5001700000000001}
    (claim,) = leases.claim(queue, ["t2"], full_ms=FULL).taken
    assert (claim.envelope, claim.lost) == (b"letter", 0)


def test_a_release_with_a_delay_keeps_the_place_for_later(leases: Leases, queue: str, inside: Inside) -> None:
    take(leases, queue, score="5001700000000001")
    before = inside.millis()
    leases.release(queue, [Release("j:1", "t1", 40_000)])
    assert leases.sizes(queue) == Sizes(0, 1, 0, 0)
    assert before + 40_000 <= inside.scores("delayed")["j:1"] <= inside.millis() + 40_000
    inside.mature("j:1")
    assert leases.claim(queue, ["t2"], full_ms=FULL).taken[0].member == "j:1"
    leases.release(queue, [Release("j:1", "t2")])
    assert inside.scores("ready") == {"j:1": 5001700000000001}


def test_a_message_offered_in_flight_is_ready_at_once_although_released_with_a_delay(
    leases: Leases, queue: str
) -> None:
    take(leases, queue, "m:1", b"letter")
    leases.offer(queue, [Offer("m:1", "9", b"letter")], watermark=10)
    leases.release(queue, [Release("m:1", "t1", 40_000)])
    assert leases.sizes(queue) == Sizes(1, 1, 0, 0)


def test_a_job_offered_in_flight_still_waits_when_released_with_a_delay(leases: Leases, queue: str) -> None:
    take(leases, queue)
    leases.offer(queue, [Offer("j:1", "9")], watermark=10)
    leases.release(queue, [Release("j:1", "t1", 40_000)])
    assert leases.sizes(queue) == Sizes(0, 1, 0, 0)


def test_a_renewal_makes_a_lease_longer_and_never_shorter(leases: Leases, queue: str, inside: Inside) -> None:
    take(leases, queue)
    before = inside.millis()
    assert leases.renew(queue, [Renewal("j:1", "t1", 300_000)]) == [True]
    lease = inside.scores("leases")["j:1"]
    assert before + 300_000 <= lease <= inside.millis() + 300_000
    assert leases.renew(queue, [Renewal("j:1", "t1", 1)]) == [True]
    assert inside.scores("leases")["j:1"] == lease


def test_a_lease_that_ran_out_is_renewed_as_long_as_nobody_took_it(leases: Leases, queue: str, inside: Inside) -> None:
    take(leases, queue)
    inside.lapse("j:1")
    assert leases.renew(queue, [Renewal("j:1", "t1", FULL)]) == [True]
    assert leases.claim(queue, ["t2"], full_ms=FULL).taken == []


ENDINGS: dict[str, Callable[[Leases, str, str, str], list[bool]]] = {
    "ack": lambda leases, queue, member, token: leases.ack(queue, [Ack(member, token)]),
    "ack again": lambda leases, queue, member, token: leases.ack(queue, [Ack(member, token, True, "1")]),
    "release": lambda leases, queue, member, token: leases.release(queue, [Release(member, token)]),
    "release later": lambda leases, queue, member, token: leases.release(queue, [Release(member, token, 9)]),
    "renew": lambda leases, queue, member, token: leases.renew(queue, [Renewal(member, token, 10**9)]),
    "bury": lambda leases, queue, member, token: leases.bury(queue, [Burial(member, token)]),
}


@pytest.mark.parametrize("ending", list(ENDINGS))
@pytest.mark.parametrize("stale", ["of nobody", "of the one before", "of another member", "of what is ready"])
def test_a_token_that_does_not_hold_changes_nothing(
    leases: Leases, queue: str, inside: Inside, ending: str, stale: str
) -> None:
    leases.offer(queue, [Offer(f"m:{n}", str(n), b"letter") for n in (1, 2, 3)], watermark=10)
    leases.claim(queue, ["before"], full_ms=FULL)
    inside.lapse("m:1")
    leases.claim(queue, ["now", "other"], full_ms=FULL)
    leases.offer(queue, [Offer("m:1", "5", b"letter")], watermark=10)
    member, token = {
        "of nobody": ("m:1", "nobody"),
        "of the one before": ("m:1", "before"),
        "of another member": ("m:1", "other"),
        "of what is ready": ("m:3", "now"),
    }[stale]
    parts = ("ready", "leases", "delayed", "again", "dead")
    before = {part: inside.scores(part) for part in parts} | {"tokens": inside.values("tokens")}
    assert ENDINGS[ending](leases, queue, member, token) == [False]
    assert {part: inside.scores(part) for part in parts} | {"tokens": inside.values("tokens")} == before
    assert leases.renew(queue, [Renewal("m:1", "now", FULL), Renewal("m:2", "other", FULL)]) == [True, True]


@pytest.mark.parametrize("ending", [name for name in ENDINGS if name != "renew"])
def test_an_ending_said_twice_is_done_once(leases: Leases, queue: str, ending: str) -> None:
    take(leases, queue, "m:1", b"letter")
    assert ENDINGS[ending](leases, queue, "m:1", "t1") == [True]
    sizes = leases.sizes(queue)
    assert ENDINGS[ending](leases, queue, "m:1", "t1") == [False]
    assert leases.sizes(queue) == sizes


def test_a_batch_is_answered_entry_by_entry(leases: Leases, queue: str) -> None:
    leases.offer(queue, [Offer(f"j:{n}", str(n)) for n in (1, 2)], watermark=10)
    leases.claim(queue, ["t1", "t2"], full_ms=FULL)
    acks = [Ack("j:2", "t2"), Ack("j:1", "stale"), Ack("j:9", "t9"), Ack("j:1", "t1")]
    assert leases.ack(queue, acks) == [True, False, False, True]
    assert leases.ack(queue, []) == []


@pytest.mark.parametrize("way", ["server"], indirect=True)
def test_entries_that_make_no_sense_are_refused_before_anything_is_sent(leases: Leases, queue: str) -> None:
    for score in ("", "-1", "1e9", "5.0", "٣", "9" * 17):
        with pytest.raises(UsageError):
            leases.offer(queue, [Offer("j:1", "1"), Offer("j:2", score)], watermark=10)
    with pytest.raises(UsageError):
        leases.offer(queue, [Offer("", "1")], watermark=10)
    with pytest.raises(UsageError):
        leases.release(queue, [Release("j:1", "t1", -1)])
    with pytest.raises(UsageError):
        leases.renew(queue, [Renewal("j:1", "t1", 10**15)])
    with pytest.raises(UsageError):
        leases.bury(queue, [Burial("j:1", "t1")], keep_most=0)
    assert leases.sizes(queue) == Sizes(0, 0, 0, 0)
