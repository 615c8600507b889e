"""Reading rows: by id, by filter, counted, and their history."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Final

import orjson
import psycopg

from store.filters import Filter, Order, Tally
from store.identity import job_id
from store.job import Job, Recorded
from store.postgres.values import JOB, jobs, rows

Connection = psycopg.Connection[Any]

_NOW: Final = "(SELECT coalesce(%(now)s::timestamptz, clock_timestamp()))"

#: So many seconds ago. Stable, as ``clock_timestamp()`` is not: so the planner sees the moment and can judge an index.
_AGO: Final = (
    "(coalesce(%(now)s::timestamptz, statement_timestamp()) - make_interval(secs => %({})s::double precision))"
)

_READ: Final = f"SELECT {JOB} FROM dramaturg.job AS job WHERE job.id = ANY (%(ids)s::uuid[])"

_READY: Final = f"job.state = 'queued' AND job.run_at <= {_NOW}"
_SCHEDULED: Final = f"job.state = 'queued' AND job.run_at > {_NOW} AND job.run_at < 'infinity'"
_PARKED: Final = "job.state = 'queued' AND job.run_at = 'infinity'"
_PHASES: Final = {"ready": _READY, "scheduled": _SCHEDULED, "parked": _PARKED}

_LAPSED: Final = f"job.state = 'processing' AND job.leased_until < {_NOW}"

#: (field of Filter, condition) of those that compare with their value. The planner sees these parameters, as nothing is
#: prepared: so it knows which partial index serves.
_CONDITIONS: Final = (
    ("ids", "job.id = ANY (%(ids)s::uuid[])"),
    ("domain", "job.domain = %(domain)s"),
    ("queue", "job.queue = %(queue)s"),
    ("job_type", "job.job_type = %(job_type)s"),
    ("key", "job.key = %(key)s"),
    ("owner", "job.owner = %(owner)s"),
    ("states", "job.state = ANY (%(states)s::text[])"),
    ("failure_code", "job.failure_code = %(failure_code)s"),
    ("lease_id", "job.lease_id = %(lease_id)s::uuid"),
    ("created_before", "job.created_at < %(created_before)s"),
    ("run_before", "job.run_at < %(run_before)s"),
    ("finished_before", "job.finished_at < %(finished_before)s"),
    ("waiting_over", f"job.state = 'queued' AND job.run_at <= {_AGO.format('waiting_over')}"),
    ("running_over", f"job.state = 'processing' AND job.started_at <= {_AGO.format('running_over')}"),
    ("lapsed_over", f"job.state = 'processing' AND job.leased_until <= {_AGO.format('lapsed_over')}"),
)

_ORDERS: Final[dict[Order, tuple[str, ...]]] = {
    "id": ("id",),
    "claim": ("priority", "run_at", "id"),
    "created": ("created_at", "id"),
    "updated": ("updated_at", "id"),
}

_TALLY: Final = f"""
SELECT job.domain, job.queue, job.job_type,
  count(*) FILTER (WHERE {_READY}),
  count(*) FILTER (WHERE {_SCHEDULED}),
  count(*) FILTER (WHERE {_PARKED}),
  count(*) FILTER (WHERE job.state = 'processing'),
  count(*) FILTER (WHERE job.state = 'completed'),
  count(*) FILTER (WHERE job.state = 'failed'),
  count(*) FILTER (WHERE job.state = 'cancelled'),
  count(*) FILTER (WHERE job.state = 'quarantined'),
  min(job.run_at) FILTER (WHERE {_READY})
FROM dramaturg.job AS job WHERE {{where}} GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
"""

_HISTORY: Final = """
SELECT h.job_id::text, h.at, h.kind, h.attempt, h.code, h.detail
FROM dramaturg.history AS h WHERE h.job_id = %(job_id)s::uuid ORDER BY h.id DESC LIMIT %(limit)s
"""


def read(connection: Connection, ids: Sequence[str]) -> list[Job | None]:
    """Rows by id, None for those that aren't there."""
    found = {job.id: job for job in jobs(connection, _READ, {"ids": list(ids)})}
    return [found.get(id_) for id_ in ids]


def find(
    connection: Connection, filter: Filter, order: Order, descending: bool, limit: int, now: datetime | None
) -> list[Job]:
    """Rows that match, in order."""
    statement, parameters = found_by(filter, order, descending)
    return jobs(connection, statement, parameters | {"limit": max(limit, 0), "now": now})


def tally(connection: Connection, filter: Filter, now: datetime | None) -> list[Tally]:
    """Counts of what matches, by domain, queue and type."""
    where, parameters = _where(filter, descending=False)
    return [Tally._make(row) for row in rows(connection, _TALLY.format(where=where), parameters | {"now": now})]


def history(connection: Connection, job_id: str, limit: int) -> list[Recorded]:
    """The newest entries of a job, newest first."""
    found = rows(connection, _HISTORY, {"job_id": job_id, "limit": max(limit, 0)})
    return [Recorded._make((*row[:-1], orjson.loads(row[-1]))) for row in found]


def found_by(filter: Filter, order: Order, descending: bool) -> tuple[str, dict[str, Any]]:
    """The statement that finds rows, with its parameters but for ``now`` and ``limit``."""
    where, parameters = _where(filter, descending)
    columns = ", ".join(f"job.{name} {'DESC' if descending else 'ASC'}" for name in _ORDERS[order])
    return (
        f"SELECT {JOB} FROM dramaturg.job AS job WHERE {where} ORDER BY {columns} LIMIT %(limit)s",
        parameters,
    )


def _where(filter: Filter, descending: bool) -> tuple[str, dict[str, Any]]:
    parameters: dict[str, Any] = {}
    identity = (filter.domain, filter.queue, filter.job_type, filter.key)
    if filter.ids is None and None not in identity:
        # The id follows from these four, and there is an index on it.
        filter = filter._replace(ids=[job_id(*identity)])  # type: ignore[arg-type]

    def conditions() -> Iterator[str]:
        for name, condition in _CONDITIONS:
            value = getattr(filter, name)
            if value is not None:
                parameters[name] = [str(item) for item in value] if name in ("ids", "states") else value
                yield condition
        if filter.ended_over is not None:
            parameters["ended_over"] = filter.ended_over
            ended = (f"job.{column} <= {_AGO.format('ended_over')}" for column in filter.ended_columns)
            yield f"({' OR '.join(ended)})"
        if filter.phase is not None:
            yield _PHASES[filter.phase]
        if filter.lapsed is not None:
            yield _LAPSED if filter.lapsed else f"NOT ({_LAPSED})"
        if filter.after_id is not None:
            parameters["after_id"] = filter.after_id
            yield f"job.id {'<' if descending else '>'} %(after_id)s::uuid"

    return " AND ".join(conditions()) or "true", parameters
