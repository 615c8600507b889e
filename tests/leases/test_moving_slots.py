"""A queue's slot moves to another node of the cluster while it is worked on, and back."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from store.engines.cluster import ValkeyCluster
from store.errors import ValkeyUnavailable
from store.valkey.client import connect
from store.valkey.entries import Ack, Offer, Sizes
from store.valkey.leases import Leases
from tests.leases.conftest import WAYS

Answer = TypeVar("Answer")

FULL = 60_000
MOVES = 4


@pytest.fixture
def cluster(fresh_home: Path) -> Iterator[ValkeyCluster]:
    with ValkeyCluster(fresh_home / "cluster") as cluster:
        yield cluster


def home_of(cluster: ValkeyCluster) -> tuple[int, set[int]]:
    """The one node that holds keys, and their slots."""
    [found] = [(number, slots) for number in range(len(cluster.nodes)) if (slots := cluster.slots(number))]
    return found


@contextmanager
def consuming(leases: Leases, queue: str, done: list[str]) -> Iterator[None]:
    """Claim and ack until the end of the block; a slot that is in two places at the moment is waited for."""
    over = threading.Event()

    def consume() -> None:
        while not over.is_set():
            tokens = [str(uuid.uuid4()) for _ in range(3)]
            taken = patiently(lambda tokens=tokens: leases.claim(queue, tokens, full_ms=FULL)).taken
            acks = [Ack(one.member, one.token) for one in taken]
            if acks:
                patiently(lambda acks=acks: leases.ack(queue, acks))
                done.extend(one.member for one in acks)

    thread = threading.Thread(target=consume)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(30)
        assert not thread.is_alive()


def patiently(work: Callable[[], Answer]) -> Answer:
    """Its answer; every call may be repeated."""
    while True:
        try:
            return work()
        except ValkeyUnavailable:
            threading.Event().wait(0.02)


def test_nothing_is_lost_and_nothing_claimed_twice_while_a_queues_slot_moves(cluster: ValkeyCluster) -> None:
    client = connect(cluster.url.replace("redis://", "redis+cluster://", 1))
    leases, queue = Leases(client), f"{WAYS['cluster']} {uuid.uuid4()}"
    members = [f"m:{number}" for number in range(400)]
    leases.offer(queue, [Offer(member, "5", b"letter") for member in members[:100]], watermark=1000)
    done: list[str] = []
    with consuming(leases, queue, done):
        for number in range(MOVES):
            source, slots = home_of(cluster)
            later = [Offer(member, "5", b"letter") for member in members[100 + 75 * number : 175 + 75 * number]]
            patiently(lambda later=later: leases.offer(queue, later, watermark=1000))
            for slot in slots:
                cluster.move(slot, source, (source + 1) % len(cluster.nodes), pause=0.01)
            assert home_of(cluster)[0] != source
        while patiently(lambda: leases.sizes(queue)) != Sizes(0, 0, 0, 0):
            pass

    assert sorted(done) == sorted(members)
    client.close()
