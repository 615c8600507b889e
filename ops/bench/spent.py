"""CPU time of whole process trees, from /proc: what a system costs, wherever it runs."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def spent(roots: Iterable[int]) -> float:
    """CPU-seconds that ``roots``, all that live below them, and their ended children have used so far."""
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
    total, waiting, seen = 0, list(roots), set()
    while waiting:
        pid = waiting.pop()
        if pid in stats and pid not in seen:
            seen.add(pid)
            total += stats[pid][1]
            waiting += below.get(pid, [])
    return total / _TICKS
