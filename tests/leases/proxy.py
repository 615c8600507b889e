"""A proxy before a real server: it can lose a reply, spell an error its own way, speak TLS, and move on to another."""

from __future__ import annotations

import select
import socket
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self


class Proxy:
    """Listens on a unix socket in ``folder``, or with ``tls`` on a port of 127.0.0.1.

    New connections go to the socket ``upstream``, which may be changed; old ones stay where they are.
    """

    def __init__(self, folder: Path, upstream: Path, tls: ssl.SSLContext | None = None) -> None:
        self.upstream = upstream
        self.rewrite: Callable[[bytes], bytes] = lambda reply: reply
        self.accepted = 0
        self._lose = threading.Event()
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._tls = tls
        if tls is None:
            self.path = folder / "proxy.sock"
            self._listener = socket.socket(socket.AF_UNIX)
            self._listener.bind(str(self.path))
        else:
            self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.listen()

    @property
    def port(self) -> int:
        """Only with TLS."""
        found: int = self._listener.getsockname()[1]
        return found

    def lose_next_reply(self) -> None:
        """What the server answers next is swallowed, and the connection of whoever waits for it is cut."""
        self._lose.set()

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(10.0)
            assert not thread.is_alive()
        self._listener.close()

    def _start(self, target: Callable[[], None]) -> None:
        thread = threading.Thread(target=target, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._stop.is_set():
            if select.select([self._listener], [], [], 0.02)[0]:
                near, _ = self._listener.accept()
                self.accepted += 1
                self._start(lambda near=near: self._serve(near))  # type: ignore[misc]

    def _serve(self, near: socket.socket) -> None:
        far = socket.socket(socket.AF_UNIX)
        try:
            if self._tls is not None:
                near = self._tls.wrap_socket(near, server_side=True)
            far.connect(str(self.upstream))
            while not self._stop.is_set() and self._carry(near, far):
                pass
        except OSError:
            pass  # one of the two went away: so does this connection
        finally:
            near.close()
            far.close()

    def _carry(self, near: socket.socket, far: socket.socket) -> bool:
        """Carries what there is; False when the connection is over."""
        buffered = isinstance(near, ssl.SSLSocket) and near.pending() > 0
        readable = [near] if buffered else select.select([near, far], [], [], 0.02)[0]
        for one in readable:
            data = one.recv(65536)
            if not data:
                return False
            if one is near:
                far.sendall(data)
            elif self._lose.is_set():
                self._lose.clear()
                return False
            else:
                near.sendall(self.rewrite(data))
        return True
