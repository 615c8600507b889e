"""The triggers that write lifecycle events and breaches of SLAs, proven equal to ``store/outbox.py``.

They exist only while they have something to do: SQLite can't switch one off, and one that looks first and does nothing
would still be asked for every row.
"""

from __future__ import annotations

import sqlite3
from typing import Final

from store.job import HISTORY_KEPT
from store.sqlite.rows import PARKED

_COLUMNS: Final = (
    "name, at, job_id, domain, queue, job_type, key, owner, state, attempt, generation, revision, run_at, code, took, "
    "allowed, request_id, trace"
)

_CLOCK: Final = (
    "CAST(strftime('%s', 'now') AS INTEGER) * 1000000 + CAST(substr(strftime('%f', 'now'), 4) AS INTEGER) * 1000"
)

_EVENT: Final = f"""CASE
    WHEN new.state <> old.state THEN CASE
      WHEN new.state = 'processing' THEN 'job.claimed'
      WHEN new.state <> 'queued' THEN 'job.' || new.state
      WHEN old.state <> 'processing' THEN 'job.requeued'
      WHEN new.retries > old.retries THEN 'job.retry_scheduled'
      WHEN new.finish_token IS NOT old.lease_id THEN 'job.released'
      WHEN new.run_at = {PARKED} THEN 'job.parked'
      ELSE 'job.rescheduled' END
    WHEN new.generation <> old.generation THEN
      CASE WHEN new.state = 'queued' AND new.run_at > old.run_at THEN 'job.rescheduled' ELSE 'job.woken' END
    ELSE 'job.cancel_requested' END"""

_TOOK: Final = """CASE
    WHEN new.state = old.state THEN NULL
    WHEN new.state = 'processing' THEN new.started_at - new.due_at
    WHEN old.state = 'processing' THEN new.updated_at - old.started_at END"""

_CODE: Final = """CASE
    WHEN new.state IN ('failed', 'quarantined') AND new.state <> old.state THEN new.failure_code
    WHEN old.state = 'processing' AND new.state = 'queued' AND new.retries > old.retries THEN new.failure_code END"""

_MEASURE: Final = "CASE WHEN new.state = 'processing' THEN 'queue_latency' ELSE 'duration' END"

_LIMIT: Final = """(SELECT json_extract(d.body, '$.' || {measure}) FROM dramaturg_document d
    WHERE d.kind = 'sla' AND json_extract(d.body, '$.removed') IS NULL
      AND d.key IN ({row}.job_type, {row}.job_type || char(31) || {row}.domain)
    ORDER BY length(d.key) DESC LIMIT 1)"""


def _values(name: str, row: str, at: str, state: str, code: str, took: str, allowed: str) -> str:
    names = ", ".join(f"{row}.{column}" for column in ("id", "domain", "queue", "job_type", "key", "owner"))
    kept = ", ".join(f"{row}.{column}" for column in ("attempt", "generation", "revision", "run_at"))
    return f"{name}, {at}, {names}, {state}, {kept}, {code}, {took}, {allowed}, {row}.request_id, {row}.trace"


def _insert(*values: str, source: str = "") -> str:
    return f"  INSERT INTO dramaturg_outbox ({_COLUMNS}) SELECT {_values(*values)}{source};\n"


def _trigger(name: str, moment: str, body: str) -> str:
    return f"CREATE TRIGGER dramaturg_job_{name}_event AFTER {moment} ON dramaturg_job{body}END"


def wanted(*, events: bool, limits: bool) -> list[str]:
    """The triggers that there must be."""
    if not events and not limits:
        return []
    changed, deleted = "", ""
    if events:
        changed += _insert(_EVENT, "new", "new.updated_at", "new.state", _CODE, _TOOK, "NULL")
        done = _insert("'job.completed'", "old", _CLOCK, "'completed'", "NULL", f"{_CLOCK} - old.started_at", "NULL")
        deleted += done[:-2] + " WHERE old.state = 'processing';\n"
    if limits:
        limit = _LIMIT.format(measure=_MEASURE, row="new")
        over = (
            f" FROM (SELECT {_TOOK} AS took, CAST({limit} AS REAL) AS allowed) AS t WHERE t.took > t.allowed * 1000000"
        )
        if events:
            breach = ("'job.sla_breached'", "new", "new.updated_at", "new.state", _MEASURE, "t.took", "t.allowed")
            changed += _insert(*breach, source=over)
            limit = _LIMIT.format(measure="'duration'", row="old")
            late = (
                f" FROM (SELECT {_CLOCK} - old.started_at AS took, CAST({limit} AS REAL) AS allowed) AS t "
                "WHERE old.state = 'processing' AND t.took > t.allowed * 1000000"
            )
            deleted += _insert(
                "'job.sla_breached'", "old", _CLOCK, "'completed'", "'duration'", "t.took", "t.allowed", source=late
            )
        changed += (
            "  INSERT INTO dramaturg_history (job_id, at, kind, attempt, code, detail)\n"
            f"  SELECT new.id, new.updated_at, 'sla_breached', new.attempt, {_MEASURE},\n"
            f"    json_object('seconds', t.took / 1000000.0, 'allowed', t.allowed){over};\n"
            "  DELETE FROM dramaturg_history WHERE job_id = new.id AND new.state <> old.state AND id <= (\n"
            "    SELECT id FROM dramaturg_history WHERE job_id = new.id ORDER BY id DESC\n"
            f"    LIMIT 1 OFFSET {HISTORY_KEPT});\n"
        )
    told = (
        " WHEN new.state <> old.state OR new.generation <> old.generation OR (\n"
        "  new.state = 'processing' AND old.cancel_requested_at IS NULL AND new.cancel_requested_at IS NOT NULL)"
        " BEGIN\n"
    )
    triggers = [_trigger("changed", "UPDATE", told + changed)]
    if events:
        created = _insert("'job.created'", "new", "new.updated_at", "new.state", "NULL", "NULL", "NULL")
        gone = "CASE WHEN old.state = 'processing' THEN 'completed' ELSE old.state END"
        deleted += _insert("'job.deleted'", "old", _CLOCK, gone, "NULL", "NULL", "NULL")
        triggers += [
            _trigger("created", "INSERT", " BEGIN\n" + created),
            _trigger("deleted", "DELETE", " BEGIN\n" + deleted),
        ]
    return triggers


def arm(cursor: sqlite3.Cursor) -> bool:
    """Make and drop triggers as the documents say; whether anything changed."""
    [(events, limits)] = cursor.execute(
        "SELECT EXISTS (SELECT 1 FROM dramaturg_document WHERE kind = 'outbox' AND key = 'events' "
        "AND json_extract(body, '$.on') = 1), EXISTS (SELECT 1 FROM dramaturg_document WHERE kind = 'sla' "
        "AND json_extract(body, '$.removed') IS NULL)"
    ).fetchall()
    there = dict(
        cursor.execute(
            "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' "
            "AND name LIKE 'dramaturg\\_job\\_%\\_event' ESCAPE '\\'"
        ).fetchall()
    )
    made = wanted(events=bool(events), limits=bool(limits))
    if sorted(there.values()) == sorted(made):
        return False
    for name in there:
        cursor.execute(f"DROP TRIGGER {name}")
    for statement in made:
        cursor.execute(statement)
    return True
