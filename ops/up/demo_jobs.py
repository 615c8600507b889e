"""The job that the demo kills in mid-run: ``dramatiq actors ops.up.demo_jobs`` loads it beside the real ones."""

from __future__ import annotations

from typing import Final

from dramaturg import Payload, Run, job

_STEPS: Final = 50


class Slow(Payload):
    """How long to take."""

    seconds: float


@job("demo.slow", payload=Slow, backoff_first=0.5, backoff_cap=1.0)
def slow(payload: Slow, run: Run) -> None:
    """Take a few seconds, and tell how far it is."""
    for step in range(_STEPS):
        run.progress(100 * step // _STEPS)
        run.sleep(payload.seconds / _STEPS)
