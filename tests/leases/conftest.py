from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from store.engines.cluster import ValkeyCluster
from store.engines.valkey import Valkey
from store.valkey.client import Client, connect
from store.valkey.leases import Leases
from tests.engines_fixtures import engine_home, fresh_home, valkey_server  # noqa: F401
from tests.leases.inside import Inside, raw

#: Each way of running: which Valkey, and what the queue's name begins with.
WAYS = {"server": "plain", "cluster": "a: {queue} of 100% ü\t}{"}


@pytest.fixture(scope="session")
def cluster_url(engine_home: Path) -> Iterator[str]:  # noqa: F811
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


@pytest.fixture(scope="session")
def connections() -> Iterator[dict[str, tuple[Client, object]]]:
    """For each url our client and a bare one: making them anew for every test would take most of the time."""
    made: dict[str, tuple[Client, object]] = {}
    with ExitStack() as every:
        every.callback(lambda: [client.close() for client, _ in made.values()])
        every.callback(lambda: [bare.close() for _, bare in made.values()])  # type: ignore[attr-defined]
        yield made


@pytest.fixture
def leases(url: str, connections: dict[str, tuple[Client, object]]) -> Leases:
    if url not in connections:
        connections[url] = (connect(url), raw(url))
    return Leases(connections[url][0])


@pytest.fixture
def queue(way: str) -> str:
    """Nobody else's queue, so that tests may share a server."""
    return f"{WAYS[way]} {uuid.uuid4()}"


@pytest.fixture
def inside(url: str, leases: Leases, queue: str, connections: dict[str, tuple[Client, object]]) -> Inside:
    return Inside(connections[url][1], queue)


@pytest.fixture
def own_server(fresh_home: Path) -> Iterator[Valkey]:  # noqa: F811
    """A server that a test may stop, demote and empty."""
    with Valkey(fresh_home / "valkey") as server:
        yield server


@pytest.fixture
def own_client(own_server: Valkey) -> Iterator[Client]:
    client = connect(own_server.url)
    yield client
    client.close()
