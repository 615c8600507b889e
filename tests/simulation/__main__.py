"""``python -m tests.simulation``: any number of schedules, for ``make torture SEEDS=...``."""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import click

from store.engines.postgres import Postgres
from store.engines.surreal import Surreal
from store.engines.valkey import Valkey
from tests.contract.adapters import ADAPTERS
from tests.simulation.conftest import fast_folder, player
from tests.simulation.test_schedules import LENGTH, judge


@click.command()
@click.option("--store", type=click.Choice(["sqlite", "postgres", "surreal"]), default="sqlite", show_default=True)
@click.option("--seeds", default="0-1000", show_default=True, help="From and to, both included; or one.")
@click.option("--length", default=LENGTH, show_default=True, help="Choices in one schedule.")
def main(store: str, seeds: str, length: int) -> None:
    """Play schedules of random seeds until one breaks something that must hold, or all are played."""
    first, _, last = seeds.partition("-")
    wanted = range(int(first), int(last or first) + 1)
    with ExitStack() as closing:
        folder = Path(closing.enter_context(tempfile.TemporaryDirectory(prefix="dramaturg-simulation-")))
        folder.chmod(0o711)
        valkey = closing.enter_context(Valkey(folder / "valkey"))
        if store == "sqlite":
            url = f"sqlite:///{fast_folder(closing, folder)}/jobs.db"
        else:
            engine = {"postgres": Postgres, "surreal": Surreal}[store](folder).start()
            closing.callback(engine.stop)
            url = engine.url
        adapter = ADAPTERS[store](url)
        closing.callback(adapter.close)
        play = player(adapter, valkey.url, closing)
        began, runs, stale = time.monotonic(), 0, 0
        for seed in wanted:
            auditor = judge(play, seed, length).auditor
            runs, stale = runs + auditor.runs, stale + auditor.stale
        took = time.monotonic() - began
    click.echo(
        f"{store}: {len(wanted)} schedules from seed {wanted[0]} held, in {took:.0f} s: "
        f"{runs} runs, {stale} stale finishes refused"
    )


if __name__ == "__main__":
    main()
