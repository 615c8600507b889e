"""What goes wrong between us and Valkey comes out as ValkeyUnavailable, once, and trying again is all that it takes."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import redis

from ops.torture.proxy import Proxy
from store.engines.valkey import Valkey
from store.errors import ValkeyUnavailable
from store.valkey import link
from store.valkey.client import Client, connect
from store.valkey.entries import Ack, Burial, Claims, Delay, Offer, Release, Renewal, Sizes
from store.valkey.leases import Leases
from tests.leases.inside import Inside, raw

FULL = 60_000
Q = "queue"


@pytest.fixture
def proxy(fresh_home: Path, own_server: Valkey) -> Iterator[Proxy]:
    with Proxy(own_server.socket, at=fresh_home / "proxy.sock") as proxy:
        yield proxy


@pytest.fixture
def through_proxy(fresh_home: Path, proxy: Proxy) -> Iterator[Leases]:
    client = connect(f"unix://{fresh_home / 'proxy.sock'}")
    leases = Leases(client)
    leases.claim("warm", ["t"], full_ms=FULL)  # a reply that is lost later shall not be NOSCRIPT
    leases.ack("warm", [Ack("j:1", "t")])
    yield leases
    client.close()


def offer(leases: Leases, *members: str) -> None:
    leases.offer(Q, [Offer(member, "5") for member in members], watermark=100)


def calls(server: Valkey, command: str) -> int:
    with redis.Redis.from_url(server.url) as bare:
        found = bare.info("commandstats").get(f"cmdstat_{command}", {"calls": 0})
        return int(found["calls"])


def test_a_claim_whose_reply_is_lost_is_not_repeated_behind_our_back(
    own_server: Valkey, proxy: Proxy, through_proxy: Leases
) -> None:
    offer(through_proxy, "j:1", "j:2", "j:3")
    through_proxy.claim(Q, ["t1"], full_ms=FULL)
    before = calls(own_server, "evalsha")
    proxy.lose_next_reply()
    with pytest.raises(ValkeyUnavailable, match="'claim'"):
        through_proxy.claim(Q, ["t2"], full_ms=FULL)
    assert calls(own_server, "evalsha") == before + 1
    assert through_proxy.sizes(Q) == Sizes(1, 0, 2, 0)


def test_a_claim_whose_reply_is_lost_gets_the_same_answer_when_it_is_repeated(
    proxy: Proxy, through_proxy: Leases
) -> None:
    offer(through_proxy, "j:1", "j:2", "j:3")
    proxy.lose_next_reply()
    with pytest.raises(ValkeyUnavailable):
        through_proxy.claim(Q, ["t1", "t2"], full_ms=FULL)
    taken = through_proxy.claim(Q, ["t1", "t2"], full_ms=FULL).taken
    assert [(one.member, one.token) for one in taken] == [("j:1", "t1"), ("j:2", "t2")]
    assert through_proxy.sizes(Q) == Sizes(1, 0, 2, 0)


def test_a_claim_whose_reply_is_lost_for_good_comes_back_after_its_lease(proxy: Proxy, through_proxy: Leases) -> None:
    offer(through_proxy, "j:1")
    proxy.lose_next_reply()
    with pytest.raises(ValkeyUnavailable):
        through_proxy.claim(Q, ["t1"], full_ms=FULL, short_ms=50)
    claims = Claims([], 1, 0)
    deadline = time.monotonic() + 10.0
    while not claims.taken and time.monotonic() < deadline:
        time.sleep((claims.next_ms or 0) / 1000)
        claims = through_proxy.claim(Q, ["t2"], full_ms=FULL)
    assert [(one.member, one.token, one.lost) for one in claims.taken] == [("j:1", "t2", 0)]


def test_an_ack_whose_reply_is_lost_is_answered_stale_and_does_no_harm(proxy: Proxy, through_proxy: Leases) -> None:
    offer(through_proxy, "j:1")
    through_proxy.claim(Q, ["t1"], full_ms=FULL)
    proxy.lose_next_reply()
    with pytest.raises(ValkeyUnavailable, match="'ack'"):
        through_proxy.ack(Q, [Ack("j:1", "t1", again=True)])
    assert through_proxy.ack(Q, [Ack("j:1", "t1", again=True)]) == [False]
    assert through_proxy.sizes(Q) == Sizes(1, 0, 0, 0)


@pytest.mark.parametrize("spelled", [b"-READONLY", b"-ERR proxied: READONLY"])
def test_a_demoted_server_is_left_for_whoever_answers_at_the_address_now(
    own_server: Valkey, fresh_home: Path, proxy: Proxy, through_proxy: Leases, spelled: bytes
) -> None:
    proxy.rewrite = lambda reply: reply.replace(b"-READONLY", spelled)
    offer(through_proxy, "j:1", "j:2")
    through_proxy.claim(Q, ["t1"], full_ms=FULL)
    with Valkey(fresh_home / "promoted") as promoted:
        demote(own_server)
        with pytest.raises(ValkeyUnavailable, match="READONLY") as caught:
            through_proxy.renew(Q, [Renewal("j:1", "t1", FULL)])
        assert "script" not in str(caught.value)  # Valkey's own words
        proxy.upstream = promoted.socket
        accepted = proxy.accepted
        assert through_proxy.renew(Q, [Renewal("j:1", "t1", FULL)]) == [False]
        assert proxy.accepted == accepted + 1
        offer(through_proxy, "j:2")
        assert [one.member for one in through_proxy.claim(Q, ["t2"], full_ms=FULL).taken] == ["j:2"]


def test_who_waits_at_a_server_that_is_demoted_is_told_at_once(own_server: Valkey, own_client: Client) -> None:
    leases = Leases(own_client)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(leases.block, Q, 5.0)
        until(lambda: blocked(own_server) == 1)
        demote(own_server)
        with pytest.raises(ValkeyUnavailable, match="UNBLOCKED"):
            waiting.result(timeout=4.0)


def test_a_client_that_is_closed_tells_who_waits_and_connects_again_when_used(
    own_server: Valkey, own_client: Client
) -> None:
    leases = Leases(own_client)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(leases.block, Q, 5.0)
        until(lambda: blocked(own_server) == 1)
        own_client.close()
        with pytest.raises(ValkeyUnavailable, match="'wait'"):
            waiting.result(timeout=4.0)
    own_client.ping()


def test_after_a_restart_everything_goes_on_and_nothing_is_held(own_server: Valkey, own_client: Client) -> None:
    leases = Leases(own_client)
    offer(leases, "j:1")
    leases.claim(Q, ["t1"], full_ms=FULL)
    own_server.stop()
    with pytest.raises(ValkeyUnavailable):
        leases.claim(Q, ["t2"], full_ms=FULL)
    own_server.start()
    assert leases.renew(Q, [Renewal("j:1", "t1", FULL)]) == [False]
    offer(leases, "j:1")
    assert [one.member for one in leases.claim(Q, ["t3"], full_ms=FULL).taken] == ["j:1"]
    assert leases.ack(Q, [Ack("j:1", "t1"), Ack("j:1", "t3")]) == [False, True]


def test_a_restart_between_two_calls_is_noticed_by_nobody(own_server: Valkey, own_client: Client) -> None:
    own_client.ping()
    own_server.restart()
    own_client.ping()


def test_after_a_flush_of_everything_stale_holders_change_nothing(own_server: Valkey, own_client: Client) -> None:
    leases = Leases(own_client)
    offer(leases, "j:1")
    leases.claim(Q, ["t1"], full_ms=FULL)
    with redis.Redis.from_url(own_server.url) as bare:
        bare.flushall()
    offer(leases, "j:1")
    assert leases.ack(Q, [Ack("j:1", "t1")]) == [False]
    assert leases.release(Q, [Release("j:1", "t1")]) == [False]
    assert [one.member for one in leases.claim(Q, ["t2"], full_ms=FULL).taken] == ["j:1"]
    assert leases.renew(Q, [Renewal("j:1", "t1", FULL), Renewal("j:1", "t2", FULL)]) == [False, True]


def test_every_script_is_loaded_again_when_the_server_has_forgotten_it(leases: Leases, url: str, queue: str) -> None:
    verbs: list[Callable[[], object]] = [
        lambda: leases.offer(queue, [Offer("m:1", "5", b"x")], watermark=9),
        lambda: leases.delay(queue, [Delay("m:2", 1, "5", b"x")]),
        lambda: leases.claim(queue, ["t1"], full_ms=FULL),
        lambda: leases.renew(queue, [Renewal("m:1", "t1", FULL)]),
        lambda: leases.ack(queue, [Ack("m:1", "t1")]),
        lambda: leases.release(queue, [Release("m:1", "t1")]),
        lambda: leases.bury(queue, [Burial("m:1", "t1")]),
        lambda: leases.flush(queue),
        lambda: leases.sizes(queue),
        lambda: leases.dead_letters(queue),
    ]
    bare = raw(url)
    for verb in verbs:
        bare.script_flush()
        verb()
        verb()
    bare.close()


def test_without_memory_offers_are_refused_whole_and_the_work_goes_on(own_server: Valkey, own_client: Client) -> None:
    leases = Leases(own_client)
    offer(leases, "j:1", "j:2")
    with redis.Redis.from_url(own_server.url) as bare:
        bare.config_set("maxmemory", 1)
        with pytest.raises(ValkeyUnavailable, match="OOM"):
            leases.offer(Q, [Offer("m:3", "5", b"letter")], watermark=100)
        claims = leases.claim(Q, ["t1", "t2"], full_ms=FULL)
        assert [one.member for one in claims.taken] == ["j:1", "j:2"]
        assert leases.ack(Q, [Ack("j:1", "t1"), Ack("j:2", "t2")]) == [True, True]
        assert bare.dbsize() == 0


def test_a_key_of_another_kind_is_named_by_its_code_alone(leases: Leases, queue: str, inside: Inside) -> None:
    inside.command("SET", "ready", "somebody else's")
    with pytest.raises(ValkeyUnavailable, match=r"did not do 'offer' \(WRONGTYPE\)") as caught:
        leases.offer(queue, [Offer("j:1", "5")], watermark=9)
    assert "wrong kind of value" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    "url",
    [
        "redis://alice:s3cret@127.0.0.1:1",
        "redis+cluster://alice:s3cret@127.0.0.1:1",
        "unix://alice:s3cret@/nowhere/at/all",
        "redis://alice:s3cret@no-such-host.invalid:1",
    ],
)
def test_where_nobody_answers_the_error_says_where_and_keeps_the_password(url: str) -> None:
    client = connect(url)
    with pytest.raises(ValkeyUnavailable) as caught:
        client.ping()
    text = str(caught.value)
    assert url.partition("@")[2] in text
    assert "'ping'" in text
    assert "s3cret" not in text + repr(client)
    assert "alice" not in text


def test_a_wrong_password_is_named_as_such_and_not_shown(fresh_home: Path) -> None:
    with Valkey(fresh_home / "locked", tcp=True) as server:
        client = connect(f"redis://:wr0ng@127.0.0.1:{server.port}")
        with pytest.raises(ValkeyUnavailable, match="user and password") as caught:
            client.ping()
        assert "wr0ng" not in str(caught.value)
        right = connect(server.tcp_url)
        right.ping()
        right.close()


def test_a_server_that_hangs_is_given_up_on_and_found_again(
    own_server: Valkey, own_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("store.valkey.link.ANSWER_SECONDS", 0.2)
    own_client.ping()
    os.kill(own_server.pid, signal.SIGSTOP)
    try:
        with pytest.raises(ValkeyUnavailable, match="TimeoutError"):
            own_client.ping()
    finally:
        os.kill(own_server.pid, signal.SIGCONT)
    own_client.ping()


def test_an_answer_may_take_longer_than_the_longest_wait_but_not_for_ever() -> None:
    assert link.LONGEST_WAIT_SECONDS < link.ANSWER_SECONDS <= 15
    assert link.CONNECT_SECONDS <= 5


def demote(server: Valkey) -> None:
    with redis.Redis.from_url(server.url) as bare:
        bare.execute_command("REPLICAOF", "127.0.0.1", "1")


def blocked(server: Valkey) -> int:
    with redis.Redis.from_url(server.url) as bare:
        return int(bare.info("clients")["blocked_clients"])


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10.0
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)
