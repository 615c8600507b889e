"""Bars of the measures that people ask for first, for a terminal and as a picture."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from rich.bar import Bar
from rich.console import Console
from rich.table import Table

from ops.bench.targets import BULK, DRAIN_1, DRAIN_2, ONE, Medians

_SHOWN: Final = (DRAIN_1, DRAIN_2, ONE, BULK)
_WIDTH: Final = 50


def bars(medians: Medians) -> Table:
    """A bar for each system and measure, the longest of each measure as wide as there is room."""
    table = Table(box=None, title="the longer the faster")
    for column in ("measure", "system", ""):
        table.add_column(column)
    table.add_column("", justify="right")
    for what in _SHOWN:
        found = {name: of[what] for name, of in medians.items() if what in of}
        for place, (name, value) in enumerate(sorted(found.items(), key=lambda pair: -pair[1])):
            bar = Bar(max(found.values()), 0, value, width=_WIDTH)
            table.add_row("" if place else what, name, bar, f"{value:,.0f}", end_section=place == len(found) - 1)
    return table


def draw(medians: Medians, path: Path) -> None:
    """The bars as SVG."""
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        console = Console(record=True, width=_WIDTH + 70, file=nowhere)
        console.print(bars(medians))
        console.save_svg(str(path), title="make bench")
