"""Lifecycle events: what a change of a row is called, as a pure function; each store's triggers are proven equal to it.

An event tells what became of a row, whoever changed it: ids, names, state, attempt, codes and times, never a payload, a
result or an error's text. It is written in the transaction of the change and read by position, see ``Store.events``.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from store import clock
from store.clock import PARKED
from store.errors import CursorTooOld, Refused
from store.job import Job, State


class Name(StrEnum):
    """All events that there are; the names are stable."""

    CREATED = "job.created"  # a row that was not there
    WOKEN = "job.woken"  # a live row is wanted again, no later than before
    RESCHEDULED = "job.rescheduled"  # queued for another time: by a run that went well, or by an operator
    PARKED = "job.parked"  # queued for no time: it waits for a wake
    CLAIMED = "job.claimed"
    COMPLETED = "job.completed"
    RETRY_SCHEDULED = "job.retry_scheduled"  # a failed attempt, and another to come
    FAILED = "job.failed"
    QUARANTINED = "job.quarantined"
    CANCEL_REQUESTED = "job.cancel_requested"
    CANCELLED = "job.cancelled"
    RELEASED = "job.released"  # given back, or taken back from a worker that was being stopped; not counted
    REQUEUED = "job.requeued"  # an ended or held job is queued again
    DELETED = "job.deleted"
    SLA_BREACHED = "job.sla_breached"  # ``code`` says which limit


#: The two limits of an SLA, as ``code`` of the event and of the history names them.
QUEUE_LATENCY, DURATION = "queue_latency", "duration"


class Limits(NamedTuple):
    """An SLA: seconds that a job may be due before it is claimed, and that a run may take. None: no limit."""

    queue_latency: float | None = None
    duration: float | None = None


UNLIMITED = Limits()


class Event(NamedTuple):
    """One event. ``position`` counts from 1 without gaps; the rest is of the row as the change left it."""

    position: int
    name: str
    at: datetime
    job_id: str
    domain: str
    queue: str
    job_type: str
    key: str | None
    owner: str | None
    state: str
    attempt: int
    generation: int
    revision: int
    run_at: datetime
    code: str | None  # of a failed attempt, or the limit that was breached
    seconds: float | None  # claimed: how long it had been due; a run's end: how long it took
    allowed: float | None  # the limit that was breached, in seconds
    request_id: str | None
    trace: str | None


class Page(NamedTuple):
    """``events`` in order. ``cursor``: where to go on from, which may lie beyond the last of them, as what a filter
    leaves out was looked at too."""

    events: list[Event]
    cursor: int


class Extent(NamedTuple):
    """What is kept: positions ``oldest`` to ``newest``; none where ``oldest`` is the greater one."""

    oldest: int
    newest: int


#: The states that a row leaves only by being queued again.
_AT_REST = frozenset({State.COMPLETED, State.FAILED, State.CANCELLED, State.QUARANTINED})

_BY_STATE = {
    State.COMPLETED: Name.COMPLETED,
    State.FAILED: Name.FAILED,
    State.CANCELLED: Name.CANCELLED,
    State.QUARANTINED: Name.QUARANTINED,
}

_CODED = frozenset({Name.FAILED, Name.RETRY_SCHEDULED, Name.QUARANTINED})


def names_of(before: Job | None, after: Job | None) -> tuple[Name, ...]:
    """What a change of a row is called, without breaches of an SLA; nothing for a change that tells nobody anything."""
    if before is None:
        return () if after is None else (Name.CREATED,)
    if after is None:
        # Only the finish of a type that keeps no rows deletes one that is being served.
        return (Name.COMPLETED, Name.DELETED) if before.state == State.PROCESSING else (Name.DELETED,)
    if after.state != before.state:
        return (_moved(before, after),)
    if after.generation != before.generation:
        later = after.state == State.QUEUED and after.run_at > before.run_at
        return (Name.RESCHEDULED if later else Name.WOKEN,)
    if (
        before.state == State.PROCESSING
        and before.cancel_requested_at is None
        and after.cancel_requested_at is not None
    ):
        return (Name.CANCEL_REQUESTED,)
    return ()


def _moved(before: Job, after: Job) -> Name:
    if after.state == State.PROCESSING:
        return Name.CLAIMED
    if after.state != State.QUEUED:
        return _BY_STATE[State(after.state)]
    if before.state in _AT_REST:
        return Name.REQUEUED
    if after.retries > before.retries:
        return Name.RETRY_SCHEDULED
    if after.finish_token != before.lease_id:
        return Name.RELEASED
    return Name.PARKED if after.run_at == PARKED else Name.RESCHEDULED


def events_of(
    before: Job | None, after: Job | None, limits: Limits = UNLIMITED, *, at: datetime | None = None
) -> list[Event]:
    """The events of a change, in order, without positions (0). ``at``: the moment of a deletion, which the row does not
    say."""
    job = after or before
    if job is None:
        return []
    moment = at if after is None and at is not None else job.updated_at
    served = before is not None and before.state == State.PROCESSING
    ends = served and (after is None or after.state != State.PROCESSING)
    found = []
    for name in names_of(before, after):
        code = job.failure_code if name in _CODED else None
        since, until = None, moment
        if name is Name.CLAIMED:
            since, until = job.due_at, job.started_at or moment
        elif ends and name is not Name.DELETED:
            since = before.started_at if before is not None else None
        took = None if since is None else clock.micros(until) - clock.micros(since)
        state = State.COMPLETED if after is None and served else job.state
        event = Event(
            0, name, moment, *job[:6], state, job.attempt, job.generation, job.revision, job.run_at, code,
            None if took is None else took / 1_000_000, None, job.request_id, job.trace,
        )  # fmt: skip
        found.append(event)
        which, limit = (QUEUE_LATENCY, limits[0]) if name is Name.CLAIMED else (DURATION, limits[1])
        if took is not None and limit is not None and took > limit * 1_000_000:
            found.append(event._replace(name=Name.SLA_BREACHED, code=which, allowed=limit))
    return found


#: Positions that one page looks through at most for those that a filter lets by.
SCANNED = 10_000


def page_of(after: int | None, limit: int, kept: Extent, found: list[Event]) -> Page:
    """The page for who read ``found`` behind ``after`` while ``kept`` was there. Raises CursorTooOld."""
    start = kept.oldest - 1 if after is None else after
    if start < kept.oldest - 1:
        raise CursorTooOld(
            f"events up to {kept.oldest - 1} have been pruned, and this reader is at {start}: what it missed is gone, "
            "so let it look at the jobs themselves, and go on from the oldest event that is kept"
        )
    if start > kept.newest:
        raise Refused(f"this reader is at {start}, and the newest event is {kept.newest}: it read in another database")
    return Page(found, found[-1].position if len(found) == limit else min(start + SCANNED, kept.newest))
