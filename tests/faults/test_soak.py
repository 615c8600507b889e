"""A short soak; ``make soak`` is the long one."""

from __future__ import annotations

from pathlib import Path

import pytest

from ops.torture.measures import Sample
from ops.torture.soak import SAMPLES, grown, soak

FLAT = Sample(8e7, 30, 8, 12, 5, 2e6, 20, 2e7, 2e7)


@pytest.mark.early
def test_nothing_grows_over_jobs_and_restarts(fresh_home: Path) -> None:
    soaked = soak("postgres", fresh_home, jobs=1200, restarts=2)
    assert (soaked.grown, soaked.left, soaked.pruned) == ([], 0, 600)


@pytest.mark.parametrize("name", Sample._fields)
def test_what_grows_with_every_sample_is_named(name: str) -> None:
    samples = [FLAT._replace(**{name: getattr(FLAT, name) * (1 + step)}) for step in range(SAMPLES)]
    assert grown(samples) == [name]


def test_what_rises_in_the_beginning_and_then_stays_has_not_grown() -> None:
    low = Sample(*(value / 4 for value in FLAT))
    assert grown([low] * (SAMPLES // 3) + [FLAT] * (SAMPLES - SAMPLES // 3)) == []
