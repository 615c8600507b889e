"""What is aimed at, as ratios in one run: against plain Dramatiq, and against the best peer on Postgres."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

Medians = Mapping[str, Mapping[str, float]]


class Target(NamedTuple):
    """``measure`` of ours, divided by the same of ``against``, is at least (or at most) the figure of each store. Where
    ``against`` is "" it is not divided."""

    measure: str
    against: str
    least: bool
    figures: Mapping[str, float]


DRAIN_1, DRAIN_2 = "drain, 1 process /s", "drain, 2 processes /s"
ONE, BULK = "wake one by one /s", "wake in bulk /s"
P50, P99 = "wake to start p50 ms", "wake to start p99 ms"
CPU = "CPU us a job"
CROWDED = "drain beside rows not due /s"
IDLE_STATEMENTS, IDLE_CPU = "idle, 2 workers: statements /s", "idle, 2 workers: CPU ms/s"
MEMORY = "memory of a worker MB"

TARGETS = (
    Target(DRAIN_1, "dramatiq", True, {"postgres": 3.0, "sqlite": 3.0, "surreal": 1.0}),
    Target(DRAIN_1, "pgqueuer", True, {"postgres": 2.5, "sqlite": 2.5, "surreal": 0.8}),
    Target(DRAIN_1, "pgqueuer at its best", True, {"postgres": 0.8, "sqlite": 0.8}),
    Target(DRAIN_2, "dramatiq", True, {"postgres": 1.5, "sqlite": 1.0, "surreal": 0.5}),
    Target(P50, "pgqueuer", False, {"postgres": 0.5, "sqlite": 1.0, "surreal": 2.0}),
    Target(P99, "pgqueuer", False, {"postgres": 1.0, "sqlite": 2.0, "surreal": 3.0}),
    Target(ONE, "pgqueuer", True, {"postgres": 1.2, "sqlite": 2.0, "surreal": 0.5}),
    Target(BULK, "pgqueuer", True, {"postgres": 1.0, "sqlite": 1.0, "surreal": 0.2}),
    Target(CROWDED, DRAIN_1, True, {"postgres": 0.95, "sqlite": 0.95, "surreal": 0.9}),
    Target(CPU, "dramatiq", False, {"postgres": 0.7, "sqlite": 0.6}),
    Target(IDLE_STATEMENTS, "", False, {"postgres": 2.0, "sqlite": 2.0, "surreal": 4.0}),
)


class Verdict(NamedTuple):
    """One target of one store, and what was measured."""

    target: Target
    store: str
    wanted: float
    ratio: float

    @property
    def reached(self) -> bool:
        """Whether it is."""
        return self.ratio >= self.wanted if self.target.least else self.ratio <= self.wanted


def verdicts(medians: Medians) -> list[Verdict]:
    """Of each target that can be judged from what was measured."""
    found = []
    for target in TARGETS:
        for store, wanted in target.figures.items():
            ours = medians.get(store, {})
            of = ours if target.against == DRAIN_1 else medians.get(target.against, {})
            base = of.get(DRAIN_1 if target.against == DRAIN_1 else target.measure) if target.against else 1.0
            if target.measure in ours and base:
                found.append(Verdict(target, store, wanted, ours[target.measure] / base))
    return found
