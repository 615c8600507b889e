"""What a system costs that has nothing to do: statements, CPU time, memory."""

from __future__ import annotations

import time
from typing import Final

from ops.bench.spent import memory, spent
from ops.bench.systems import System
from ops.bench.targets import IDLE_CPU, IDLE_STATEMENTS, MEMORY

WORKERS: Final = 2

#: Seconds until workers have settled (an idle session of Postgres tells what it did after 10), and of watching then.
SETTLING: Final = 12.0
WATCHED: Final = 15.0


def idle(system: System) -> dict[str, float]:
    """Of two workers without work: statements a second where they are counted, CPU in ms a second, MB of a worker."""
    with system.workers(WORKERS, system.counted):
        time.sleep(SETTLING)
        asked, used, began = system.asked(), spent(system.processes()), time.monotonic()
        time.sleep(WATCHED)
        took = time.monotonic() - began
        found = {
            IDLE_CPU: (spent(system.processes()) - used) * 1000 / took,
            MEMORY: memory(system.worker_processes()) / 2**20 / WORKERS,
        }
        if asked is not None:
            found[IDLE_STATEMENTS] = ((system.asked() or 0) - asked) / took
    return found
