"""Small keyed documents by compare-and-set, and terms of leadership."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import orjson

from store import clock
from store.contract import ANY_VERSION, Document, Term
from store.sqlite.rows import in_micros

LISTED: Final = 10_000

_GET: Final = "SELECT kind, key, version, body FROM dramaturg_document WHERE kind = ?1 AND key = ?2"
_LIST: Final = f"SELECT kind, key, version, body FROM dramaturg_document WHERE kind = ?1 ORDER BY key LIMIT {LISTED}"

_PUT_FIRST: Final = """
INSERT INTO dramaturg_document (kind, key, version, body, updated_at) VALUES (?1, ?2, 1, ?3, ?4)
ON CONFLICT (kind, key) DO NOTHING
"""

_PUT_NEXT: Final = """
UPDATE dramaturg_document SET version = version + 1, body = ?3, updated_at = ?4
WHERE kind = ?1 AND key = ?2 AND version = ?5
"""

_PUT_ANY: Final = """
INSERT INTO dramaturg_document (kind, key, version, body, updated_at) VALUES (?1, ?2, 1, ?3, ?4)
ON CONFLICT (kind, key) DO UPDATE SET version = version + 1, body = excluded.body, updated_at = excluded.updated_at
"""

#: Taken up again after a gap longer than the grace (?5): settled only a grace after now (?4).
_LEAD: Final = """
INSERT INTO dramaturg_term (name, holder, until, settled_at) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (name) DO UPDATE SET
  settled_at = CASE WHEN ?4 - until > ?5 THEN ?4 + ?5 ELSE settled_at END,
  until = CASE WHEN holder = excluded.holder THEN max(until, excluded.until) ELSE excluded.until END,
  holder = excluded.holder
WHERE holder IS NULL OR holder = excluded.holder OR until <= ?4
RETURNING settled_at <= ?4
"""

_RESIGN: Final = """
UPDATE dramaturg_term SET holder = NULL, until = min(until, ?3) WHERE name = ?1 AND holder = ?2
"""


def get(cursor: sqlite3.Cursor, kind: str, key: str) -> Document | None:
    """One document."""
    row = cursor.execute(_GET, (kind, key)).fetchone()
    return None if row is None else _document(row)


def list_(cursor: sqlite3.Cursor, kind: str) -> list[Document]:
    """The documents of a kind, by key."""
    return [_document(row) for row in cursor.execute(_LIST, (kind,))]


def put(cursor: sqlite3.Cursor, document: Document, now: datetime) -> bool:
    """Write ``document`` if the stored version is the one it names."""
    kind, key, version, body = document
    values: tuple[Any, ...] = (kind, key, orjson.dumps(dict(body)).decode(), clock.micros(now))
    if version == ANY_VERSION:
        cursor.execute(_PUT_ANY, values)
    elif version == 0:
        cursor.execute(_PUT_FIRST, values)
    else:
        cursor.execute(_PUT_NEXT, (*values, version))
    return cursor.rowcount > 0


def remove(cursor: sqlite3.Cursor, kind: str, key: str) -> bool:
    """Take a document away."""
    cursor.execute("DELETE FROM dramaturg_document WHERE kind = ?1 AND key = ?2", (kind, key))
    return cursor.rowcount > 0


def lead(cursor: sqlite3.Cursor, name: str, holder: str, seconds: float, grace: float, now: datetime) -> Term:
    """Take or prolong a term."""
    stamp = clock.micros(now)
    values = (name, holder, in_micros(now, seconds), stamp, in_micros(now, grace) - stamp)
    row = cursor.execute(_LEAD, values).fetchone()
    return Term(False) if row is None else Term(True, bool(row[0]))


def resign(cursor: sqlite3.Cursor, name: str, holder: str, now: datetime) -> None:
    """Give a term back if it is ``holder``'s."""
    cursor.execute(_RESIGN, (name, holder, clock.micros(now)))


def _document(row: Sequence[Any]) -> Document:
    kind, key, version, body = row
    return Document(kind, key, version, orjson.loads(body))
