"""Taking and keeping rows: claims, proven equal to ``transitions._claim``, and renewals.

Measured with batches of 50 on rows in random places, CPU time a row, commit included: plain updates and one read for
all 22 us; an update with RETURNING for each 36 us; one UPDATE ... FROM json_each with RETURNING 34 us.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from store import clock
from store.contract import Claimed, Renewal, Renewed
from store.events import Claim
from store.sqlite.limits import Flight, limits
from store.sqlite.rows import JOB, PARKED, batch, in_micros, job_of

#: What runnable means beyond being queued and due, of a row of ``job``. The first two hold for a whole lane.
PUBLISHED: Final = "EXISTS (SELECT 1 FROM dramaturg_document WHERE kind = 'policy' AND key = job.job_type)"
QUEUE_OPEN: Final = """
NOT EXISTS (SELECT 1 FROM dramaturg_document WHERE kind = 'queue' AND key = job.queue AND body -> '$.paused' = 'true')
"""


def domain_open(queue: str) -> str:
    """The third condition; ``queue`` is how the statement calls the row's queue.

    A list of the domains that are paused there: where ``queue`` is a parameter it is made once a statement, and passing
    20,000 rows of a paused domain takes 4 ms. Asking for each row takes 13 ms, and 53 if the index doesn't cover it.
    """
    return f"""
job.domain NOT IN (
  SELECT substr(key, length({queue}) + 2) FROM dramaturg_document
  WHERE kind = 'queue' AND key > {queue} || char(31) AND key < {queue} || char(32) AND body -> '$.paused' = 'true')
"""


TAKE: Final = f"""
UPDATE dramaturg_job AS job SET
  state = 'processing',
  due_at = run_at,
  run_at = {PARKED},
  lease_id = ?2,
  attempt = attempt + 1,
  leased_until = ?3,
  worker = ?4,
  stopping = 0,
  started_at = ?5,
  progress_percent = NULL,
  progress_message = NULL,
  revision = revision + 1,
  updated_at = ?5
WHERE id = ?1 AND state = 'queued' AND run_at <= ?5 AND ended_lease IS NOT ?2 AND finish_token IS NOT ?2
  AND {PUBLISHED} AND {QUEUE_OPEN} AND {domain_open("job.queue")}
"""

#: Rows that are held under the lease they were claimed with, just now or by the same claim before.
TAKEN: Final = f"""
SELECT each.key, {JOB}
FROM json_each(?1) AS each CROSS JOIN dramaturg_job AS job
  ON job.id = each.value ->> 0 AND job.lease_id = each.value ->> 1 AND job.state = 'processing'
"""

#: A percentage below the one that stands comes late, and its message with it. One that can't be is left to the CHECK.
_LATE: Final = "?5 IS NULL OR ?5 BETWEEN 0 AND coalesce(progress_percent, 0) - 1"

RENEW: Final = f"""
UPDATE dramaturg_job SET
  leased_until = max(leased_until, coalesce(?4, leased_until)),
  progress_message = CASE WHEN {_LATE} THEN progress_message ELSE ?6 END,
  progress_percent = CASE WHEN {_LATE} THEN progress_percent ELSE ?5 END,
  revision = revision + (?7 AND NOT stopping),
  stopping = stopping OR ?7,
  updated_at = ?8
WHERE id = ?1 AND lease_id = ?2 AND attempt = ?3 AND state = 'processing'
"""

HELD: Final = """
SELECT each.key, job.cancel_requested_at IS NOT NULL
FROM json_each(?1) AS each CROSS JOIN dramaturg_job AS job
  ON job.id = each.value ->> 0 AND job.lease_id = each.value ->> 1 AND job.attempt = each.value ->> 2
  AND job.state = 'processing'
"""


def claim(cursor: sqlite3.Cursor, claims: Sequence[Claim], now: datetime) -> list[Claimed]:
    """Take what can be taken at ``now``. Sqlite3's errors pass."""
    stamp = clock.micros(now)
    there = limits(cursor)
    flight = None if there is None else Flight(cursor, there, stamp)
    for id_, lease_id, worker, seconds in claims:
        values = (id_, lease_id, in_micros(now, seconds), worker, stamp)
        if flight is None:
            cursor.execute(TAKE, values)
        else:
            _take_within(cursor, flight, id_, values)
    fences = batch([(claim.id, claim.lease_id) for claim in claims])
    taken = {row[0]: job_of(row[1:]) for row in cursor.execute(TAKEN, (fences,))}
    return [Claimed(taken.get(place)) for place in range(len(claims))]


def _take_within(cursor: sqlite3.Cursor, flight: Flight, id_: str, values: tuple[Any, ...]) -> None:
    names = flight.names(id_)
    if names is not None and flight.admits(*names):
        cursor.execute(TAKE, values)
        if cursor.rowcount > 0:
            flight.started(*names[:2])


def writes(renewal: Renewal) -> bool:
    """Whether it does more than look."""
    return renewal.seconds is not None or renewal.progress is not None or renewal.stopping


def renew(cursor: sqlite3.Cursor, renewals: Sequence[Renewal], now: datetime) -> list[Renewed]:
    """Write signs of life at ``now``, where they are any, and look. Sqlite3's errors pass."""
    stamp = clock.micros(now)
    for renewal in filter(writes, renewals):
        until = None if renewal.seconds is None else in_micros(now, renewal.seconds)
        percent, message = renewal.progress or (None, None)
        fence = (renewal.id, renewal.lease_id, renewal.attempt)
        cursor.execute(RENEW, (*fence, until, percent, message, renewal.stopping, stamp))
    fences = batch([(renewal.id, renewal.lease_id, renewal.attempt) for renewal in renewals])
    held: dict[int, Any] = dict(cursor.execute(HELD, (fences,)).fetchall())
    return [Renewed(place in held, bool(held.get(place))) for place in range(len(renewals))]
