from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from store.engines.cluster import ValkeyCluster
from store.engines.valkey import Valkey
from store.valkey.client import Client, connect
from store.valkey.leases import Leases
from tests.leases.inside import Inside, raw

#: Each way of running: which Valkey, and what the queue's name begins with.
WAYS = {"server": "plain", "cluster": "a: {queue} of 100% ü\t}{"}


@pytest.fixture(scope="session")
def cluster_url(engine_home: Path) -> Iterator[str]:
    with ValkeyCluster(engine_home / "cluster") as cluster:
        yield cluster.url.replace("redis://", "redis+cluster://", 1)


@pytest.fixture(params=list(WAYS))
def way(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def url(way: str, request: pytest.FixtureRequest) -> str:
    if way == "cluster":
        found: str = request.getfixturevalue("cluster_url")
        return found
    server: Valkey = request.getfixturevalue("valkey_server")
    return server.url


class Connections:
    """For each url our client and redis-py's: making them anew for every test would take most of the time."""

    def __init__(self, closing: ExitStack) -> None:
        self._closing = closing
        self._made: dict[str, tuple[Client, Any]] = {}

    def at(self, url: str) -> tuple[Client, Any]:
        if url not in self._made:
            client, bare = connect(url), raw(url)
            self._closing.callback(client.close)
            self._closing.callback(bare.close)
            self._made[url] = client, bare
        return self._made[url]


@pytest.fixture(scope="session")
def connections() -> Iterator[Connections]:
    with ExitStack() as closing:
        yield Connections(closing)


@pytest.fixture
def leases(url: str, connections: Connections) -> Leases:
    return Leases(connections.at(url)[0])


@pytest.fixture
def inside(url: str, queue: str, connections: Connections) -> Inside:
    return Inside(connections.at(url)[1], queue)


@pytest.fixture
def queue(way: str) -> str:
    """Nobody else's queue, so that tests may share a server."""
    return f"{WAYS[way]} {uuid.uuid4()}"


@pytest.fixture
def own_server(fresh_home: Path) -> Iterator[Valkey]:
    """A server that a test may stop, demote and empty."""
    with Valkey(fresh_home / "valkey") as server:
        yield server


@pytest.fixture
def own_client(own_server: Valkey) -> Iterator[Client]:
    client = connect(own_server.url)
    yield client
    client.close()
