"""A claimed row whose run never waits: in tests a handler's sleep takes no time."""

from __future__ import annotations

from collections.abc import Callable

from middleware.holding import Holding
from store.job import Job
from store.policy import Policy


class InstantHolding(Holding):
    """``passed`` hears how many seconds the handler would have slept."""

    __slots__ = ("_passed",)

    def __init__(self, job: Job, policy: Policy, passed: Callable[[float], object]) -> None:
        super().__init__(job, policy, "", float("inf"))
        self._passed = passed

    def wait(self, seconds: float) -> None:
        """Sleep for no time, unless a cancel or the loss of the lease was told."""
        if not (self.cancelled or self.lost or self.overdue):
            self._passed(max(0.0, seconds))

    async def nap(self, seconds: float) -> None:
        """The same for a coroutine."""
        self.wait(seconds)
