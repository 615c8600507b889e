"""Connections to one database: signed in, shared out to threads, made anew where one was lost.

The SDK's client speaks to one socket, waits for an answer without end, and never connects again. So each of its clients
lives in a ``Link``, which bounds the waiting and dies with its socket; a lost link is replaced by the next who asks,
signed in and on its database like the first.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final

from surrealdb import BlockingWsSurrealConnection
from surrealdb.data.cbor import decode
from surrealdb.errors import SurrealError
from surrealdb.request_message.message import RequestMessage
from websockets import Subprotocol
from websockets.exceptions import WebSocketException
from websockets.protocol import State
from websockets.sync.client import connect

from store import clock
from store.errors import Refused, StoreUnavailable
from store.surreal.address import Address
from store.surreal.errors import is_conflict

#: Seconds to wait for the answer to one request, a connection, or somebody else's transaction that is in the way.
PATIENCE: Final = 10.0

#: What a socket or the client over it can raise: KeyError comes from an answer that was cut off.
LOST: Final = (OSError, WebSocketException, TimeoutError, EOFError, KeyError)


class _Client(BlockingWsSurrealConnection):
    """The SDK's client with an end to its waiting, on a socket that we opened."""

    def __init__(self, server: str, patience: float) -> None:
        super().__init__(server)
        self._patience = patience
        # Frames are not compressed: both ends are near, and it would cost more than the query.
        self.socket = connect(
            self.raw_url,
            max_size=None,
            subprotocols=[Subprotocol("cbor")],
            compression=None,
            open_timeout=patience,
            close_timeout=1.0,
        ).__enter__()  # closed by ``close``, not by a block

    def _send(self, message: RequestMessage, process: str, bypass: bool = False) -> dict[str, Any]:
        assert self.socket is not None
        self.socket.send(message.WS_CBOR_DESCRIPTOR)
        while True:
            data = self.socket.recv(self._patience)
            response: dict[str, Any] = decode(data if isinstance(data, bytes) else data.encode())
            if response.get("id") == message.id:
                break
        if not bypass:
            self.check_response_for_error(response, process)
        return response


class Link:
    """One signed-in connection, used by one thread at a time. Dead for good once anything went wrong with it."""

    def __init__(self, address: Address, patience: float) -> None:
        """Raises StoreUnavailable and Refused."""
        self._server = address.server
        try:
            self._client = _Client(address.server, patience)
        except LOST as error:
            raise self._lost(error) from None
        deadline = clock.elapsed() + patience
        try:
            while True:
                try:
                    self._client.signin(dict(address.credentials))
                    self._client.use(address.namespace, address.database)  # which makes it, where there is none
                    return
                except SurrealError as error:
                    # Of several who make a database at the same moment one does, and the others meet a conflict.
                    if not is_conflict(str(error)) or clock.elapsed() > deadline:
                        raise
                time.sleep(random.uniform(0.005, 0.05))
        except SurrealError as error:
            self.close()
            raise Refused(
                f"SurrealDB at {address.server} lets nobody in as {address.user} ({type(error).__name__}): "
                "check user, password and level in the database's URL"
            ) from None
        except LOST as error:
            self.close()
            raise self._lost(error) from None

    @property
    def alive(self) -> bool:
        """False once the other end has gone, as far as that was heard."""
        socket = self._client.socket
        return socket is not None and socket.protocol.state is State.OPEN

    def query(self, statements: str, values: Mapping[str, Any]) -> dict[str, Any]:
        """The raw response, every statement's result to be looked at. Raises StoreUnavailable, and is dead then."""
        try:
            return self._client.query_raw(statements, dict(values))
        except LOST as error:
            self.close()
            raise self._lost(error) from None
        except BaseException:
            self.close()  # an answer that is still on its way would be taken for the next one's
            raise

    def close(self) -> None:
        """Hang up; may be called again."""
        with suppress(*LOST):
            self._client.close()

    def _lost(self, error: BaseException) -> StoreUnavailable:
        return StoreUnavailable(
            f"SurrealDB at {self._server} did not answer ({type(error).__name__}): start it, or check the address in "
            "the database's URL"
        )


class Connections:
    """At most ``size`` links to one address. Safe to share between threads; a forked child makes its own."""

    def __init__(self, address: Address, *, size: int = 8, patience: float = PATIENCE) -> None:
        self.address = address
        self.patience = patience
        self._size = size
        self._begin()

    @contextmanager
    def lend(self) -> Iterator[Link]:
        """A link for the block. Raises StoreUnavailable and Refused."""
        if os.getpid() != self._process:
            self._begin()  # the parent's sockets are the parent's
        free, idle = self._free, self._idle
        if not free.acquire(timeout=self.patience):
            raise StoreUnavailable(
                f"all {self._size} connections to SurrealDB were in use for {self.patience:.0f} s: try again"
            )
        try:
            link = self._take(idle)
            generation = self._generation
            try:
                yield link
            finally:
                with self._lock:
                    kept = link.alive and generation == self._generation
                    if kept:
                        idle.append(link)
                if not kept:
                    link.close()
        finally:
            free.release()

    def close(self) -> None:
        """Close every link that nobody uses, and the others once they come back; the next ``lend`` makes a new one."""
        if os.getpid() != self._process:
            self._begin()
        with self._lock:
            self._generation += 1
            links, self._idle[:] = list(self._idle), []
        for link in links:
            link.close()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self.turn = threading.Lock()  # of those who try again after a conflict
        self._free = threading.BoundedSemaphore(self._size)
        self._idle: list[Link] = []
        self._generation = 0

    def _take(self, idle: list[Link]) -> Link:
        while True:
            with self._lock:
                link = idle.pop() if idle else None
            if link is None:
                return Link(self.address, self.patience)
            if link.alive:
                return link
            link.close()
