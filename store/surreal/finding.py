"""Reading rows: by id, by filter, counted, and their history."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import orjson

from store import clock
from store.filters import Filter, Order, Tally
from store.job import Job, Recorded, State
from store.surreal.requests import Step
from store.surreal.rows import JOB, PARKED, TABLE, job_of, micros, record, stored

_PHASES: Final = {
    "ready": "state = 'queued' AND run_at <= $now",
    "scheduled": f"state = 'queued' AND run_at > $now AND run_at < {PARKED}",
    "parked": f"state = 'queued' AND run_at = {PARKED}",
}

#: (field of Filter, condition) of those that compare with their value.
_CONDITIONS: Final = (
    ("domain", "domain = {}"),
    ("queue", "queue = {}"),
    ("job_type", "job_type = {}"),
    ("key", "key = {}"),
    ("owner", "owner = {}"),
    ("failure_code", "failure_code = {}"),
    ("lease_id", "lease_id = {}"),
    ("created_before", "created_at < {}"),
    ("run_before", "run_at < {}"),
    ("finished_before", "finished_at != NONE AND finished_at < {}"),
    ("waiting_over", "state = 'queued' AND run_at <= $now - {}"),
    ("running_over", "state = 'processing' AND started_at != NONE AND started_at <= $now - {}"),
    ("lapsed_over", "state = 'processing' AND leased_until <= $now - {}"),
)

_ORDERS: Final[dict[Order, tuple[str, ...]]] = {
    "id": ("id",),
    "claim": ("priority", "run_at", "id"),
    "created": ("created_at", "id"),
    "updated": ("updated_at", "id"),
}

_COUNTS: Final = (
    "count(state = 'queued' AND run_at <= $now) AS ready",
    f"count(state = 'queued' AND run_at > $now AND run_at < {PARKED}) AS scheduled",
    f"count(state = 'queued' AND run_at = {PARKED}) AS parked",
    *(f"count(state = '{state}') AS {state}" for state in State if state is not State.QUEUED),
    f"math::min(IF state = 'queued' AND run_at <= $now THEN run_at ELSE {PARKED} END) AS oldest_ready",
)  # fmt: skip

_TALLIED: Final = Tally._fields


def read(ids: Sequence[str]) -> Step:
    """Rows by id, in any order; those that aren't there are left out."""
    return Step(
        f"{{ fn::dramaturg::here(); (SELECT VALUE {JOB} FROM $i0) }}", {"i0": [record(id_) for id_ in sorted(set(ids))]}
    )


def jobs_of(ids: Sequence[str], rows: Any) -> list[Job | None]:
    """The rows of ``read``, for each id."""
    found = {job.id: job for job in map(job_of, rows)}
    return [found.get(id_) for id_ in ids]


def find(filter: Filter, order: Order, descending: bool, limit: int) -> Step:
    """Rows that match, in order."""
    source, where, values = _where(filter, descending)
    way = "DESC" if descending else "ASC"
    columns = ", ".join(f"{name} {way}" for name in _ORDERS[order])
    if order == "id" and not descending and filter.after_id is not None and filter.ids is None:
        # ``id > ...`` would walk the table from its beginning, for every page. Forwards only: backwards, of a range
        # that a function answers, the engine (3.2.4) takes the first so many and sorts those.
        source = f"type::record('{TABLE}', $p0>..)"
        values["p0"] = filter.after_id
    # The order is of records and not of what is selected of them: ORDER BY after SELECT VALUE would look there.
    text = f"(SELECT * FROM {source} WHERE {where} ORDER BY {columns} LIMIT {max(limit, 0)})"
    return Step(f"(SELECT VALUE {JOB} FROM {text})", values)


def tally(filter: Filter) -> Step:
    """Counts of what matches, by domain, queue and type."""
    source, where, values = _where(filter, descending=False)
    names = "domain, queue, job_type"
    text = f"(SELECT {names}, {', '.join(_COUNTS)} FROM {source} WHERE {where} GROUP BY {names})"
    return Step(text, values)


def tallies(rows: Any) -> list[Tally]:
    """The counts in the step's answer."""
    found = [Tally._make(row[name] for name in _TALLIED) for row in rows]
    return sorted(one._replace(oldest_ready=_moment(one.oldest_ready) if one.ready else None) for one in found)


def history(job_id: str, limit: int) -> Step:
    """The newest entries of a job, newest first."""
    text = f"""(SELECT VALUE [record::id(id)[0], at, kind, attempt, code, detail] FROM
  (SELECT * FROM dramaturg_history:[$i0, 0]..=[$i0, 9223372036854775807] ORDER BY id DESC LIMIT {max(limit, 0)}))"""
    return Step(text, {"i0": job_id})


def recorded(rows: Any) -> list[Recorded]:
    """The entries in the step's answer."""
    return [
        Recorded(id_, clock.from_micros(at), kind, attempt, code, orjson.loads(detail))
        for id_, at, kind, attempt, code, detail in rows
    ]


def _moment(value: Any) -> Any:
    return clock.from_micros(value)


def _where(filter: Filter, descending: bool) -> tuple[str, str, dict[str, Any]]:
    values: dict[str, Any] = {}
    source = TABLE

    def conditions() -> Iterator[str]:
        for name, condition in _CONDITIONS:
            value = getattr(filter, name)
            if value is not None:
                values[f"f{len(values)}"] = micros(value) if name.endswith("_over") else stored(value)
                yield condition.format(f"$f{len(values) - 1}")
        if filter.states is not None:
            states = [f"'{state.value}'" for state in State if state.value in set(filter.states)]
            yield f"state = {states[0]}" if len(states) == 1 else f"state IN [{', '.join(states)}]"
        if filter.ended_over is not None:
            name = f"$f{len(values)}"
            values[name[1:]] = micros(filter.ended_over)
            ended = (f"({column} != NONE AND {column} <= $now - {name})" for column in filter.ended_columns)
            yield f"({' OR '.join(ended)})"
        if filter.phase is not None:
            yield _PHASES[filter.phase]
        if filter.lapsed is not None:
            lapsed = "state = 'processing' AND leased_until < $now"
            yield lapsed if filter.lapsed else f"!({lapsed})"
        if filter.after_id is not None:
            values[f"f{len(values)}"] = record(filter.after_id)
            yield f"id {'<' if descending else '>'} $f{len(values) - 1}"

    where = " AND ".join(conditions()) or "true"
    if filter.ids is not None:
        values["i0"] = [record(id_) for id_ in sorted(set(filter.ids))]
        source = "$i0"
    return source, where, values
