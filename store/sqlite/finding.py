"""Reading rows: by id, by filter, counted, and their history."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any, Final

import orjson

from store import clock
from store.filters import Filter, Order, Tally
from store.job import Job, Recorded, State
from store.sqlite.rows import JOB, PARKED, UNDECODED, batch, job_of, job_of_undecoded, stored

_BY_ID: Final = "FROM json_each(?1) AS each CROSS JOIN dramaturg_job AS job ON job.id = each.value"
READ: Final = f"SELECT each.key, {JOB} {_BY_ID}"
READ_UNDECODED: Final = f"SELECT each.key, {UNDECODED} {_BY_ID}"

_PHASES: Final = {
    "ready": "state = 'queued' AND run_at <= :now",
    "scheduled": f"state = 'queued' AND run_at > :now AND run_at < {PARKED}",
    "parked": f"state = 'queued' AND run_at = {PARKED}",
}

#: (field of Filter, condition) of those that compare with their value.
_CONDITIONS: Final = (
    ("ids", "id IN (SELECT value FROM json_each(:ids))"),
    ("domain", "domain = :domain"),
    ("queue", "queue = :queue"),
    ("job_type", "job_type = :job_type"),
    ("key", "key = :key"),
    ("owner", "owner = :owner"),
    ("failure_code", "failure_code = :failure_code"),
    ("lease_id", "lease_id = :lease_id"),
    ("created_before", "created_at < :created_before"),
    ("run_before", "run_at < :run_before"),
    ("finished_before", "finished_at < :finished_before"),
    ("waiting_over", "state = 'queued' AND run_at <= :now - :waiting_over"),
    ("running_over", "state = 'processing' AND started_at <= :now - :running_over"),
    ("lapsed_over", "state = 'processing' AND leased_until <= :now - :lapsed_over"),
)

_ORDERS: Final[dict[Order, tuple[str, ...]]] = {
    "id": ("id",),
    "claim": ("priority", "run_at", "id"),
    "created": ("created_at", "id"),
    "updated": ("updated_at", "id"),
}

_TALLY: Final = """
SELECT domain, queue, job_type,
  sum(state = 'queued' AND run_at <= :now),
  sum(state = 'queued' AND run_at > :now AND run_at < {parked}),
  sum(state = 'queued' AND run_at = {parked}),
  sum(state = 'processing'), sum(state = 'completed'), sum(state = 'failed'), sum(state = 'cancelled'),
  sum(state = 'quarantined'),
  min(CASE WHEN state = 'queued' AND run_at <= :now THEN run_at END)
FROM dramaturg_job WHERE {where} GROUP BY domain, queue, job_type ORDER BY domain, queue, job_type
"""

HISTORY: Final = """
SELECT job_id, at, kind, attempt, code, detail FROM dramaturg_history WHERE job_id = ?1 ORDER BY id DESC LIMIT ?2
"""


def read(cursor: sqlite3.Cursor, ids: Sequence[str]) -> list[Job | None]:
    """Rows by id, None for those that aren't there."""
    found = {row[0]: job_of(row[1:]) for row in cursor.execute(READ, (batch(ids),))}
    return [found.get(place) for place in range(len(ids))]


def read_undecoded(cursor: sqlite3.Cursor, ids: Sequence[str]) -> list[Job | None]:
    """The same on a caller's own connection."""
    found = {row[0]: job_of_undecoded(row[1:]) for row in cursor.execute(READ_UNDECODED, (batch(ids),))}
    return [found.get(place) for place in range(len(ids))]


def find(
    cursor: sqlite3.Cursor, filter: Filter, order: Order, descending: bool, limit: int, now: int
) -> list[Job]:  # fmt: skip
    """Rows that match, in order."""
    statement, parameters = found_by(filter, order, descending)
    return [job_of(row) for row in cursor.execute(statement, parameters | {"limit": max(limit, 0), "now": now})]


def tally(cursor: sqlite3.Cursor, filter: Filter, now: int) -> list[Tally]:
    """Counts of what matches, by domain, queue and type."""
    where, parameters = _where(filter, descending=False)
    rows = cursor.execute(_TALLY.format(where=where, parked=PARKED), parameters | {"now": now}).fetchall()
    return [Tally._make((*row[:-1], None if row[-1] is None else clock.from_micros(row[-1]))) for row in rows]


def history(cursor: sqlite3.Cursor, job_id: str, limit: int) -> list[Recorded]:
    """The newest entries of a job, newest first."""
    rows = cursor.execute(HISTORY, (job_id, max(limit, 0))).fetchall()
    return [
        Recorded(id_, clock.from_micros(at), kind, attempt, code, orjson.loads(detail))
        for id_, at, kind, attempt, code, detail in rows
    ]


def found_by(filter: Filter, order: Order, descending: bool) -> tuple[str, dict[str, Any]]:
    """The statement that finds rows, with its parameters but for ``now`` and ``limit``."""
    where, parameters = _where(filter, descending)
    # The unary plus keeps SQLite from walking the whole table by id to spare itself the sorting of a few rows.
    sign = "+" if _is_narrow(filter) else ""
    columns = ", ".join(f"{sign}{name} {'DESC' if descending else 'ASC'}" for name in _ORDERS[order])
    return f"SELECT {JOB} FROM dramaturg_job AS job WHERE {where} ORDER BY {columns} LIMIT :limit", parameters


def _is_narrow(filter: Filter) -> bool:
    narrow = (filter.ids, filter.key, filter.finished_before, filter.running_over, filter.lapsed_over)
    return filter.lapsed is True or any(value is not None for value in narrow)


def _parameter(name: str, value: Any) -> Any:
    if name == "ids":
        return batch(list(value))
    return round(value * 1_000_000) if name.endswith("_over") else stored(value)


def _where(filter: Filter, descending: bool) -> tuple[str, dict[str, Any]]:
    parameters: dict[str, Any] = {}

    def conditions() -> Iterator[str]:
        for name, condition in _CONDITIONS:
            value = getattr(filter, name)
            if value is not None:
                parameters[name] = _parameter(name, value)
                yield condition
        if filter.states is not None:
            # Spelled out, so that the partial indexes are seen; only names of ours come into the statement.
            states = [f"{state.value!r}" for state in State if state.value in set(filter.states)]
            yield f"state = {states[0]}" if len(states) == 1 else f"state IN ({', '.join(states)})"
        if filter.ended_over is not None:
            parameters["ended_over"] = _parameter("ended_over", filter.ended_over)
            yield f"({' OR '.join(f'{column} <= :now - :ended_over' for column in filter.ended_columns)})"
        if filter.phase is not None:
            yield _PHASES[filter.phase]
        if filter.lapsed is not None:
            lapsed = "state = 'processing' AND leased_until < :now"
            yield lapsed if filter.lapsed else f"NOT ({lapsed})"
        if filter.after_id is not None:
            parameters["after_id"] = filter.after_id
            yield "id < :after_id" if descending else "id > :after_id"

    return " AND ".join(conditions()) or "1", parameters
