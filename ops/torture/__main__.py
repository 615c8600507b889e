"""``python -m ops.torture``: what ``make torture`` runs. Exit 1 when anything was lost or stuck."""

from __future__ import annotations

import json
import secrets
import sys
import tempfile
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from ops.torture.run import torture


@click.command()
@click.option("--store", type=click.Choice(["sqlite", "postgres", "surreal"]), default="sqlite", show_default=True)
@click.option("--minutes", type=float, default=10.0, show_default=True)
@click.option("--seed", type=int, default=None, help="Of faults and load; a random one, printed, when left out.")
@click.option("--pace", type=float, default=0.05, show_default=True, help="Seconds between two transactions.")
def main(store: str, minutes: float, seed: int | None, pace: float) -> None:
    """Load and a random fault every second or two; then everything must come to rest, and nothing may be lost."""
    seed = secrets.randbelow(1_000_000) if seed is None else seed
    click.echo(f"seed {seed}", err=True)
    with tempfile.TemporaryDirectory(prefix="dramaturg-torture-") as folder:
        home = Path(folder)
        home.chmod(0o711)
        report, stale = torture(store, home, seconds=minutes * 60, seed=seed, pace=pace)
    table = Table("what", "figure", title=f"{store}, {minutes:g} minutes, seed {seed}")
    said = {**report._asdict(), "stale_refused": stale}
    for name, value in said.items():
        if isinstance(value, dict):
            for fault, figure in sorted(value.items()):
                table.add_row(f"{name}: {fault}", str(figure))
        else:
            table.add_row(name, str(len(value) if isinstance(value, list) else value))
    Console(stderr=True).print(table)
    click.echo(json.dumps({"store": store, "minutes": minutes, "seed": seed, **said}))
    sys.exit(0 if report.sound else 1)


if __name__ == "__main__":
    main()
