"""CPU time and memory of whole process trees, from /proc: what a system costs, wherever it runs."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def spent(roots: Iterable[int]) -> float:
    """CPU-seconds that ``roots``, all that live below them, and their ended children have used so far."""
    return sum(_trees(roots).values()) / _TICKS


def memory(roots: Iterable[int]) -> int:
    """Bytes that ``roots`` and all that live below them hold; what several share counts once in all."""
    total = 0
    for pid in _trees(roots):
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue  # it has just ended
        total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    return total


def _trees(roots: Iterable[int]) -> dict[int, int]:
    """The processes of these trees, each with its ticks of CPU time and those of its ended children."""
    stats = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                text = (entry / "stat").read_text()
            except OSError:
                continue  # it has just ended
            fields = text.rsplit(")", 1)[1].split()
            stats[int(entry.name)] = int(fields[1]), sum(int(fields[place]) for place in (11, 12, 13, 14))
    below: dict[int, list[int]] = {}
    for pid, (parent, _) in stats.items():
        below.setdefault(parent, []).append(pid)
    found: dict[int, int] = {}
    waiting = list(roots)
    while waiting:
        pid = waiting.pop()
        if pid in stats and pid not in found:
            found[pid] = stats[pid][1]
            waiting += below.get(pid, [])
    return found
