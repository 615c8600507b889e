"""The wake: one upsert for each, proven equal to ``transitions._wake``; and one insert for a job by itself that has no
row yet, after which there is nothing to read (with it a send took 217 us where it had taken 234, mostly the disk).

Measured with batches of 1,000 new rows, CPU time a row: this upsert and one read for all 17 us; the upsert with
RETURNING 26 us (the driver describes every result anew); one statement over ``json_each`` with RETURNING 19 us.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from store import clock, wire
from store.contract import Woken
from store.events import Wake
from store.job import State
from store.sqlite import limits
from store.sqlite.rows import batch, in_micros

# Begins with INSERT: the driver's own transaction control looks at the first word. A list with IN would be made into a
# table for every row, so states are compared one by one.
_ENDED: Final = "state = 'completed' OR state = 'failed' OR state = 'cancelled'"

_COLUMNS: Final = """
  id, domain, queue, job_type, key, payload, owner, priority, max_retries, request_id, trace, run_at, generation,
  revision, state, retries, failure_streak, attempt, stopping, created_at, updated_at
"""

UPSERT: Final = f"""
INSERT INTO dramaturg_job ({_COLUMNS})
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, 1, 'queued', 0, 0, 0, 0, ?13, ?13)
ON CONFLICT (id) DO UPDATE SET
  generation = generation + 1,
  revision = revision + 1,
  updated_at = ?13,
  payload = excluded.payload,
  owner = coalesce(owner, excluded.owner),
  max_retries = excluded.max_retries,
  request_id = excluded.request_id,
  trace = excluded.trace,
  priority = CASE WHEN {_ENDED} THEN excluded.priority ELSE min(priority, excluded.priority) END,
  run_at = CASE
    WHEN {_ENDED} THEN excluded.run_at
    WHEN state = 'quarantined' THEN run_at
    ELSE min(run_at, excluded.run_at) END,
  cancel_requested_at = CASE WHEN state = 'quarantined' THEN cancel_requested_at END,
  retries = CASE WHEN {_ENDED} THEN 0 ELSE retries END,
  last_error = CASE WHEN {_ENDED} THEN NULL ELSE last_error END,
  failure = CASE WHEN {_ENDED} THEN NULL ELSE failure END,
  failure_code = CASE WHEN {_ENDED} THEN NULL ELSE failure_code END,
  failure_streak = CASE WHEN {_ENDED} THEN 0 ELSE failure_streak END,
  result = CASE WHEN {_ENDED} THEN NULL ELSE result END,
  finished_at = NULL,
  state = CASE WHEN {_ENDED} THEN 'queued' ELSE state END
WHERE NOT ?14
"""

#: Does nothing where the row is there, or where there are limits.
NEW: Final = f"""
INSERT INTO dramaturg_job ({_COLUMNS})
SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, 1, 'queued', 0, 0, 0, 0, ?13, ?13
WHERE NOT EXISTS ({limits.ANY}) ON CONFLICT DO NOTHING
"""

# On a caller's own connection texts and declared types may be decoded in any way: bytes and expressions are not.
STORED: Final = """
SELECT each.key, CAST(job.state AS BLOB), job.generation + 0, job.run_at + 0, job.revision + 0
FROM json_each(?1) AS each CROSS JOIN dramaturg_job AS job ON job.id = each.value
"""


def wake(cursor: sqlite3.Cursor, wakes: Sequence[Wake], now: datetime) -> list[Woken]:
    """Upsert ``wakes`` at ``now``, in order, and say what is stored. Sqlite3's errors pass."""
    stamp = clock.micros(now)
    if len(wakes) == 1 and (alone := _wake_new(cursor, wakes[0], now, stamp)) is not None:
        return [alone]
    woken: dict[int, Woken] = {}
    for round_ in wire.rounds(wakes):
        limits.admit(cursor, [wake for _, wake in round_], stamp)
        untouched = _upsert(cursor, round_, now, stamp)
        ids = batch([wake.id for _, wake in round_])
        for row, state, generation, run_at, revision in cursor.execute(STORED, (ids,)).fetchall():
            place, wake = round_[row]
            repeated = place in untouched
            woken[place] = Woken(
                wake.id,
                state.decode(),
                generation,
                clock.from_micros(run_at),
                created=revision == 1 and not repeated,
                repeated=repeated,
                due=state == _QUEUED and run_at <= stamp,
            )
    return [woken[place] for place in range(len(wakes))]


_QUEUED: Final = State.QUEUED.value.encode()


def _wake_new(cursor: sqlite3.Cursor, wake: Wake, now: datetime, stamp: int) -> Woken | None:
    """One wake of a job that has no row yet; None, with nothing done, where more is to be judged."""
    row = _row(wake, now, stamp)
    if cursor.execute(NEW, row).rowcount == 0:
        return None
    run_at = row[_RUN_AT]
    return Woken(wake.id, "queued", stamp, clock.from_micros(run_at), created=True, repeated=False, due=run_at <= stamp)


#: The place of ``run_at`` in what ``_row`` answers.
_RUN_AT: Final = 11


def _row(wake: Wake, now: datetime, stamp: int) -> tuple[Any, ...]:
    """The values of ``_COLUMNS`` that differ between wakes."""
    return (
        wake.id,
        wake.domain,
        wake.queue,
        wake.job_type,
        wake.key,
        wake.payload,
        wake.owner,
        wake.priority,
        wake.max_retries,
        wake.request_id,
        wake.trace,
        in_micros(wake.run_at or now, wake.delay),
        stamp,
    )


def _upsert(cursor: sqlite3.Cursor, round_: Sequence[tuple[int, Wake]], now: datetime, stamp: int) -> set[int]:
    """The places of those that were left untouched, which only ``once`` does."""
    rows = [(*_row(wake, now, stamp), wake.once) for _, wake in round_]
    if not any(wake.once for _, wake in round_):
        cursor.executemany(UPSERT, rows)
        return set()
    return {place for (place, _), row in zip(round_, rows, strict=True) if cursor.execute(UPSERT, row).rowcount == 0}
