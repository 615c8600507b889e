"""What stops a run from outside: Dramatiq interrupts, so that ``except Exception`` in a handler swallows none."""

from __future__ import annotations

from dramatiq.middleware import Interrupt


class Cancelled(Interrupt):
    """An operator cancelled this job: clean up and let it pass."""


class LeaseLost(Interrupt):
    """The row belongs to somebody else by now: whatever this run does from here on counts for nothing."""


class Stopped(Interrupt):
    """The worker is being stopped and the time for finishing is over: the job goes back unpunished."""


class TimeLimitExceeded(Interrupt):
    """The run took longer than its type allows: its lease is not renewed any more, and it counts as a failure."""
