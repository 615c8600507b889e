"""What a handler holds while it runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from middleware.answers import finish_of
from middleware.holding import Holding
from middleware.interrupts import Cancelled, LeaseLost, TimeLimitExceeded
from store import attachments
from store.contract import Tx
from store.errors import UsageError
from store.identity import check_code
from store.operations import Item, settle_in
from store.outcome import Outcome
from store.payloads import decode
from store.transitions import Answer

if TYPE_CHECKING:
    from middleware.runtime import Runtime

#: Characters of a progress message at most.
MAX_MESSAGE = 500

#: A count at most: what every store and every reader of JSON keeps exactly.
MAX_COUNT = 2**53


def check_progress(percent: int, message: str | None) -> None:
    """Raise UsageError for what can't be a report of progress."""
    if not isinstance(percent, int) or isinstance(percent, bool) or not 0 <= percent <= 100:
        raise UsageError("progress is a whole number of percent from 0 to 100")
    if message is not None and len(message) > MAX_MESSAGE:
        raise UsageError(f"a progress message has at most {MAX_MESSAGE} characters")
    if message is not None and not message.isprintable():
        raise UsageError("a progress message is one line of printable characters")


class Run:
    """One attempt at one job. Made by the fence; its methods may be called from the handler's thread or coroutine."""

    __slots__ = ("__dict__", "_holding", "_runtime")

    def __init__(self, holding: Holding, runtime: Runtime) -> None:
        self._holding = holding
        self._runtime = runtime

    @property
    def id(self) -> str:
        """The job's id."""
        return self._holding.job.id

    @property
    def key(self) -> str | None:
        """The identity of the resource, where the job has one."""
        return self._holding.job.key

    @property
    def domain(self) -> str:
        """The domain that the job belongs to."""
        return self._holding.job.domain

    @property
    def queue(self) -> str:
        """The queue that the job stands in."""
        return self._holding.job.queue

    @property
    def owner(self) -> str | None:
        """Whom the job belongs to, where somebody said so."""
        return self._holding.job.owner

    @property
    def attempt(self) -> int:
        """Claims of this job so far, this one included. With the id a stable name for this run's side effects."""
        return self._holding.job.attempt

    @property
    def retries(self) -> int:
        """Failed attempts since the last success."""
        return self._holding.job.retries

    @property
    def due_at(self) -> datetime | None:
        """When this run had become due."""
        return self._holding.job.due_at

    @property
    def request_id(self) -> str | None:
        """The id of the request that woke the job, where it was passed on."""
        return self._holding.job.request_id

    @cached_property
    def checkpoint(self) -> Any:
        """What the last run that set one left behind; None at the start of a pass. Raises PayloadSealed."""
        return decode(self._runtime.boundary.read(self._holding.job, "checkpoint"))

    @property
    def woken(self) -> bool:
        """A wake came since the checkpoint was set (False where there is none)."""
        job = self._holding.job
        return job.checkpoint_generation is not None and job.checkpoint_generation != job.generation

    @property
    def stopping(self) -> bool:
        """The worker is being stopped: a long run may end early with ``Again(checkpoint=...)``."""
        return self._holding.stopped

    def check(self) -> None:
        """Raise Cancelled if an operator cancelled the job, LeaseLost if it belongs to somebody else by now, and
        TimeLimitExceeded if it has taken longer than its type's time limit.

        Costs nothing: the heartbeat looks about once a second. Let them pass through the handler.
        """
        if self._holding.lost:
            raise LeaseLost
        if self._holding.cancelled:
            raise Cancelled
        if self._holding.overdue:
            raise TimeLimitExceeded

    def progress(self, percent: int, message: str | None = None) -> None:
        """Report 0..100 and a short message, as often as you like: it is written about once a second. Checks, too."""
        check_progress(percent, message)
        message = self._runtime.boundary.message(message)
        self.check()
        if percent >= self._holding.progress_seen:
            self._holding.progress_seen = percent
            self._holding.progress = (percent, message)

    def count(self, name: str, number: int = 1) -> None:
        """Count what this run got through; the totals go into the job's history.

        Raises UsageError for a name that is no code (letters, digits, ``_.:-``) or a number that is none.
        """
        check_code(name)
        if not isinstance(number, int) or isinstance(number, bool) or abs(number) > MAX_COUNT:
            raise UsageError(f"a count is a whole number of at most {MAX_COUNT}")
        counts = self._holding.counts
        counts[name] = max(-MAX_COUNT, min(MAX_COUNT, counts.get(name, 0) + number))

    def sleep(self, seconds: float) -> None:
        """Wait, but notice a cancel or a lost lease at once. In ``async def`` handlers: ``await run.pause(...)``."""
        self._holding.wait(seconds)
        self.check()

    async def pause(self, seconds: float) -> None:
        """``sleep`` for coroutines."""
        left = seconds
        while left > 0:
            self.check()
            await self._holding.nap(min(left, 0.25))
            left -= 0.25
        self.check()

    def attach(self, name: str, data: bytes | str, media_type: str = "application/octet-stream") -> int:
        """Put a file on the job, at once and by itself; answers its number. It goes when the job is deleted.

        Raises LeaseLost where the job belongs to somebody else by now, and then nothing is written; UsageError for one
        that is too large, Refused where the job has as much as one may have (``store/attachments.py``).
        """
        return self._attach(attachments.file(name, data, media_type))

    def log(self, text: str) -> None:
        """Put a line on the job, for whoever looks at it (``dramaturg attachments``): written at once, in no log of the
        process, and the newest are kept. Raises as ``attach`` does."""
        self._attach(attachments.log_line(text))

    def _attach(self, item: attachments.Item) -> int:
        self.check()
        fence = attachments.Fence(self._holding.lease_id, self.attempt)
        given = self._runtime.store.attach(self.id, [item], fence=fence)
        if given is None:
            raise LeaseLost
        return given[0]

    @contextmanager
    def transaction(self, outcome: Outcome | None = None) -> Iterator[Tx]:
        """A transaction of the store in which the block's writes and the finish of this job commit together.

        The last thing that a run does, and once: what the handler answers or raises afterwards counts for nothing.
        Raises LeaseLost, and nothing is written, where the row belongs to somebody else by now; StoreUnavailable
        where the store did not answer (if it had committed all the same, the row remembers, and the job has ended).
        On SQLite the block keeps every other writer waiting: keep it short.
        """
        if self._holding.settled is not None:
            raise UsageError("a run has one transaction, and this one has had it")
        self.check()
        finish = finish_of(self._holding, outcome, self._runtime)
        with self._runtime.store.transaction() as tx:
            yield tx
            settled = settle_in(tx, Item(self.id, finish, self._holding.policy))
            if settled.answer is not Answer.APPLIED:
                raise LeaseLost
        # From here on nothing of this run's is at stake: nothing is renewed, and nothing interrupts what follows.
        self._holding.settled = (finish, settled)
        self._runtime.in_hand.drop((self._holding.lease_id,))
        self._holding.leave()
