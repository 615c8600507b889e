"""How a job failed lately: its newest failed attempts in one call, whatever else its history holds."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from store.contract import Store
from store.job import HISTORY_KEPT

#: Failures that are told unless more are asked for (source B).
FAILURES_TOLD = 10

_KINDS = ("attempt_failed", "retry_asked")


class FailedAttempt(NamedTuple):
    """One failed attempt. ``delay`` is in seconds until the next one, None where there is none to come."""

    at: datetime
    attempt: int
    code: str | None
    delay: float | None


def failures(store: Store, job_id: str, *, limit: int = FAILURES_TOLD) -> list[FailedAttempt]:
    """The newest failed attempts of a job that its history still holds, newest first, at most ``limit``."""
    found = []
    for entry in store.history(job_id, limit=HISTORY_KEPT):
        if entry.kind in _KINDS:
            delay = entry.detail.get("delay")
            seconds = float(delay) if isinstance(delay, (int, float)) else None
            found.append(FailedAttempt(entry.at, entry.attempt, entry.code, seconds))
    return found[:limit]
