"""The change signal: a cheap look at the bells that wakes ring. The embedded engine has no live queries."""

from __future__ import annotations

import threading
from typing import Any, Final

from store import clock
from store.surreal.connections import Connections
from store.surreal.requests import Step, read

#: Seconds between two looks; one takes about a millisecond of the server.
PERIOD: Final = 0.5

LOOK: Final = Step("(SELECT VALUE rung FROM dramaturg_bell)", {})


class Changes:
    """Wakes of others and of this process, once they are committed."""

    def __init__(self, connections: Connections) -> None:
        """Raises StoreUnavailable."""
        self._connections = connections
        self._closed = threading.Event()
        self._seen = self._look()

    def wait(self, timeout: float) -> bool:
        """Block until something was woken since the last call or ``timeout`` seconds went by; True: look now. False may
        have missed what came in the last PERIOD: the next call tells it.

        Raises StoreUnavailable.
        """
        deadline, looked = clock.elapsed() + timeout, False
        while not self._closed.is_set():
            left = deadline - clock.elapsed()
            self._closed.wait(max(0.0, min(left, PERIOD)))
            if left <= PERIOD and looked:
                return False  # whoever waits looks at the rows now; the next call tells what came since
            now, looked = self._look(), True
            if now != self._seen:
                self._seen = now
                return True
            if left <= 0:
                return False
        self._connections.close()  # a look that was under way may have opened it again
        return False

    def close(self) -> None:
        """Let go of the connection; a wait that is going on ends."""
        self._closed.set()
        self._connections.close()

    def _look(self) -> Any:
        return read(self._connections, LOOK)
