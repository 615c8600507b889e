"""The cluster that tests use is a whole one."""

from __future__ import annotations

from pathlib import Path

from redis.cluster import RedisCluster

from store.engines.cluster import ValkeyCluster
from tests.engines.owners import lives


def test_a_cluster_of_three_masters_serves_every_slot_and_takes_a_node_back(fresh_home: Path) -> None:
    with ValkeyCluster(fresh_home) as cluster:
        pids = [node.pid for node in cluster.nodes]
        with RedisCluster.from_url(cluster.url) as client:
            for number in range(60):
                client.set(f"{{queue-{number}}}:ready", number)
            homes = {client.get_node_from_key(f"{{queue-{number}}}:ready").port for number in range(60)}
            assert homes == {node.port for node in cluster.nodes}

            node = cluster.nodes[1]
            port = node.port
            node.restart()
            assert node.port == port
            assert node.running
        pids += [node.pid for node in cluster.nodes]
    assert cluster.nodes == []
    assert not any(lives(pid) for pid in pids)
