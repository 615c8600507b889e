"""The soak: many jobs and restarts, and what may not grow with them. ``make soak`` runs it."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import click

from ops.torture.measures import Sample, sample
from ops.torture.world import Setting, World
from store.filters import Filter
from store.sweeps import prune

SAMPLES = 24
#: The last third of the samples may be so much above the second; the first is for warming up.
FACTOR = 1.25
SLACK: Mapping[str, float] = {
    "memory": 8e6,
    "open_files": 6,
    "sockets": 4,
    "valkey_clients": 8,
    "valkey_keys": 8,
    "valkey_memory": 1e6,
    "store_sessions": 6,
    "table_bytes": 4e6,
    "index_bytes": 4e6,
}
#: Seconds in which the next sample must be reached, and everything be at rest in the end.
PATIENCE = 300.0
#: Each so manieth restart is a kill -9.
KILL_EVERY = 5


class Soaked(NamedTuple):
    """``grown`` and ``left`` must be empty and 0."""

    jobs: int
    restarts: int
    seconds: float
    pruned: int  # half of the jobs: the others leave no row
    left: int  # rows at the end
    grown: list[str]
    first: dict[str, float]  # the first sample, the one in the middle, the last one
    middle: dict[str, float]
    last: dict[str, float]

    @property
    def sound(self) -> bool:
        """Whether everything stayed flat and every job came to its end."""
        return not self.grown and not self.left and self.pruned == self.jobs // 2


def grown(samples: Sequence[Sample]) -> list[str]:
    """The figures whose highest value in the last third lies above that of the second third by more than is usual."""
    third = len(samples) // 3
    found = []
    for name, slack in SLACK.items():
        before = max(getattr(one, name) for one in samples[third : 2 * third])
        after = max(getattr(one, name) for one in samples[2 * third :])
        if after > before * FACTOR + slack:
            found.append(name)
    return found


def soak(store: str, home: Path, *, jobs: int, restarts: int) -> Soaked:
    """The first worker lives from the beginning to the end, the others are restarted by turns."""
    world = World(Setting(store), home, 0, 0)
    began = time.monotonic()
    samples: list[Sample] = []
    pruned = done = 0
    try:
        for _ in range(3):
            world.worker()
        world.feeder(jobs)
        for step in range(1, SAMPLES + 1):
            _await(world, jobs * step // SAMPLES)
            while done < restarts * step // SAMPLES:
                _restart(world, done)
                done += 1
            pruned += _prune(world)
            samples.append(sample(world))
        world.end_feeders(PATIENCE)
        deadline = time.monotonic() + PATIENCE
        while _rows(world, "queued", "processing") and time.monotonic() < deadline:
            time.sleep(0.2)
        pruned += _prune(world)
        facts = [one._asdict() for one in (samples[0], samples[len(samples) // 2], samples[-1])]
        left = _rows(world, "queued", "processing", "completed", "failed", "quarantined", "cancelled")
        return Soaked(jobs, done, round(time.monotonic() - began, 1), pruned, left, grown(samples), *facts)
    finally:
        world.close()


def _await(world: World, sent: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while _sent(world) < sent:
        if time.monotonic() > deadline:
            raise RuntimeError(f"no {sent} jobs were sent within {PATIENCE:.0f} s: see the logs in {world.home}")
        time.sleep(0.05)


def _sent(world: World) -> int:
    """What the feeder told last, however much others have told since: it may have ended long ago."""
    return next((int(fact["sent"]) for fact in reversed(world.collector.facts) if fact["kind"] == "fed"), 0)


def _restart(world: World, number: int) -> None:
    victim = world.workers.pop(1)
    world.worker()
    if number % KILL_EVERY == KILL_EVERY - 1:
        world.kill(victim)
    else:
        world.stop(victim, 30)


def _prune(world: World) -> int:
    return prune(world.store, Filter(states=("completed",), job_type="torture.kept")).affected


def _rows(world: World, *states: str) -> int:
    found = world.store.find(Filter(states=states), limit=1000)
    return len([job for job in found if job.job_type in ("torture.swift", "torture.kept")])


@click.command()
@click.option("--store", type=click.Choice(["sqlite", "postgres", "surreal"]), default="sqlite", show_default=True)
@click.option("--jobs", type=click.IntRange(1000), default=200_000, show_default=True)
@click.option("--restarts", type=click.IntRange(0), default=200, show_default=True)
@click.option("--report", "target", type=click.Path(dir_okay=False, path_type=Path), help="Write it as JSON to a file.")
def main(store: str, jobs: int, restarts: int, target: Path | None) -> None:
    """Memory, connections, open files, Valkey's keys, tables and indexes must stay flat. Exit 1 when one has grown."""
    with tempfile.TemporaryDirectory(prefix="dramaturg-soak-") as folder:
        home = Path(folder)
        home.chmod(0o711)
        soaked = soak(store, home, jobs=jobs, restarts=restarts)
    said = json.dumps({"store": store, **soaked._asdict()})
    if target is None:
        click.echo(said)
    else:
        target.write_text(said + "\n")
    sys.exit(0 if soaked.sound else 1)


if __name__ == "__main__":
    main()
