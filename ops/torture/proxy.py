"""A proxy before a real server: it cuts connections, loses and delays replies, spells errors its own way, speaks TLS,
and moves on to another server."""

from __future__ import annotations

import select
import socket
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

#: Seconds between two looks whether the connection is to be cut or the proxy closed.
LOOK = 0.02


class Proxy:
    """Listens on the unix socket ``at``, else on a port of 127.0.0.1, there with ``tls`` if given.

    New connections go to ``upstream``, a port of 127.0.0.1 or a unix socket, which may be changed; old ones stay where
    they are.
    """

    def __init__(self, upstream: int | Path, *, at: Path | None = None, tls: ssl.SSLContext | None = None) -> None:
        self.upstream = upstream
        self.delay = 0.0  # seconds before each reply
        self.losing = False  # replies are swallowed, and their connections cut
        self.rewrite: Callable[[bytes], bytes] = lambda reply: reply
        self.accepted = 0
        self._tls = tls
        self._epoch = 0
        self._lose = threading.Event()
        self._closed = threading.Event()
        self._threads: set[threading.Thread] = set()
        if at is None:
            self._listener = socket.create_server(("127.0.0.1", 0))
        else:
            self._listener = socket.socket(socket.AF_UNIX)
            self._listener.bind(str(at))
        self._listener.listen()
        self._start(self._accept)

    @property
    def port(self) -> int:
        """Only of one that does not listen on a unix socket."""
        found: int = self._listener.getsockname()[1]
        return found

    def lose_next_reply(self) -> None:
        """What the server answers next is swallowed, and the connection of whoever waits for it is cut."""
        self._lose.set()

    def cut(self) -> None:
        """End every connection there is."""
        self._epoch += 1

    def close(self) -> None:
        """Ends every connection and thread."""
        self._closed.set()
        for thread in list(self._threads):
            thread.join(10.0)
            assert not thread.is_alive()
        self._listener.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _start(self, target: Callable[[], None]) -> None:
        thread = threading.Thread(target=target, daemon=True)
        self._threads.add(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._closed.is_set():
            if select.select([self._listener], [], [], LOOK)[0]:
                near, _ = self._listener.accept()
                self.accepted += 1
                self._start(lambda near=near: self._serve(near))  # type: ignore[misc]

    def _serve(self, near: socket.socket) -> None:
        epoch = self._epoch
        try:
            if self._tls is not None:
                near = self._tls.wrap_socket(near, server_side=True)
            with self._connected() as far:
                for one in (near, far):
                    if one.family == socket.AF_INET:
                        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                while not self._closed.is_set() and epoch == self._epoch and self._carry(near, far):
                    pass
        except OSError:
            pass  # one of the two went away: so does this connection
        finally:
            near.close()
            self._threads.discard(threading.current_thread())

    def _connected(self) -> socket.socket:
        if isinstance(self.upstream, int):
            return socket.create_connection(("127.0.0.1", self.upstream), 5)
        far = socket.socket(socket.AF_UNIX)
        try:
            far.connect(str(self.upstream))
        except OSError:
            far.close()
            raise
        return far

    def _carry(self, near: socket.socket, far: socket.socket) -> bool:
        """Carries what there is; False when the connection is over."""
        buffered = isinstance(near, ssl.SSLSocket) and near.pending() > 0
        readable = [near] if buffered else select.select([near, far], [], [], LOOK)[0]
        for one in readable:
            data = one.recv(65536)
            if not data:
                return False
            if one is near:
                far.sendall(data)
            elif self.losing or self._lose.is_set():
                self._lose.clear()
                return False
            else:
                if self.delay:
                    time.sleep(self.delay)
                near.sendall(self.rewrite(data))
        return True
