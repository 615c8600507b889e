"""A pass over many rows in pages: where it stands, and what comes after a page. Pure.

The position is the job's checkpoint. A wake in mid-pass may concern a row that the pass has gone by already, so it asks
for another pass; that one begins when this one is through, and not in its place, or a repository that is changed all
the time would never be seen beyond its first pages.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Self

from store.outcome import Again, Outcome, Retry

#: A pass comes later by at most this part of its interval, so that repositories don't stay in step.
JITTER = 0.1


class Position(NamedTuple):
    """Where a pass stands after a page."""

    after: str | None = None  # the id of the last row that was dealt with; None: at the start
    failed: int = 0  # rows that failed so far
    code: str | None = None  # why the first of them did
    woken: bool = False  # a wake came since the pass began

    @classmethod
    def read(cls, checkpoint: Any, *, woken: bool) -> Self:
        """The position in a run's checkpoint; the start of a pass where there is none that we could have written."""
        if not isinstance(checkpoint, dict) or set(checkpoint) != set(cls._fields):
            return cls()
        found = cls(**checkpoint)
        return found._replace(woken=found.woken or woken)

    def failing(self, code: str) -> Self:
        """One more row failed."""
        return self._replace(failed=self.failed + 1, code=self.code or code)

    def go_on(self, after: str | None) -> Again:
        """The pass is not through: at once from the row behind ``after``."""
        return Again(checkpoint=self._replace(after=after)._asdict())

    def finish(self, interval: float, draw: float) -> Outcome:
        """The pass is through; ``interval`` in seconds to the next one, ``draw`` from 0..1 for the jitter."""
        if self.woken:
            return Again(checkpoint=None)
        if self.code is not None:
            return Retry(self.code, checkpoint=None)
        return Again(seconds=interval * (1 + JITTER * draw), checkpoint=None)
