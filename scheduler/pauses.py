"""Keeps Valkey's pauses in step with the store's: after Valkey was lost, or where a command could not reach it."""

from __future__ import annotations

from typing import Final

from middleware.runtime import Runtime
from store import clock
from store.queues import controls

#: Seconds between two looks at the documents. What Valkey does not know of, the rows' claims obey all the same.
LOOK_EVERY: Final = 5.0


class Pauses:
    """Of one shift. Looking costs one small statement, and one call for each paused queue."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._open: set[str] = set()  # resumed by this shift: no need to say it again
        self._look_at = 0.0

    def tell(self) -> None:
        """Pause and resume queues in Valkey as the documents say. Raises StoreUnavailable and ValkeyUnavailable."""
        moment = clock.elapsed()
        if moment < self._look_at:
            return
        self._look_at = moment + LOOK_EVERY
        for word in controls(self._runtime.store):
            if word.domain is not None:
                continue  # the rows' claims see to it
            if word.paused:
                self._open.discard(word.queue)
                self._runtime.leases.pause(word.queue)
            elif word.queue not in self._open:
                self._runtime.leases.resume(word.queue)
                self._open.add(word.queue)
