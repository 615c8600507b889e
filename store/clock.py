"""The only place that asks for the time.

The database's clock decides what is due and Valkey's who may try; a process' own clock only measures how long
something took (``elapsed``) and words what a person reads (``wall``).
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from functools import lru_cache

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

#: A row that waits for a wake: it is due at no time. Postgres spells it ``infinity``.
PARKED = datetime.max.replace(tzinfo=UTC)


def wall() -> datetime:
    """This machine's idea of now, in UTC: for what a person reads, never for a decision about a job."""
    return datetime.now(UTC)


def elapsed() -> float:
    """Seconds on a clock that never steps; only differences mean anything."""
    return time.monotonic()


def micros(moment: datetime) -> int:
    """Microseconds since 1970, exactly."""
    delta = moment - EPOCH
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds


@lru_cache(maxsize=4096)  # the rows of a batch share most of their moments
def from_micros(value: int) -> datetime:
    """The moment that many microseconds after 1970, in UTC."""
    return EPOCH + timedelta(microseconds=value)


def later(moment: datetime, seconds: float) -> datetime:
    """``moment`` plus ``seconds``, and PARKED where that is beyond what a datetime can say."""
    try:
        return moment + timedelta(seconds=seconds)
    except OverflowError:
        return PARKED
