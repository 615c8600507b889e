"""Small keyed documents by compare-and-set, and terms of leadership: a statement each."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import orjson
import psycopg

from store.contract import Document, Term
from store.postgres.values import rows

Connection = psycopg.Connection[Any]

LISTED: Final = 10_000

_GET: Final = "SELECT d.version, d.body FROM dramaturg.document AS d WHERE d.kind = %(kind)s AND d.key = %(key)s"
_LIST: Final = f"""
SELECT d.kind, d.key, d.version, d.body FROM dramaturg.document AS d
WHERE d.kind = %(kind)s ORDER BY d.key LIMIT {LISTED}
"""

_PUT: Final = """
WITH moved AS (
  UPDATE dramaturg.document AS d SET
    version = d.version + 1, body = %(body)s::json, updated_at = coalesce(%(now)s::timestamptz, clock_timestamp())
  WHERE d.kind = %(kind)s AND d.key = %(key)s AND d.version = %(version)s AND %(version)s > 0
  RETURNING 1
), made AS (
  INSERT INTO dramaturg.document AS d (kind, key, version, body, updated_at)
  SELECT %(kind)s, %(key)s, 1, %(body)s::json, coalesce(%(now)s::timestamptz, clock_timestamp())
  WHERE %(version)s <= 0
  ON CONFLICT (kind, key) DO UPDATE SET
    version = d.version + 1, body = excluded.body, updated_at = excluded.updated_at
  WHERE %(version)s < 0
  RETURNING 1
)
SELECT 1 FROM moved UNION ALL SELECT 1 FROM made
"""

_REMOVE: Final = "DELETE FROM dramaturg.document AS d WHERE d.kind = %(kind)s AND d.key = %(key)s RETURNING 1"

#: Taken up again after a gap longer than the grace: settled only a grace after now.
_LEAD: Final = """
WITH clock AS MATERIALIZED (SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now)
INSERT INTO dramaturg.term AS t (name, holder, until, settled_at)
SELECT %(name)s, %(holder)s, dramaturg.later(now, %(seconds)s), now FROM clock
ON CONFLICT (name) DO UPDATE SET
  settled_at = CASE
    WHEN dramaturg.later(t.until, %(grace)s) < excluded.settled_at
      THEN dramaturg.later(excluded.settled_at, %(grace)s)
    ELSE t.settled_at
  END,
  until = CASE WHEN t.holder = excluded.holder THEN greatest(t.until, excluded.until) ELSE excluded.until END,
  holder = excluded.holder
WHERE t.holder IS NULL OR t.holder = excluded.holder OR t.until <= excluded.settled_at
RETURNING t.settled_at <= (SELECT now FROM clock)
"""

_RESIGN: Final = """
UPDATE dramaturg.term AS t SET
  holder = NULL, until = least(t.until, coalesce(%(now)s::timestamptz, clock_timestamp()))
WHERE t.name = %(name)s AND t.holder = %(holder)s
"""


def get(connection: Connection, kind: str, key: str) -> Document | None:
    """One document."""
    found = rows(connection, _GET, {"kind": kind, "key": key})
    return Document(kind, key, found[0][0], orjson.loads(found[0][1])) if found else None


def list_(connection: Connection, kind: str) -> list[Document]:
    """The documents of a kind, by key."""
    return [Document._make((*row[:3], orjson.loads(row[3]))) for row in rows(connection, _LIST, {"kind": kind})]


def put(connection: Connection, document: Document, now: datetime | None) -> bool:
    """Write ``document`` if the stored version is the one it names."""
    sent = document._asdict() | {"body": orjson.dumps(dict(document.body)).decode(), "now": now}
    return bool(rows(connection, _PUT, sent))


def remove(connection: Connection, kind: str, key: str) -> bool:
    """Take a document away."""
    return bool(rows(connection, _REMOVE, {"kind": kind, "key": key}))


def lead(
    connection: Connection, name: str, holder: str, seconds: float, grace: float, now: datetime | None
) -> Term:  # fmt: skip
    """Take or prolong a term."""
    sent = {"name": name, "holder": holder, "seconds": float(seconds), "grace": float(grace), "now": now}
    found = rows(connection, _LEAD, sent)
    return Term(True, found[0][0]) if found else Term(False)


def resign(connection: Connection, name: str, holder: str, now: datetime | None) -> None:
    """Give a term back if it is ``holder``'s."""
    rows(connection, _RESIGN, {"name": name, "holder": holder, "now": now})
