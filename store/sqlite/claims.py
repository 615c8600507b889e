"""Taking and keeping rows: claims, proven equal to ``transitions._claim``, and renewals.

Measured with batches of 300, CPU time a row, commit included: one UPDATE ... FROM json_each and one text with all rows
25 us; an update for each row and that text 28 to 39 us; an update and a row to read for each 32 to 41 us.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import orjson

from store import clock, wire
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


#: Parameters: an array of [id, lease id, until, worker], and now. One statement for a batch: each that is run lets
#: other threads go ahead, and waits for them to let it go on.
TAKE: Final = f"""
UPDATE dramaturg_job AS job SET
  state = 'processing',
  due_at = run_at,
  run_at = {PARKED},
  lease_id = each.value ->> 1,
  attempt = attempt + 1,
  leased_until = each.value ->> 2,
  worker = each.value ->> 3,
  stopping = 0,
  started_at = ?2,
  progress_percent = NULL,
  progress_message = NULL,
  revision = revision + 1,
  updated_at = ?2
FROM json_each(?1) AS each
WHERE job.id = each.value ->> 0 AND +state = 'queued' AND run_at <= ?2  -- +: no other way than by id
  AND ended_lease IS NOT each.value ->> 1 AND finish_token IS NOT each.value ->> 1
  AND {PUBLISHED} AND {QUEUE_OPEN} AND {domain_open("job.queue")}
"""

#: Rows that are held under the lease they were claimed with, just now or by the same claim before: one text for all,
#: which is read faster than a row for each.
TAKEN: Final = f"""
SELECT json_group_array(json_array(each.key, {JOB}))
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
    answers: dict[int, Claimed] = {}
    for round_ in wire.rounds(claims):
        values = [[one.id, one.lease_id, in_micros(now, one.seconds), one.worker] for _, one in round_]
        asked = batch(values)
        if flight is None:
            cursor.execute(TAKE, (asked, stamp))
        else:
            for each in values:
                _take_within(cursor, flight, each, stamp)
        [(found,)] = cursor.execute(TAKEN, (asked,))
        taken = {key: job_of(row) for key, *row in orjson.loads(found)}
        answers.update((place, Claimed(taken.get(key))) for key, (place, _) in enumerate(round_))
    return [answers[place] for place in range(len(claims))]


def _take_within(cursor: sqlite3.Cursor, flight: Flight, asked: list[Any], stamp: int) -> None:
    names = flight.names(asked[0])
    if names is not None and flight.admits(*names):
        cursor.execute(TAKE, (batch([asked]), stamp))
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
