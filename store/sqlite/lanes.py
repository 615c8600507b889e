"""Due rows, read lane by lane: a lane is the queued rows of one queue and job type.

Every step is a seek in ``dramaturg_job_lane``: the next lane, then ten short ranges (one for each priority) that end at
now. So rows that aren't due cost nothing, nor do those of a paused queue or of a type that nobody published; only rows
of a domain that is paused by itself are passed one by one, in the index. Beside 120,000 rows for later, 20,000 that are
due but of an unknown type, and 60,000 others: 0.3 ms for a page of 100.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final

from store import clock
from store.contract import Due
from store.sqlite.claims import PUBLISHED, QUEUE_OPEN, domain_open
from store.sqlite.limits import Flight, limits

# Two statements and not one with ``(queue, job_type) > (?1, ?2)``: SQLite would start at the first row of that pair and
# pass all its rows one by one, 42 ms for 120,000 rows instead of 0.01.
NEXT_QUEUE: Final = """
SELECT queue FROM dramaturg_job WHERE state = 'queued' AND queue > ?1 ORDER BY queue LIMIT 1
"""

NEXT_TYPE: Final = f"""
SELECT job_type, {PUBLISHED} AND {QUEUE_OPEN} FROM dramaturg_job AS job
WHERE state = 'queued' AND queue = ?1 AND job_type > ?2 ORDER BY job_type LIMIT 1
"""

# The list of priorities from ?4 on: SQLite walks it in order, one seek each, and needs no sorting. A plain
# ``priority >= ?4`` would be the range, and run_at a filter on every row in it.
_FROM: Final = ", ".join(f"max({priority}, ?4)" for priority in range(1, 11))

PROBE: Final = f"""
SELECT priority, run_at, id FROM dramaturg_job AS job
WHERE state = 'queued' AND queue = ?1 AND job_type = ?2 AND priority IN ({_FROM}) AND run_at <= ?3
  AND {domain_open("?1")}
ORDER BY priority, run_at, id LIMIT ?5
"""

#: What is left of the priority at which the page before ended.
REST: Final = f"""
SELECT priority, run_at, id FROM dramaturg_job AS job
WHERE state = 'queued' AND queue = ?1 AND job_type = ?2 AND priority = ?4 AND run_at <= ?3
  AND (run_at, id) > (?6, ?7) AND {domain_open("?1")}
ORDER BY run_at, id LIMIT ?5
"""


# With what limits ask about, and without an end: rows are judged one by one until a page is full.
_WIDE: Final = "SELECT priority, run_at, id, domain, owner FROM"
WIDE_PROBE: Final = PROBE.replace("SELECT priority, run_at, id FROM", _WIDE)
WIDE_REST: Final = REST.replace("SELECT priority, run_at, id FROM", _WIDE)


def due(cursor: sqlite3.Cursor, limit: int, after: Mapping[str, Due] | None, now: int) -> list[Due]:
    """At most ``limit`` runnable rows of each queue (beyond ``after``, and of its queues only)."""
    found: list[Due] = []
    queues = list(_queues(cursor) if after is None else sorted(after))
    if not queues:
        return found  # limits don't matter: an idle system asks once
    there = limits(cursor)
    flight = None if there is None else Flight(cursor, there, now)
    for queue in queues:
        start = None if after is None else after[queue]
        rows = [
            row
            for job_type in _types(cursor, queue)
            for row in _probe(cursor, queue, job_type, limit, start, now, flight)
        ]
        found += [
            Due(id_, queue, priority, clock.from_micros(run_at)) for priority, run_at, id_ in sorted(rows)[:limit]
        ]
    return found


def _queues(cursor: sqlite3.Cursor) -> Iterator[str]:
    row = ("",)
    while row := cursor.execute(NEXT_QUEUE, row).fetchone():
        yield row[0]


def _types(cursor: sqlite3.Cursor, queue: str) -> Iterator[str]:
    job_type = ""
    while row := cursor.execute(NEXT_TYPE, (queue, job_type)).fetchone():
        job_type, runnable = row
        if runnable:
            yield job_type


def _probe(
    cursor: sqlite3.Cursor, queue: str, job_type: str, limit: int, after: Due | None, now: int, flight: Flight | None
) -> Iterator[tuple[int, int, str]]:
    first = 1
    most = limit if flight is None else -1
    if after is not None:
        first = after.priority + 1
        statement = REST if flight is None else WIDE_REST
        beyond = (clock.micros(after.run_at), after.id)
        rows = cursor.execute(statement, (queue, job_type, now, after.priority, most, *beyond))
        rest = rows.fetchall() if flight is None else _within(rows, queue, job_type, limit, flight)
        yield from rest
        limit -= len(rest)
    if limit > 0:
        statement = PROBE if flight is None else WIDE_PROBE
        rows = cursor.execute(statement, (queue, job_type, now, first, min(limit, most)))
        yield from rows.fetchall() if flight is None else _within(rows, queue, job_type, limit, flight)


def _within(
    rows: sqlite3.Cursor, queue: str, job_type: str, limit: int, flight: Flight
) -> list[tuple[int, int, str]]:  # fmt: skip
    admitted = (row[:3] for row in rows if flight.admits(row[3], row[4], queue, job_type))
    return list(islice(admitted, limit))
