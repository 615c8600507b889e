"""How runs are seen out at a graceful stop, whoever runs them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from middleware.interrupts import Stopped
from store import clock

if TYPE_CHECKING:
    from middleware.runtime import Runtime

#: Seconds that the last finishes may take to be written at a stop.
FLUSH_SECONDS = 30.0


def see_out(runtime: Runtime) -> None:
    """Tell the rows in hand that a stop was asked for, give their runs JOBS_SHUTDOWN_WAIT_FOR_LEASES_SEC, then
    interrupt them. Returns when nothing is in hand, or when there is no more time."""
    for holding in runtime.in_hand.rows():
        holding.tell(stopped=True)
    wait = runtime.worker.shutdown_wait_seconds
    deadline = clock.elapsed() + wait + FLUSH_SECONDS
    while not runtime.in_hand.wait_empty(wait) and clock.elapsed() < deadline:
        for holding in runtime.in_hand.rows():
            holding.interrupt(Stopped)  # once each, those included that began as we came by
        wait = 1.0
