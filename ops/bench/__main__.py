"""``python -m ops.bench``: a table of medians, with ratios to plain Dramatiq in the same, interleaved run."""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

import click
import orjson
from rich.console import Console
from rich.table import Table

from ops.bench.systems import System

MEASURES = (
    "wake one by one /s",
    "drain, 1 process /s",
    "drain, 2 processes /s",
    "wake to start p50 ms",
    "wake to start p99 ms",
    "SQL commit to start p50 ms",
    "SQL commit to start p99 ms",
)


def measure(system: System, jobs: int) -> dict[str, float]:
    """Every measure of one system, once."""
    found = {"wake one by one /s": system.send("one", jobs // 4)["rate"]}
    system.drain(0, 1)  # what that left
    found["drain, 1 process /s"] = system.drain(jobs, 1)
    found["drain, 2 processes /s"] = system.drain(jobs, 2)
    found["wake to start p50 ms"], found["wake to start p99 ms"] = system.latency(200, "pace")
    if system.name == "postgres":
        found["SQL commit to start p50 ms"], found["SQL commit to start p99 ms"] = system.latency(200, "sql")
    return found


def _cell(value: float | None, plain: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.1f}" if plain is None else f"{value:,.1f} ({value / plain:.2f})"


@click.command()
@click.option("--rounds", default=3, show_default=True, help="Interleaved rounds; the median counts.")
@click.option("--jobs", default=8_000, show_default=True, help="Jobs of one drain.")
@click.option("--store", "stores", multiple=True, default=("sqlite", "postgres", "surreal"), show_default=True)
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path), help="Write all figures here.")
def main(rounds: int, jobs: int, stores: tuple[str, ...], json_path: Path | None) -> None:
    """Measure Dramaturg on each store against plain Dramatiq on its RedisBroker."""
    console = Console()
    figures: dict[str, dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory(prefix="dramaturg-bench-") as folder:
        Path(folder).chmod(0o711)
        for round_ in range(rounds):
            for name in ("dramatiq", *stores):
                console.print(f"round {round_ + 1} of {rounds}: {name}", style="dim")
                system = System(name, Path(folder) / str(round_))
                try:
                    for what, value in measure(system, jobs).items():
                        figures.setdefault(name, {}).setdefault(what, []).append(value)
                finally:
                    system.close()
    medians = {name: {what: statistics.median(values) for what, values in of.items()} for name, of in figures.items()}
    table = Table(title=f"medians of {rounds} rounds, concurrency 8, {jobs} no-op jobs; (ratio to plain Dramatiq)")
    table.add_column("measure")
    for name in medians:
        table.add_column("Dramatiq, RedisBroker" if name == "dramatiq" else f"Dramaturg, {name}", justify="right")
    for what in MEASURES:
        table.add_row(what, *(_cell(of.get(what), medians["dramatiq"].get(what)) for of in medians.values()))
    console.print(table)
    if json_path is not None:
        json_path.write_bytes(orjson.dumps({"rounds": rounds, "jobs": jobs, "figures": figures}))


if __name__ == "__main__":
    main()
