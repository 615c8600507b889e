"""Numbers, names and places survive digit for digit, and every key of a queue lies in one slot."""

from __future__ import annotations

import re
from urllib.parse import unquote

import pytest
import redis
from hypothesis import given, settings
from hypothesis import strategies as st

from store.errors import UsageError
from store.valkey.entries import Ack, Delay, Offer, Release
from store.valkey.keys import PARTS, keys_of
from store.valkey.leases import Leases
from store.valkey.scores import job_score, message_score
from tests.leases.inside import Inside

LARGE = ["300000000", "1700000000000", "5001700000000000", "8999999999999999"]
ODD = ["default", "a b", "{a}", "}{", "a}b{c", "%7Ba%7D", "%257B", "ü:ß", "日本", "a:b", "\x00\n", "{}", " ", "%"]


@pytest.mark.parametrize("score", LARGE)
def test_scores_survive_every_move_digit_for_digit(leases: Leases, queue: str, inside: Inside, score: str) -> None:
    member = f"m:{score}"

    def stored() -> str:
        return str(inside.scores("ready")[member])

    leases.offer(queue, [Offer(member, score, b"letter")], watermark=10)
    assert stored() == score
    leases.claim(queue, [score], full_ms=1000)
    assert inside.values("tokens") == {member: f"{score:0>16}{score}".encode()}
    assert inside.values("held") == {score: member.encode()}
    leases.release(queue, [Release(member, score)])
    assert stored() == score
    leases.claim(queue, [score], full_ms=1000)
    leases.ack(queue, [Ack(member, score, again=True)])
    assert stored() == score
    leases.claim(queue, [score], full_ms=1000)
    inside.lapse(member)
    assert [one.member for one in leases.claim(queue, ["t"], full_ms=1000).taken] == [member]
    leases.release(queue, [Release(member, "t", 5)])
    inside.mature(member)
    leases.claim(queue, ["t"], full_ms=1000)
    leases.offer(queue, [Offer(member, score, b"letter")], watermark=10)
    leases.ack(queue, [Ack(member, "t")])
    assert stored() == score
    leases.claim(queue, ["t"], full_ms=1000)
    leases.delay(queue, [Delay(member, 300_000_000, score, b"letter")])
    assert inside.values("scores") == {member: score.encode()}


def test_moments_are_kept_to_the_millisecond_in_plain_digits(leases: Leases, queue: str, inside: Inside) -> None:
    leases.offer(queue, [Offer("j:1", "5")], watermark=10)
    before = inside.millis()
    leases.claim(queue, ["t"], full_ms=1, short_ms=300_000_000)
    leases.delay(queue, [Delay("m:1", 1_700_000_000_000, "5", b"letter")])
    after = inside.millis()
    for part, member, ms in (("leases", "j:1", 300_000_000), ("delayed", "m:1", 1_700_000_000_000)):
        spelled = inside.spelled(part, member)
        assert re.fullmatch(r"\d{13}", spelled), spelled
        assert before + ms <= int(spelled) <= after + ms
    assert leases.claim(queue, ["u"], full_ms=1).next_ms in range(299_000_000, 300_000_001)


@pytest.mark.parametrize("odd", ODD)
def test_all_keys_of_a_queue_lie_in_one_slot(cluster_url: str, odd: str) -> None:
    with redis.RedisCluster.from_url(cluster_url.replace("+cluster", "")) as cluster:
        slots = {cluster.execute_command("CLUSTER KEYSLOT", key) for key in keys_of(odd)}
    assert len(slots) == 1


@settings(deadline=None)
@given(st.lists(st.text(st.characters(codec="utf-8"), min_size=1), min_size=2, max_size=2, unique=True))
def test_keys_of_different_queues_differ_and_lead_back_to_their_queue(names: list[str]) -> None:
    one, other = (keys_of(name) for name in names)
    assert not set(one) & set(other)
    assert {queue_of(key) for key in one} == {names[0]}
    assert len(one) == len(PARTS)
    for key in one:
        text = key.decode()
        assert text.count("{") == text.count("}") == 1


def queue_of(key: bytes) -> str:
    return unquote(key.decode().removeprefix("dramaturg:{").rpartition("}:")[0])


def test_odd_names_are_told_apart_however_they_are_spelled() -> None:
    keys = [key for odd in ODD for key in keys_of(odd)]
    assert len(set(keys)) == len(keys)
    assert [queue_of(keys_of(odd)[0]) for odd in ODD] == ODD


def test_two_prefixes_share_nothing() -> None:
    assert not set(keys_of("q")) & set(keys_of("q", "other"))


@pytest.mark.parametrize(("queue", "prefix"), [("", "p"), ("q", "a{b"), ("q", "a}b"), ("\ud800", "p")])
def test_names_that_no_key_can_hold_are_refused(queue: str, prefix: str) -> None:
    with pytest.raises(UsageError):
        keys_of(queue, prefix)


@settings(deadline=None)
@given(st.integers(1, 10), st.integers(0, 10**13 - 1), st.integers(1, 10), st.integers(0, 10**13 - 1))
def test_jobs_go_by_priority_and_then_by_age(p: int, due: int, q: int, later: int) -> None:
    assert ((p, due) < (q, later)) == (float(job_score(p, due)) < float(job_score(q, later)))


@settings(deadline=None)
@given(st.integers(), st.integers())
def test_every_score_of_a_message_is_exact_and_in_bounds(priority: int, due: int) -> None:
    score = message_score(priority, due)
    assert score.isdigit()
    assert 0 <= int(score) < 9 * 10**15 < 2**53
    assert int(float(score)) == int(score)


def test_default_jobs_and_default_messages_share_a_lane() -> None:
    assert job_score(5, 1_700_000_000_000) == message_score(0, 1_700_000_000_000) == "501700000000000"
    assert int(message_score(-1, 0)) < int(job_score(5, 0)) < int(message_score(1, 0))


@pytest.mark.parametrize("priority", [0, 11, -1])
def test_a_job_of_no_priority_is_refused(priority: int) -> None:
    with pytest.raises(UsageError):
        job_score(priority, 0)
