"""Asks for the scan when a worker boots, without keeping the boot waiting.

All workers that boot at about the same time ask for the same job, so it runs once for them all, or once more.
"""

from __future__ import annotations

import random
import threading
from typing import Any

import dramatiq
from dramatiq.middleware import Middleware

from middleware import logs
from middleware.broker import Broker
from middleware.job import JobActor
from store.errors import DramaturgError

#: Seconds between two tries while the store is away: from the first to the last, doubling.
_FIRST_PAUSE, _LAST_PAUSE = 0.5, 30.0

#: Seconds that the thread may take to end at a stop: it waits for nothing but one statement.
_FAREWELL = 5.0


class ScanAtBoot(Middleware):
    """Wakes ``scan`` once in each worker process, as soon as the store answers."""

    def __init__(self, scan: JobActor[Any, Any]) -> None:
        self._scan = scan
        self._thread: threading.Thread | None = None

    def after_worker_boot(self, broker: Broker, worker: dramatiq.Worker) -> None:  # type: ignore[override]
        """Ask from a thread of its own."""
        self._thread = threading.Thread(target=self._ask, args=(broker,), name="proposal-scan", daemon=True)
        self._thread.start()

    def after_worker_shutdown(self, broker: Broker, worker: dramatiq.Worker) -> None:  # type: ignore[override]
        """The worker has told everybody to stop."""
        if self._thread is not None:
            self._thread.join(_FAREWELL)

    def _ask(self, broker: Broker) -> None:
        pause = _FIRST_PAUSE
        while not broker.runtime.stopping.is_set():
            try:
                self._scan.send()
                return
            except DramaturgError as error:
                logs.trouble("proposal_scan_waits", error)
            broker.runtime.stopping.wait(pause * (1 + random.random()))
            pause = min(pause * 2, _LAST_PAUSE)
