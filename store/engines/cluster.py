"""A Valkey cluster of a few masters on this machine: how tests and benchmarks try what a real cluster does."""

from __future__ import annotations

import secrets
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import redis

from store.clock import elapsed
from store.engines.sockets import free_port, open_home
from store.engines.valkey import Valkey
from store.errors import EngineFailed

SLOTS = 16_384
JOIN_TIME = 30.0  # seconds; about two are usual
JOIN_POLL = 0.05  # seconds
ANSWER_TIME = 5.0  # seconds


class ValkeyCluster:
    """Masters without replicas, one process each, in ``home/node-0`` and so on; always new and empty at ``start``.

    One password serves all. ``nodes`` can be stopped, killed and started one by one.
    """

    def __init__(self, home: Path, *, masters: int = 3) -> None:
        self.home = open_home(home)
        self.nodes: list[Valkey] = []
        self._masters = masters
        self._password = secrets.token_urlsafe(18)

    @property
    def url(self) -> str:
        """The first node's TCP url, for ``redis.cluster.RedisCluster.from_url``."""
        if not self.nodes:
            raise EngineFailed(f"the cluster of {self.home} was not started")
        return self.nodes[0].tcp_url

    def start(self) -> Self:
        """Returns when every node says that the cluster is whole. EngineFailed if it can't."""
        with ExitStack() as undo:
            undo.callback(self.stop)
            for number in range(self._masters):
                node_home = open_home(self.home / f"node-{number}")
                (node_home / "nodes.conf").unlink(missing_ok=True)
                bus = str(free_port())
                settings = {
                    "cluster-enabled": "yes",
                    "cluster-config-file": "nodes.conf",
                    "cluster-node-timeout": "5000",
                    "cluster-port": bus,
                }
                node = Valkey(node_home, tcp=True, password=self._password, settings=settings)
                self.nodes.append(node.start())
            self._join()
            undo.pop_all()
        return self

    def stop(self) -> None:
        """Ends every node."""
        with ExitStack() as every:
            for node in self.nodes:
                every.callback(node.stop)
        self.nodes = []

    def slots(self, number: int) -> set[int]:
        """Slots of which node ``number`` holds keys."""
        with redis.Redis.from_url(self.nodes[number].url, socket_timeout=ANSWER_TIME) as node:
            return {int(_say(node, "CLUSTER", "KEYSLOT", key)) for key in node.scan_iter(count=1000)}

    def move(self, slot: int, source: int, target: int, *, pause: float = 0.0) -> None:
        """Move a slot between two nodes as a resharding does, key by key. ``pause``: seconds before each lot of keys,
        in which commands meet a slot of which a part is here and a part is there."""
        with ExitStack() as open_connections:
            nodes = [
                open_connections.enter_context(redis.Redis.from_url(node.url, socket_timeout=ANSWER_TIME))
                for node in self.nodes
            ]
            old, new = (_say(nodes[number], "CLUSTER", "MYID") for number in (source, target))
            _say(nodes[target], "CLUSTER", "SETSLOT", slot, "IMPORTING", old)
            _say(nodes[source], "CLUSTER", "SETSLOT", slot, "MIGRATING", new)
            way = ("127.0.0.1", self.nodes[target].port, "", 0, int(ANSWER_TIME * 1000), "AUTH", self._password, "KEYS")
            while keys := _say(nodes[source], "CLUSTER", "GETKEYSINSLOT", slot, 100):
                time.sleep(pause)
                for key in keys:
                    _say(nodes[source], "MIGRATE", *way, key)
            for node in (nodes[target], nodes[source], *nodes):
                _say(node, "CLUSTER", "SETSLOT", slot, "NODE", new)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _join(self) -> None:
        edges = [SLOTS * number // self._masters for number in range(self._masters + 1)]
        try:
            with ExitStack() as open_connections:
                clients = [open_connections.enter_context(redis.Redis.from_url(node.url)) for node in self.nodes]
                for number, client in enumerate(clients):
                    client.execute_command("CLUSTER", "ADDSLOTSRANGE", edges[number], edges[number + 1] - 1)
                    client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
                for node in self.nodes[1:]:
                    bus = node.settings["cluster-port"]
                    clients[0].execute_command("CLUSTER", "MEET", "127.0.0.1", node.port, bus)
                deadline = elapsed() + JOIN_TIME
                while not all(self._is_whole(client) for client in clients):
                    if elapsed() > deadline:
                        raise EngineFailed(f"the cluster did not join within {JOIN_TIME:.0f} s: see {self.home}/node-*")
                    time.sleep(JOIN_POLL)
        except redis.RedisError as error:
            raise EngineFailed(
                f"the cluster could not join ({type(error).__name__}): see the logs in {self.home}/node-*"
            ) from error

    def _is_whole(self, client: redis.Redis) -> bool:
        text: bytes = client.execute_command("CLUSTER", "INFO")  # type: ignore[no-untyped-call]  # redis-py's gap
        facts = dict(line.split(":", 1) for line in text.decode().split())
        return facts["cluster_state"] == "ok" and facts["cluster_known_nodes"] == str(self._masters)


def _say(node: redis.Redis, *words: Any) -> Any:
    return node.execute_command(*words)  # type: ignore[no-untyped-call]
