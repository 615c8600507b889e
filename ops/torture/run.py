"""One torture: load and faults for a while, then rest, then judgement."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

from ops.torture.auditor import Report, audit
from ops.torture.faults import faults_of
from ops.torture.ledger import facts, note
from ops.torture.world import World
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


def _busy(world: World) -> bool:
    return bool(world.store.find(Filter(states=("queued", "processing")), limit=1))


def torture(
    store: str, home: Path, *, seconds: float, seed: int, pace: float, rest: float = REST
) -> tuple[Report, int]:
    """The report, and how many stale finishes were refused."""
    os.environ["TORTURE_LEDGER"] = str(home / "ledger")
    world = World(store, home, seed, pace)
    try:
        world.start()
        choose = random.Random(seed)
        kinds = faults_of(world)
        order: list[str] = []
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            time.sleep(choose.uniform(1, 2))
            if not order:  # every kind once before any comes again
                order = choose.sample(sorted(kinds), len(kinds))
            name = order.pop()
            note("fault", name=name)
            kinds[name](world, choose)
            note("mended", name=name)
        world.end_senders()
        deadline = time.monotonic() + rest
        while _busy(world) and time.monotonic() < deadline:
            time.sleep(0.5)
        left = rows(world)
        states = {job.id: str(job.state) for job in left}
        stuck = [id_ for id_, state in states.items() if state in ("queued", "processing")]
        return audit(facts(world.ledger), states, stuck), world.logged("job_stale")
    finally:
        world.close()
