"""A TCP proxy before a real server: it cuts connections, swallows replies and delays them."""

from __future__ import annotations

import select
import socket
import threading
import time


class Proxy:
    """Listens on a port of 127.0.0.1 and carries to another one."""

    def __init__(self, upstream: int) -> None:
        self.upstream = upstream
        self.delay = 0.0  # seconds before each reply
        self.losing = False  # replies are swallowed, and their connections cut
        self._epoch = 0
        self._closed = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._threads: set[threading.Thread] = set()
        self._start(self._accept)

    def cut(self) -> None:
        """End every connection there is."""
        self._epoch += 1

    def close(self) -> None:
        """Ends every connection and thread."""
        self._closed = True
        for thread in list(self._threads):
            thread.join(10)
        self._listener.close()

    def _start(self, target: object, *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)  # type: ignore[arg-type]
        self._threads.add(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._closed:
            if select.select([self._listener], [], [], 0.1)[0]:
                self._start(self._serve, self._listener.accept()[0])

    def _serve(self, near: socket.socket) -> None:
        epoch = self._epoch
        with near:
            try:
                with socket.create_connection(("127.0.0.1", self.upstream), 5) as far:
                    for one in (near, far):
                        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    while not self._closed and epoch == self._epoch and self._carry(near, far):
                        pass
            except OSError:
                pass  # one of the two went away: so does this connection
        self._threads.discard(threading.current_thread())

    def _carry(self, near: socket.socket, far: socket.socket) -> bool:
        for one in select.select([near, far], [], [], 0.1)[0]:
            data = one.recv(65536)
            if not data:
                return False
            if one is near:
                far.sendall(data)
            else:
                if self.losing:
                    return False
                time.sleep(self.delay)
                near.sendall(data)
        return True
