"""One torture: load and faults for a while, then rest, then judgement."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from pathlib import Path

from ops.torture.auditor import Report, audit
from ops.torture.faults import faults_of
from ops.torture.ledger import note
from ops.torture.world import Setting, World
from store.filters import Filter
from store.job import Job

#: Seconds within which everything must come to rest once the faults are over.
REST = 120.0


def rows(world: World) -> list[Job]:
    """Every row, by pages."""
    found: list[Job] = []
    while page := world.store.find(Filter(after_id=found[-1].id if found else None), order="id", limit=1000):
        found += page
    return found


def _unrest(world: World) -> list[Job]:
    """What is queued or runs, but for the row in which the schedule waits for its next minute."""
    found = world.store.find(Filter(states=("queued", "processing")), limit=100)
    return [job for job in found if job.job_type != "torture.recurring"]


def torture(
    setting: Setting,
    home: Path,
    *,
    seconds: float,
    seed: int,
    pace: float,
    rest: float = REST,
    only: Sequence[str] = (),
) -> Report:
    """Every kind of fault once before any comes again; ``only`` names those that may come, in this order."""
    world = World(setting, home, seed, pace)
    try:
        world.start()
        choose = random.Random(seed)
        kinds = faults_of(world)
        order: list[str] = list(reversed(only))
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            time.sleep(choose.uniform(1, 2))
            if not order:
                order = choose.sample(sorted(only or kinds), len(only or kinds))
            name = order.pop()
            note("fault", name=name)
            kinds[name](world, choose)
            note("mended", name=name)
        world.end_senders()
        deadline = time.monotonic() + rest
        while _unrest(world) and time.monotonic() < deadline:
            time.sleep(0.5)
        stuck = [job.id for job in _unrest(world)]
        states = {job.id: str(job.state) for job in rows(world)}
        return audit(world.collector.settle(), states, stuck, stale=world.logged("job_stale"))
    finally:
        world.close()
