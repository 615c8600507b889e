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
from ops.torture.world import Setting


@click.command()
@click.option("--store", type=click.Choice(["sqlite", "postgres", "surreal"]), default="sqlite", show_default=True)
@click.option("--cluster", is_flag=True, help="Three Valkey nodes, whose slots move, instead of one server.")
@click.option("--pooler", is_flag=True, help="pgbouncer in transaction mode before Postgres.")
@click.option("--minutes", type=float, default=10.0, show_default=True)
@click.option("--seed", type=int, default=None, help="Of faults and load; a random one, printed, when left out.")
@click.option("--pace", type=float, default=0.05, show_default=True, help="Seconds between two transactions.")
@click.option("--only", multiple=True, metavar="FAULT", help="Just this kind of fault; may be given several times.")
@click.option("--report", "target", type=click.Path(dir_okay=False, path_type=Path), help="Write it as JSON to a file.")
def main(
    store: str,
    cluster: bool,
    pooler: bool,
    minutes: float,
    seed: int | None,
    pace: float,
    only: tuple[str, ...],
    target: Path | None,
) -> None:
    """Load and a random fault every second or two; then everything must come to rest, and nothing may be lost."""
    if pooler and store != "postgres":
        raise click.UsageError("--pooler stands before Postgres: say --store postgres")
    seed = secrets.randbelow(1_000_000) if seed is None else seed
    click.echo(f"seed {seed}", err=True)
    setting = Setting(store, cluster=cluster, pooler=pooler)
    with tempfile.TemporaryDirectory(prefix="dramaturg-torture-") as folder:
        home = Path(folder)
        home.chmod(0o711)
        report = torture(setting, home, seconds=minutes * 60, seed=seed, pace=pace, only=only)
    table = Table("what", "figure", title=f"{store}, {minutes:g} minutes, seed {seed}")
    for name, value in report._asdict().items():
        if isinstance(value, dict):
            for fault, figure in sorted(value.items()):
                table.add_row(f"{name}: {fault}", str(figure))
        else:
            table.add_row(name, str(len(value) if isinstance(value, list) else value))
    Console(stderr=True).print(table)
    said = json.dumps({**setting._asdict(), "minutes": minutes, "seed": seed, **report._asdict()})
    if target is None:
        click.echo(said)
    else:
        target.write_text(said + "\n")
    sys.exit(0 if report.sound else 1)


if __name__ == "__main__":
    main()
