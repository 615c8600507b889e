"""``python -m ops.bench``: medians of interleaved rounds, ratios, and which targets are reached."""

from __future__ import annotations

import importlib.util
import statistics
import tempfile
from pathlib import Path

import click
import orjson
from rich.console import Console
from rich.table import Table

from ops.bench.idle import idle
from ops.bench.plot import bars, draw
from ops.bench.systems import PEERS, STORES, Dramaturg, System, build
from ops.bench.targets import (
    BULK,
    CPU,
    CROWDED,
    DRAIN_1,
    DRAIN_2,
    IDLE_CPU,
    IDLE_STATEMENTS,
    MEMORY,
    ONE,
    P50,
    P99,
    Medians,
    verdicts,
)
from store.errors import EngineFailed

SQL50, SQL99 = "SQL commit to start p50 ms", "SQL commit to start p99 ms"
MEASURES = (ONE, BULK, DRAIN_1, DRAIN_2, CPU, CROWDED, P50, P99, SQL50, SQL99, IDLE_STATEMENTS, IDLE_CPU, MEMORY)

#: A statement of SurrealDB takes some ten times as long: fewer jobs and rows show the same.
_SLOW = {"surreal": 8, "procrastinate": 4}


def measure(system: System, jobs: int, crowd: int) -> dict[str, float]:
    """Every measure of one system, once."""
    jobs //= _SLOW.get(system.name, 1)
    found = {ONE: float(system.send("one", jobs // 8)["rate"])}
    system.drain(jobs // 8, 1)  # what that left, and everything warm
    found[BULK] = system.fill(jobs)
    found[DRAIN_1] = system.drain(jobs, 1)
    system.fill(jobs)
    found[DRAIN_2] = system.drain(jobs, 2)
    found[CPU] = system.cpu(jobs) * 1e6
    found[P50], found[P99] = system.latency(200, "pace")
    if system.name == "postgres":
        found[SQL50], found[SQL99] = system.latency(200, "sql")
    if crowd and isinstance(system, Dramaturg):
        system.crowd(crowd // 10 if system.name == "surreal" else crowd)
        system.fill(jobs)
        found[CROWDED] = system.drain(jobs, 1)
    if system.name == "dramatiq":
        del found[BULK]  # it has none
    return found


def _cell(value: float | None, plain: float | None) -> str:
    if value is None:
        return "-"
    shown = f"{value:,.0f}" if value >= 100 else f"{value:,.1f}"
    return shown if not plain else f"{shown} ({value / plain:.2f})"


def _table(medians: Medians, title: str) -> Table:
    table = Table(title=title)
    table.add_column("measure")
    for name in medians:
        table.add_column(f"Dramaturg, {name}" if name in STORES else name, justify="right")
    plain = medians.get("dramatiq", {})
    for what in MEASURES:
        if any(what in of for of in medians.values()):
            table.add_row(what, *(_cell(of.get(what), plain.get(what)) for of in medians.values()))
    return table


def _judged(medians: Medians) -> Table:
    table = Table(title="targets")
    for column in ("measure", "against", "store", "wanted", "measured", ""):
        table.add_column(column)
    for one in verdicts(medians):
        sign = ">=" if one.target.least else "<="
        word = "reached" if one.reached else "missed"
        table.add_row(
            one.target.measure, one.target.against or "-", one.store, f"{sign} {one.wanted}", f"{one.ratio:.2f}", word
        )
    return table


def _taking_part(wanted: tuple[str, ...], console: Console) -> list[str]:
    names = []
    for name in wanted:
        if name in PEERS and importlib.util.find_spec(PEERS[name]) is None:
            console.print(f"{name} is not installed, so it takes no part: pip install 'dramaturg[bench]'")
        else:
            names.append(name)
    return names


@click.command()
@click.option("--rounds", default=3, show_default=True, help="Interleaved rounds; the median counts.")
@click.option("--jobs", default=8_000, show_default=True, help="Jobs of one drain.")
@click.option(
    "--crowd", default=1_000_000, show_default=True, help="Rows that are not due, in the last drain; 0: none."
)
@click.option(
    "--system",
    "systems",
    multiple=True,
    type=click.Choice(["dramatiq", *STORES, *PEERS]),
    help="Again for each; unset: all.",
)
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path), help="Write all figures here.")
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path), help="Draw the medians here, as SVG.")
def main(
    rounds: int, jobs: int, crowd: int, systems: tuple[str, ...], json_path: Path | None, plot: Path | None
) -> None:
    """Measure Dramaturg on each store, plain Dramatiq and peers, in one run on this machine."""
    console = Console()
    names = _taking_part(systems or ("dramatiq", *STORES, *PEERS), console)
    figures: dict[str, dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory(prefix="dramaturg-bench-") as folder:
        Path(folder).chmod(0o711)
        for round_ in range(rounds):
            for name in names:
                console.print(f"round {round_ + 1} of {rounds}: {name}", style="dim")
                home = Path(folder) / str(round_)
                home.mkdir(exist_ok=True, mode=0o711)
                system = build(name, home)
                try:
                    found = measure(system, jobs, crowd)
                    if not round_:
                        found |= idle(system)  # once: it is a matter of counts, and takes its time
                    for what, value in found.items():
                        figures.setdefault(name, {}).setdefault(what, []).append(value)
                except EngineFailed as error:
                    console.print(f"{name}: {error}", style="red")  # the others' figures count all the same
                finally:
                    system.close()
    medians = {name: {what: statistics.median(values) for what, values in of.items()} for name, of in figures.items()}
    spreads = {
        name: {what: (max(values) - min(values)) / medians[name][what] for what, values in of.items()}
        for name, of in figures.items()
    }
    console.print(
        _table(medians, f"medians of {rounds} rounds, concurrency 8, {jobs} no-op jobs; (ratio to plain Dramatiq)")
    )
    console.print(bars(medians))
    console.print(_judged(medians))
    widest = max((spread for of in spreads.values() for spread in of.values()), default=0.0)
    console.print(f"widest spread of one measure between rounds: {widest:.0%}", style="dim")
    if json_path is not None:
        told = {"rounds": rounds, "jobs": jobs, "crowd": crowd, "figures": figures, "medians": medians}
        json_path.write_bytes(orjson.dumps(told))
    if plot is not None:
        draw(medians, plot)


if __name__ == "__main__":
    main()
