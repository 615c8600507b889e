"""Random schedules of everything that can happen, judged by somebody who knows only what must hold.

A failing seed is printed with a schedule that was made as short as it goes; it replays exactly.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from store import clock, transitions
from store.events import Finish, GiveBack, Reclaim, Release
from store.job import Job
from store.policy import Policy
from store.transitions import Decision
from tests.simulation.auditor import Broken
from tests.simulation.choices import numbers_of, shortened
from tests.simulation.conftest import Play
from tests.simulation.world import World

#: Choices in one schedule, and schedules of one test.
LENGTH, LOT = 400, 10

#: Seeds for each store: a statement of SurrealDB takes some ten times as long.
SEEDS = {"sqlite": range(0, 140, LOT), "postgres": range(1000, 1050, LOT), "surreal": range(2000, 2010, LOT)}


@pytest.mark.parametrize(
    ("play", "first"), [(store, first) for store, seeds in SEEDS.items() for first in seeds], indirect=["play"]
)
def test_whatever_happens_nothing_is_lost_and_nothing_stale_is_believed(play: Play, first: int) -> None:
    for seed in range(first, first + LOT):
        judge(play, seed)


def judge(play: Play, seed: int, length: int = LENGTH) -> World:
    """Play a seed; a failure is made short and told."""
    numbers = numbers_of(seed, length)
    try:
        return play(numbers)
    except Broken as broken:
        short = shortened(numbers, lambda less: fails(play, less))
        raise AssertionError(f"seed {seed}: {broken}; shortest: {story(play, short)}") from None


def fails(play: Play, numbers: Sequence[int]) -> bool:
    """Whether a schedule breaks something."""
    try:
        play(list(numbers))
    except Broken:
        return True
    return False


def story(play: Play, numbers: list[int]) -> str:
    """A failing schedule as a person reads it."""
    try:
        play(numbers)
    except Broken as broken:
        return f"{numbers}: {broken}"
    return "it does not fail again"


def _parks(row: Job, release: Release, policy: Policy) -> Decision:
    decision = transitions.decide(row, GiveBack(*release, 0.0, "x"), policy)
    write = decision.write
    return decision if write is None else decision._replace(write=write._replace(run_in=None, run_at=clock.PARKED))


def _sees_no_newer_wake(row: Job, finish: Finish, policy: Policy) -> Decision:
    return transitions._finish(row, finish._replace(generation=row.generation), policy)


def _takes_back_what_stands(row: Job, event: Reclaim, policy: Policy) -> Decision:
    decision = transitions._reclaim(row, event, policy)
    return decision if decision.write is None else decision._replace(write=decision.write._replace(lapsed=False))


#: Plausible mistakes: a rule of the state table, and what it is taken for.
MISTAKES = {
    "a release forgets that work is wanted": (Release, _parks),
    "a finish looks at no newer wake": (Finish, _sees_no_newer_wake),
    "a sweep takes back what was renewed meanwhile": (Reclaim, _takes_back_what_stands),
}


@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.parametrize("play", ["sqlite"], indirect=True)
def test_a_mistake_in_the_protocol_is_found(play: Play, mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    event, rule = MISTAKES[mistake]
    monkeypatch.setitem(transitions._RULES, event, rule)
    assert any(fails(play, numbers_of(seed, LENGTH)) for seed in range(200))
