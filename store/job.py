"""The row, and what is written beside it.

A job is a NamedTuple and not a dataclass because thousands a second are made of database rows: its fields stand in the
order of the table's columns, and JSON columns stay text until somebody reads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple


class State(StrEnum):
    """What a job is doing; ready, scheduled and parked are derived from ``queued`` and ``run_at``, never stored."""

    QUEUED = "queued"
    PROCESSING = "processing"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    QUARANTINED = "quarantined"


#: The states that end a job; a quarantined one is held, not ended.
TERMINAL = frozenset({State.COMPLETED, State.FAILED, State.CANCELLED})


class Job(NamedTuple):
    """One job. Times are aware datetimes in UTC; payload, checkpoint, failure and result are JSON text."""

    id: str
    domain: str
    queue: str
    job_type: str
    key: str | None
    owner: str | None
    priority: int  # 1..10, the lower the sooner
    payload: str
    run_at: datetime  # clock.PARKED: due at no time
    generation: int  # version of the intent; the first one is the row's birth in microseconds, so it never comes again
    revision: int  # version of the row; every write that could change a decision moves it
    state: str
    retries: int  # failed attempts since the last success
    max_retries: int | None  # None: for ever
    checkpoint: str | None
    checkpoint_generation: int | None  # the generation that was served when the checkpoint was set
    due_at: datetime | None  # when the run in hand had become due
    held_at: datetime | None  # when it was quarantined
    last_error: str | None  # a generic line
    failure: str | None  # {"class", "code", "message", "place"}; a message only where we worded it
    failure_code: str | None
    failure_streak: int  # failures in a row with that code
    lease_id: str | None  # set exactly while processing
    ended_lease: str | None  # the lease that ended last: it can't claim again
    attempt: int  # claims so far
    leased_until: datetime | None
    worker: str | None
    stopping: bool  # its worker said that it is being stopped
    cancel_requested_at: datetime | None
    progress_percent: int | None
    progress_message: str | None
    result: str | None
    finish_token: str | None  # the lease whose finish this row remembers
    request_id: str | None
    trace: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    updated_at: datetime


COLUMNS: tuple[str, ...] = Job._fields

#: Columns that hold JSON text.
JSON_COLUMNS = frozenset({"payload", "checkpoint", "failure", "result"})

#: Columns that hold a moment.
TIME_COLUMNS = frozenset(name for name in COLUMNS if name.endswith("_at") or name == "leased_until")


class Entry(NamedTuple):
    """One line of a job's history. ``detail`` holds plain figures and codes, never a foreign text."""

    kind: str
    attempt: int
    code: str | None = None
    detail: Mapping[str, object] = MappingProxyType({})


class Recorded(NamedTuple):
    """A history line as it was read back."""

    job_id: str
    at: datetime
    kind: str
    attempt: int
    code: str | None
    detail: Mapping[str, object]


#: History lines that are kept for each job; the oldest go first (source A).
HISTORY_KEPT = 50
