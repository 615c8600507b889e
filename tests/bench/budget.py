"""The committed budget: what each step may cost at most, in counts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

_FILE = Path(__file__).with_name("budget.json")

#: A budget of which less than this share is spent guards nothing.
LOOSE = 0.6

#: Counts to which other work of the same server adds now and then.
SHARED = ("log bytes",)


def judge(part: str, spent: Mapping[str, Mapping[str, int]], *, tight: bool = True) -> None:
    """Fail where a step costs more than its budget, and with ``tight`` where a budget is far above what is spent."""
    budget: dict[str, dict[str, int]] = json.loads(_FILE.read_text())[part]
    faults = []
    for step, counts in spent.items():
        for name, count in counts.items():
            allowed = budget.get(step, {}).get(name, 0)
            if count > allowed:
                faults.append(f"{step} costs {count} {name} of a budget of {allowed}")
            elif tight and name not in SHARED and count < allowed * LOOSE:
                faults.append(f"{step} costs {count} {name} only: lower its budget of {allowed}")
    measured = json.dumps({part: {step: dict(counts) for step, counts in spent.items()}})
    assert not faults, "\n".join([*faults, f"measured: {measured}"])
