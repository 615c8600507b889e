"""Pruned rows that are kept, and history that was left behind."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import orjson
import psycopg

from store.contract import Archived
from store.postgres.values import rows

Connection = psycopg.Connection[Any]

_WRITE: Final = """
INSERT INTO dramaturg.archive AS a
  (id, generation, domain, queue, job_type, key, job, payload_gzip, result_gzip, archived_at)
SELECT r.id, r.generation, r.domain, r.queue, r.job_type, r.key, r.job::json, decode(r.payload_gzip, 'base64'),
  decode(r.result_gzip, 'base64'), coalesce(r.archived_at, %(now)s::timestamptz, clock_timestamp())
FROM json_to_recordset(%(rows)s::json) AS r(
  id uuid, generation bigint, domain text, queue text, job_type text, key text, job text, payload_gzip text,
  result_gzip text, archived_at timestamptz
)
ON CONFLICT (id, generation) DO UPDATE SET
  job = excluded.job, payload_gzip = excluded.payload_gzip, result_gzip = excluded.result_gzip,
  archived_at = excluded.archived_at
"""

_COLUMNS: Final = """
SELECT a.id::text, a.generation, a.domain::text, a.queue::text, a.job_type::text, a.key::text, a.job, a.payload_gzip,
  a.result_gzip, a.archived_at
FROM dramaturg.archive AS a
"""
_READ: Final = f"{_COLUMNS} WHERE a.id = %(id)s::uuid ORDER BY a.generation DESC LIMIT 100"
_PAGE: Final = f"""{_COLUMNS}
WHERE (a.id, a.generation) > (%(id)s::uuid, %(generation)s::bigint) ORDER BY a.id, a.generation LIMIT %(limit)s
"""

_ORPHANS: Final = """
SELECT h.job_id, h.id FROM dramaturg.history AS h
WHERE NOT EXISTS (SELECT FROM dramaturg.job AS j WHERE j.id = h.job_id) LIMIT %(limit)s
"""
_COUNT: Final = f"SELECT count(*) FROM ({_ORPHANS}) AS lost"
_REMOVE: Final = f"""
WITH lost AS ({_ORPHANS}), gone AS (
  DELETE FROM dramaturg.history AS h USING lost WHERE h.job_id = lost.job_id AND h.id = lost.id RETURNING h.id
)
SELECT count(*) FROM gone
"""


def write(connection: Connection, kept: Sequence[Archived], now: datetime | None) -> None:
    """As ``Tx.archive``."""
    if kept:
        sent = [row._asdict() | {"payload_gzip": _text(row.payload_gzip), "result_gzip": _text(row.result_gzip)}
                for row in kept]  # fmt: skip
        rows(connection, _WRITE, {"rows": orjson.dumps(sent).decode(), "now": now})


def read(connection: Connection, job_id: str) -> list[Archived]:
    """As ``Store.archived``."""
    return [Archived._make(row) for row in rows(connection, _READ, {"id": job_id})]


def page(connection: Connection, after: tuple[str, int], limit: int) -> list[Archived]:
    """As ``Store.archive_page``."""
    values = {"id": after[0], "generation": after[1], "limit": max(limit, 0)}
    return [Archived._make(row) for row in rows(connection, _PAGE, values)]


def orphans(connection: Connection, remove: bool, limit: int) -> int:
    """As ``Store.orphans``."""
    [(count,)] = rows(connection, _REMOVE if remove else _COUNT, {"limit": max(limit, 0)})
    return int(count)


def _text(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()
