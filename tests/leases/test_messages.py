"""Delayed messages, dead letters, flush and sizes."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest

from store.errors import UsageError
from store.valkey.entries import Ack, Burial, Delay, Offer, Sizes
from store.valkey.leases import Leases
from tests.leases.inside import Inside

FULL = 60_000
DEADLINE = 10.0


def test_a_delayed_message_is_claimed_once_it_is_due(leases: Leases, queue: str) -> None:
    leases.delay(queue, [Delay("m:1", 80, "5", b"letter")])
    claims = leases.claim(queue, ["t1"], full_ms=FULL)
    assert claims.taken == []
    assert claims.next_ms is not None
    assert 0 < claims.next_ms <= 80
    deadline = time.monotonic() + DEADLINE
    while not claims.taken and time.monotonic() < deadline:
        time.sleep((claims.next_ms or 0) / 1000)
        claims = leases.claim(queue, ["t1"], full_ms=FULL)
    assert [(one.member, one.envelope) for one in claims.taken] == [("m:1", b"letter")]


def test_a_message_that_became_due_takes_its_place_by_score(leases: Leases, queue: str, inside: Inside) -> None:
    leases.offer(queue, [Offer("m:low", "900", b"low"), Offer("m:high", "100", b"high")], watermark=10)
    leases.delay(queue, [Delay("m:delayed", 60_000, "500", b"later")])
    inside.mature("m:delayed")
    taken = leases.claim(queue, ["t1", "t2", "t3"], full_ms=FULL).taken
    assert [one.member for one in taken] == ["m:high", "m:delayed", "m:low"]


def test_a_message_retried_with_a_delay_while_in_flight_survives_its_ack(
    leases: Leases, queue: str, inside: Inside
) -> None:
    leases.offer(queue, [Offer("m:1", "5", b"first try")], watermark=10)
    leases.claim(queue, ["t1"], full_ms=FULL)
    leases.delay(queue, [Delay("m:1", 60_000, "6", b"second try")])
    assert leases.ack(queue, [Ack("m:1", "t1")]) == [True]
    assert leases.sizes(queue) == Sizes(0, 1, 0, 0)
    inside.mature("m:1")
    (claim,) = leases.claim(queue, ["t2"], full_ms=FULL).taken
    assert claim.envelope == b"second try"
    leases.ack(queue, [Ack("m:1", "t2")])
    assert inside.left() == set()


def test_a_delay_that_ends_while_the_message_is_in_flight_makes_it_ready_after_the_ack(
    leases: Leases, queue: str, inside: Inside
) -> None:
    leases.offer(queue, [Offer("m:1", "5", b"letter")], watermark=10)
    leases.claim(queue, ["t1"], full_ms=FULL)
    leases.delay(queue, [Delay("m:1", 60_000, "6", b"letter")])
    inside.mature("m:1")
    assert leases.claim(queue, ["t2"], full_ms=FULL).taken == []
    leases.ack(queue, [Ack("m:1", "t1")])
    assert inside.scores("ready") == {"m:1": 6}


def test_a_delayed_message_that_is_offered_is_ready_now(leases: Leases, queue: str) -> None:
    leases.delay(queue, [Delay("m:1", 60_000, "5", b"letter")])
    leases.offer(queue, [Offer("m:1", "5", b"letter")], watermark=10)
    assert leases.sizes(queue) == Sizes(1, 1, 0, 0)


def test_of_two_delays_the_sooner_stands(leases: Leases, queue: str, inside: Inside) -> None:
    for ms in (60_000, 30_000, 90_000):
        leases.delay(queue, [Delay("m:1", ms, "5", b"letter")])
    assert inside.scores("delayed")["m:1"] - inside.millis() <= 30_000


def test_only_messages_can_be_delayed(leases: Leases, queue: str) -> None:
    with pytest.raises(UsageError):
        leases.delay(queue, [Delay("j:1", 1, "5", b"")])


def test_a_claim_promotes_no_more_than_its_limit(leases: Leases, queue: str, inside: Inside) -> None:
    leases.delay(queue, [Delay(f"m:{n}", 60_000, "5", b"letter") for n in range(3)])
    for n in range(3):
        inside.mature(f"m:{n}")
    claims = leases.claim(queue, ["t1", "t2", "t3"], full_ms=FULL, limit=2)
    assert (len(claims.taken), claims.next_ms) == (2, 0)


def bury(leases: Leases, queue: str, name: str, *, keep_ms: int = 60_000, keep_most: int = 100) -> None:
    leases.offer(queue, [Offer(name, "5", name.encode())], watermark=1)
    leases.claim(queue, [name], full_ms=FULL)
    assert leases.bury(queue, [Burial(name, name)], keep_ms=keep_ms, keep_most=keep_most) == [True]


def test_a_buried_message_is_found_among_the_dead_and_nowhere_else(leases: Leases, queue: str, inside: Inside) -> None:
    before = inside.millis()
    bury(leases, queue, "m:1")
    (letter,) = leases.dead_letters(queue)
    assert (letter.member, letter.envelope) == ("m:1", b"m:1")
    assert letter.buried_at.tzinfo is UTC
    assert before <= letter.buried_at.timestamp() * 1000 <= inside.millis()
    assert inside.left() == {"dead", "graves"}
    assert leases.sizes(queue) == Sizes(0, 0, 0, 1)


def test_of_too_many_dead_letters_the_oldest_go(leases: Leases, queue: str, inside: Inside) -> None:
    for n in range(4):
        inside.command("ZADD", "dead", n + 1, f"m:old{n}")
        inside.command("HSET", "graves", f"m:old{n}", "x")
    bury(leases, queue, "m:new", keep_ms=10**12 * 2, keep_most=3)
    assert [letter.member for letter in leases.dead_letters(queue)] == ["m:new", "m:old3", "m:old2"]
    assert len(inside.values("graves")) == 3


def test_dead_letters_older_than_their_time_go(leases: Leases, queue: str, inside: Inside) -> None:
    inside.command("ZADD", "dead", inside.millis() - 61_000, "m:old")
    inside.command("HSET", "graves", "m:old", "x")
    bury(leases, queue, "m:new", keep_ms=60_000)
    assert [letter.member for letter in leases.dead_letters(queue)] == ["m:new"]
    assert set(inside.values("graves")) == {"m:new"}
    assert 0 < inside.command("PTTL", "dead") <= 60_000
    assert 0 < inside.command("PTTL", "graves") <= 60_000


def test_dead_letters_are_listed_newest_first_and_bounded(leases: Leases, queue: str, inside: Inside) -> None:
    for n in range(5):
        inside.command("ZADD", "dead", 1_700_000_000_000 + n, f"m:{n}")
    letters = leases.dead_letters(queue, limit=2)
    assert [letter.member for letter in letters] == ["m:4", "m:3"]
    assert letters[0].buried_at == datetime(2023, 11, 14, 22, 13, 20, 4000, tzinfo=UTC)
    with pytest.raises(UsageError):
        leases.dead_letters(queue, limit=0)


def test_a_buried_message_that_was_offered_again_is_ready_too(leases: Leases, queue: str) -> None:
    leases.offer(queue, [Offer("m:1", "5", b"letter")], watermark=10)
    leases.claim(queue, ["t1"], full_ms=FULL)
    leases.offer(queue, [Offer("m:1", "5", b"letter")], watermark=10)
    leases.bury(queue, [Burial("m:1", "t1")])
    assert leases.sizes(queue) == Sizes(1, 0, 0, 1)
    assert leases.claim(queue, ["t2"], full_ms=FULL).taken[0].envelope == b"letter"


def test_a_buried_message_that_was_delayed_meanwhile_comes_back_later(
    leases: Leases, queue: str, inside: Inside
) -> None:
    leases.offer(queue, [Offer("m:1", "5", b"letter")], watermark=10)
    leases.claim(queue, ["t1"], full_ms=FULL)
    leases.delay(queue, [Delay("m:1", 60_000, "5", b"letter")])
    leases.bury(queue, [Burial("m:1", "t1")])
    assert leases.sizes(queue) == Sizes(0, 1, 0, 1)
    inside.mature("m:1")
    assert leases.claim(queue, ["t2"], full_ms=FULL).taken[0].envelope == b"letter"


def test_a_job_that_is_buried_is_gone(leases: Leases, queue: str, inside: Inside) -> None:
    leases.offer(queue, [Offer("j:1", "5")], watermark=10)
    leases.claim(queue, ["t1"], full_ms=FULL)
    assert leases.bury(queue, [Burial("j:1", "t1")]) == [True]
    assert inside.left() == set()


def test_a_flush_drops_what_waits_and_leaves_what_runs(leases: Leases, queue: str, inside: Inside) -> None:
    bury(leases, queue, "m:dead")
    leases.offer(queue, [Offer("m:lost", "1", b"lost"), Offer("m:runs", "2", b"runs")], watermark=10)
    leases.claim(queue, ["t1"], full_ms=FULL)
    inside.lapse("m:lost")
    leases.claim(queue, ["t2", "t3"], full_ms=FULL)
    leases.offer(queue, [Offer("m:runs", "2", b"runs"), Offer("m:3", "3", b"3"), Offer("j:4", "4")], watermark=10)
    leases.delay(queue, [Delay("m:5", 60_000, "5", b"5"), Delay("m:6", 60_000, "6", b"6")])
    assert leases.flush(queue) == 4
    assert leases.sizes(queue) == Sizes(0, 0, 2, 1)
    assert inside.values("envelopes") == {"m:lost": b"lost", "m:runs": b"runs"}
    assert inside.bell() == 0
    inside.lapse("m:lost")
    (claim,) = leases.claim(queue, ["t4"], full_ms=FULL).taken
    assert (claim.member, claim.envelope, claim.lost) == ("m:lost", b"lost", 2)
    assert leases.ack(queue, [Ack("m:runs", "t3"), Ack("m:lost", "t4")]) == [True, True]
    assert inside.left() == {"dead", "graves"}


def test_a_flush_of_an_empty_queue_drops_nothing(leases: Leases, queue: str) -> None:
    assert leases.flush(queue) == 0


@pytest.mark.parametrize("way", ["server"], indirect=True)
def test_a_flush_keeps_the_envelopes_of_more_than_one_batch_in_flight(leases: Leases, queue: str) -> None:
    members = [f"m:{n}" for n in range(1203)]
    leases.offer(queue, [Offer(member, "1", member.encode()) for member in members], watermark=1)
    for start in range(0, len(members), 401):
        leases.claim(queue, [f"t{start + n}" for n in range(401)], full_ms=FULL)
    leases.flush(queue)
    again = [leases.claim(queue, [f"t{start + n}" for n in range(401)], full_ms=FULL) for start in range(0, 1203, 401)]
    taken = [one for claims in again for one in claims.taken]
    assert len(taken) == 1203
    assert all(one.envelope == one.member.encode() for one in taken)
