"""redis-py, set up the one way in which we want it. A link is replaced whole when it fails, never repaired."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from redis import Redis, RedisCluster
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode
from redis.connection import Connection, ConnectionPool, SSLConnection, UnixDomainSocketConnection
from redis.retry import Retry

from store.valkey.address import Address

CONNECT_SECONDS = 5.0
#: The longest that anybody waits for a bell. Whatever may go wrong with a bell, somebody looks again after this time.
LONGEST_WAIT_SECONDS = 5.0
#: The longest that an answer may take; more than the longest wait, or every quiet wait would look like a dead server.
ANSWER_SECONDS = 2 * LONGEST_WAIT_SECONDS

Word = str | bytes | int


class Link:
    """Connects to a single server at the first command; to a cluster at once, to learn who has which slot."""

    def __init__(self, address: Address) -> None:
        options: dict[str, Any] = {
            "username": address.username,
            "password": address.password,
            "socket_timeout": ANSWER_SECONDS,
            "socket_connect_timeout": CONNECT_SECONDS,
            "protocol": 2,
            "client_name": "dramaturg",
            "driver_info": None,
            **dict(address.tls_options),
        }
        # A command whose reply was lost is never sent again by the client: that is for the caller to decide.
        never = Retry(NoBackoff(), 0)
        self._redis: Redis | RedisCluster
        if address.cluster:
            scheme, ((host, port), *others) = "rediss" if address.tls else "redis", address.nodes
            self._redis = RedisCluster(
                url=f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}",
                startup_nodes=[ClusterNode(*node) for node in others],  # type: ignore[no-untyped-call]
                retry=never,
                require_full_coverage=False,  # a slot that nobody serves is no concern of the queues in other slots
                **options,
            )
            return
        kind: type[Connection | UnixDomainSocketConnection] = UnixDomainSocketConnection
        if address.path:
            options["path"] = address.path
        else:
            kind = SSLConnection if address.tls else Connection
            options["host"], options["port"] = address.nodes[0]
        pool = ConnectionPool(connection_class=kind, db=address.db, retry=never, **options)
        self._redis = Redis(connection_pool=pool)

    def execute(self, *words: Word) -> object:
        """Sends one command over a connection of the pool and answers the reply. Raises redis-py's errors."""
        reply: object = self._redis.execute_command(*words)  # type: ignore[no-untyped-call]
        return reply

    def close(self, *, in_use: bool) -> None:
        """Closes what lies idle, and with ``in_use`` what others are talking through at this moment."""
        for pool in self._pools():
            pool.disconnect(inuse_connections=in_use)

    def _pools(self) -> Iterable[ConnectionPool]:
        if isinstance(self._redis, RedisCluster):
            links = [node.redis_connection for node in self._redis.get_nodes()]  # type: ignore[no-untyped-call]
            return [link.connection_pool for link in links if link is not None]
        return [self._redis.connection_pool]
