"""What a handler may answer: values that say where its job goes next. ``None`` is the same as ``Done()``."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from store.errors import UsageError
from store.identity import check_code


class _Unset:
    """Says that an argument was left out, where None would mean something."""

    def __repr__(self) -> str:
        return "UNSET"


UNSET: Final = _Unset()

#: The farthest that a handler may put its next run off, in seconds: about a hundred years.
MAX_DELAY = 100 * 365.25 * 86_400


@dataclass(frozen=True, slots=True)
class Done:
    """Finished. ``result`` is any JSON value of at most JOBS_MAX_JSON_BYTES; the checkpoint is cleared."""

    result: Any = None


@dataclass(frozen=True, slots=True, init=False)
class Again:
    """Succeeded, and wants to run again: after a delay, ``at`` a moment, or at once when neither is given.

    A checkpoint that is left out stays as it was; ``None`` clears it.
    """

    delay: float
    at: datetime | None
    checkpoint: Any

    def __init__(
        self,
        *,
        seconds: float = 0,
        minutes: float = 0,
        hours: float = 0,
        days: float = 0,
        at: datetime | None = None,
        checkpoint: Any = UNSET,
    ) -> None:
        try:
            delay = timedelta(seconds=seconds, minutes=minutes, hours=hours, days=days).total_seconds()
        except (OverflowError, ValueError, TypeError):
            raise UsageError("Again's delay is not a length of time") from None
        if not 0 <= delay <= MAX_DELAY:
            raise UsageError("Again's delay lies outside 0 seconds to 100 years: use Park() to wait for a wake")
        if at is not None and (not isinstance(at, datetime) or at.tzinfo is None):
            raise UsageError("Again(at=...) wants a datetime with a time zone")
        if at is not None and delay:
            raise UsageError("Again takes a delay or at=, not both")
        object.__setattr__(self, "delay", delay)
        object.__setattr__(self, "at", at)
        object.__setattr__(self, "checkpoint", checkpoint)


@dataclass(frozen=True, slots=True)
class Retry:
    """Counts as a failed attempt with this code, and runs again after the type's backoff."""

    code: str
    checkpoint: Any = UNSET

    def __post_init__(self) -> None:
        check_code(self.code)


@dataclass(frozen=True, slots=True)
class Park:
    """Succeeded, and waits for a wake: due at no time."""

    checkpoint: Any = UNSET


@dataclass(frozen=True, slots=True)
class Fail:
    """Failed for good, at once, with this code."""

    code: str

    def __post_init__(self) -> None:
        check_code(self.code)


Outcome = Done | Again | Retry | Park | Fail
