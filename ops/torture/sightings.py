"""What the ledger says about who is doing what, for faults that want to hit somebody in the middle of it."""

from __future__ import annotations

import time

from ops.torture.world import Process, World

#: Seconds to wait for such a moment.
PATIENCE = 15.0


def in_hand(world: World, kind: str) -> Process | None:
    """A worker in which a run of this kind has just begun; None where there was none for a while."""
    seen = len(world.collector.facts)
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        facts = world.collector.facts[seen:]
        seen += len(facts)
        for fact in reversed(facts):
            if fact["kind"] == "begin" and fact["type"] == kind:
                worker = world.worker_of(fact["pid"])
                if worker is not None:
                    return worker
        time.sleep(0.005)
    return None


def with_shift(world: World) -> list[Process]:
    """The workers that have begun a shift, the one that began last at the end."""
    found: list[Process] = []
    for pid in dict.fromkeys(fact["pid"] for fact in reversed(world.collector.facts) if fact["kind"] == "shift"):
        worker = world.worker_of(pid)
        if worker is not None and worker not in found:
            found.insert(0, worker)
    return found[-2:]
