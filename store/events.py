"""What can happen to a job, as values: the middle column of the state table in ``transitions.py``."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

import orjson


class Wake(NamedTuple):
    """This work is wanted. ``run_at`` None means the database's now; ``delay`` is in seconds and added to it."""

    id: str
    domain: str
    queue: str
    job_type: str
    key: str | None
    payload: str  # JSON text that has passed payloads.check
    owner: str | None = None
    priority: int = 5
    run_at: datetime | None = None
    delay: float = 0.0
    once: bool = False  # the original row comes back untouched, as long as it exists
    max_retries: int | None = None
    request_id: str | None = None
    trace: str | None = None


class Claim(NamedTuple):
    """A worker takes the row of ``id`` under a lease id that it made, for so many seconds."""

    id: str
    lease_id: str
    worker: str
    seconds: float


class Failure(NamedTuple):
    """A failure as it may be written down: never a text that somebody else worded."""

    kind: str  # the error's class
    code: str
    message: str | None = None  # only for errors that we word
    place: str | None = None  # file:line in function, in our or the developer's code

    @classmethod
    def of_code(cls, code: str) -> Failure:
        """A failure that is known by its code alone."""
        return cls("", code)

    @property
    def line(self) -> str:
        """The generic line for ``last_error``."""
        return f"attempt failed: {self.code}"

    @property
    def json(self) -> str:
        """The row's ``failure`` column."""
        fields = {"class": self.kind, "code": self.code, "message": self.message, "place": self.place}
        return orjson.dumps({name: value for name, value in fields.items() if value}).decode()


class Kind(StrEnum):
    """How a run ended."""

    DONE = "done"
    AGAIN = "again"
    RETRY = "retry"
    PARK = "park"
    FAIL = "fail"
    CANCELLED = "cancelled"  # the handler saw the cancel and stopped


class Finish(NamedTuple):
    """A run is over. Lease and attempt are the fence, the generation says which intent was served."""

    lease_id: str
    attempt: int
    generation: int
    kind: Kind
    jitter: float = 0.5  # a draw from 0..1 for the backoff, made by the caller so that the decision is pure
    result: str | None = None  # JSON text
    sets_checkpoint: bool = False
    checkpoint: str | None = None  # JSON text
    run_at: datetime | None = None  # Again(at=...)
    delay: float = 0.0  # Again(seconds=...), from the statement's now
    failure: Failure | None = None
    asked: bool = False  # the handler returned Retry rather than raising
    counts: tuple[tuple[str, int], ...] = ()  # what the run got through
    progress: tuple[int, str | None] | None = None  # the last report, where it was not written yet


class Release(NamedTuple):
    """Given back unpunished: a graceful stop, or it was never started."""

    lease_id: str
    attempt: int


class GiveBack(NamedTuple):
    """Given back for ``delay`` seconds, not counted, with a coded note."""

    lease_id: str
    attempt: int
    delay: float
    code: str


class Reclaim(NamedTuple):
    """The lease that was read has run out; takes effect only while that is still so."""

    lease_id: str
    jitter: float = 0.5


class Cancel(NamedTuple):
    """An operator's stop of one job."""


class Requeue(NamedTuple):
    """An operator's fresh start of a held or ended job."""


class Reschedule(NamedTuple):
    """An operator's new time: ``delay`` seconds from now, or at a moment."""

    delay: float | None = None
    run_at: datetime | None = None


class Prune(NamedTuple):
    """The removal of an ended or held job, as it stood at ``generation``: one that was woken since is left alone."""

    generation: int


class Expire(NamedTuple):
    """The time to live of what was read is over: of a wait (``lease_id`` None), or of the run under that lease.

    What has moved on since is left alone. ``fail``: failed with the code; else cancelled, a run by request.
    """

    generation: int
    attempt: int
    lease_id: str | None
    fail: bool = False

    @property
    def code(self) -> str:
        """What the row and its history say."""
        return "ttl_age" if self.lease_id is None else "ttl_runtime"


Event = Wake | Claim | Finish | Release | GiveBack | Reclaim | Cancel | Requeue | Reschedule | Prune | Expire
