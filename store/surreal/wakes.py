"""The wake: one call of ``fn::dramaturg::wake_row`` for each, in order, all in one expression."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from store import clock
from store.contract import Woken
from store.events import Wake
from store.job import State
from store.surreal.requests import Step
from store.surreal.rows import LIMITS, micros, stored


def step(wakes: Sequence[Wake], *, notify: bool = True) -> Step:
    """Upsert ``wakes`` in order; answers [now, [an answer for each]]."""
    values = {
        f"w{place}": wake._asdict() | {"run_at": stored(wake.run_at), "delay": micros(wake.delay)}
        for place, wake in enumerate(wakes)
    }
    calls = ", ".join(f"fn::dramaturg::wake_row(${name}, $now, $limits)" for name in values)
    ring = "fn::dramaturg::ring();" if notify else ""
    return Step(f"{{ LET $limits = {LIMITS}; LET $told = [{calls}]; {ring} [$now, $told] }}", values)


def answers(wakes: Sequence[Wake], found: Any) -> list[Woken]:
    """What the step's answer says of each."""
    now, told = found
    return [
        Woken(
            wake.id,
            state,
            generation,
            clock.from_micros(run_at),
            created=created,
            repeated=repeated,
            due=state == State.QUEUED and run_at <= now,
        )
        for wake, (state, generation, run_at, created, repeated) in zip(wakes, told, strict=True)
    ]
