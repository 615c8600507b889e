"""Reading lifecycle events, and attachments; what writes events stands in ``triggers.py``."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from store import clock
from store.attachments import FILE, LOG, Attachment, Caps, Fence, Item
from store.outbox import SCANNED, Event, Extent
from store.sqlite.rows import in_micros

_EXTENT: Final = """
SELECT coalesce((SELECT min(position) FROM dramaturg_outbox), s.seq + 1), s.seq
FROM (SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'dramaturg_outbox'), 0) AS seq) AS s
"""

_PAGE: Final = f"""
SELECT position, name, at, job_id, domain, queue, job_type, key, owner, state, attempt, generation, revision, run_at,
  code, took, allowed, request_id, trace
FROM dramaturg_outbox
WHERE position > :after AND position <= :after + {SCANNED}
  AND (:domain IS NULL OR domain = :domain) AND (:queue IS NULL OR queue = :queue)
  AND (:job_type IS NULL OR job_type = :job_type)
ORDER BY position LIMIT :limit
"""

#: What is older, from the oldest on and up to the first that is not.
_PRUNE: Final = """
DELETE FROM dramaturg_outbox WHERE position IN (
  SELECT position FROM dramaturg_outbox WHERE position <= :through AND position < coalesce(
    (SELECT position FROM dramaturg_outbox WHERE at >= :before ORDER BY position LIMIT 1), 9223372036854775807)
  ORDER BY position LIMIT :limit)
"""

_HOLDS: Final = """
SELECT 1 FROM dramaturg_job WHERE id = :id AND (:lease IS NULL OR (
  state = 'processing' AND lease_id = :lease AND attempt = :attempt))
"""

_USED: Final = """
SELECT coalesce(max(number), 0), coalesce(sum(kind = 'file'), 0),
  coalesce(sum(CASE WHEN kind = 'file' THEN length(data) END), 0)
FROM dramaturg_attachment WHERE job_id = ?1
"""

_TRIM: Final = """
DELETE FROM dramaturg_attachment WHERE job_id = ?1 AND kind = 'log' AND number <= (
  SELECT number FROM dramaturg_attachment WHERE job_id = ?1 AND kind = 'log' ORDER BY number DESC LIMIT 1 OFFSET ?2)
"""

_LISTED: Final = "SELECT job_id, number, kind, name, media_type, length(data), at"


def extent(cursor: sqlite3.Cursor) -> Extent:
    """Which events are kept."""
    return Extent._make(cursor.execute(_EXTENT).fetchone())


def page(
    cursor: sqlite3.Cursor, after: int | None, limit: int, names: dict[str, str | None]
) -> tuple[Extent, list[Event]]:
    """Events behind ``after``, and what is kept; both of one snapshot."""
    kept = extent(cursor)
    start = kept.oldest - 1 if after is None else after
    found = cursor.execute(_PAGE, names | {"after": start, "limit": limit}).fetchall()
    return kept, [_event(row) for row in found]


def prune(cursor: sqlite3.Cursor, seconds: float, through: int, limit: int, now: datetime) -> int:
    """Remove the oldest events that are older than ``seconds``."""
    cursor.execute(_PRUNE, {"through": through, "before": in_micros(now, -seconds), "limit": limit})
    return cursor.rowcount


def attach(
    cursor: sqlite3.Cursor, job_id: str, items: Sequence[Item], caps: Caps, fence: Fence | None, now: datetime
) -> list[int] | None:
    """The numbers of what was attached; none where it does not fit, None where the row is gone or another's."""
    lease, attempt = fence or (None, None)
    if cursor.execute(_HOLDS, {"id": job_id, "lease": lease, "attempt": attempt}).fetchone() is None:
        return None
    last, files, size = cursor.execute(_USED, (job_id,)).fetchone()
    sizes = [len(item.data) for item in items if item.kind == FILE]
    if sizes and (files + len(sizes) > caps.files or size + sum(sizes) > caps.bytes):
        return []
    given = list(range(last + 1, last + 1 + len(items)))
    cursor.executemany(
        "INSERT INTO dramaturg_attachment (job_id, number, kind, name, media_type, data, at) "
        "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        [(job_id, number, *item, clock.micros(now)) for number, item in zip(given, items, strict=True)],
    )
    if any(item.kind == LOG for item in items):
        cursor.execute(_TRIM, (job_id, caps.logs))
    return given


def attachments(cursor: sqlite3.Cursor, job_id: str) -> list[Attachment]:
    """What is attached, without bytes."""
    text = f"{_LISTED} FROM dramaturg_attachment WHERE job_id = ?1 ORDER BY number"
    return [_attachment(row) for row in cursor.execute(text, (job_id,))]


def attachment(cursor: sqlite3.Cursor, job_id: str, number: int) -> tuple[Attachment, bytes] | None:
    """One attachment with its bytes."""
    text = f"{_LISTED}, data FROM dramaturg_attachment WHERE job_id = ?1 AND number = ?2"
    row = cursor.execute(text, (job_id, number)).fetchone()
    return None if row is None else (_attachment(row[:-1]), row[-1])


def _attachment(row: Sequence[Any]) -> Attachment:
    return Attachment._make((*row[:-1], clock.from_micros(row[-1])))


def _event(row: Sequence[Any]) -> Event:
    event = Event._make(row)
    return event._replace(
        at=clock.from_micros(row[2]),
        run_at=clock.from_micros(row[13]),
        seconds=None if event.seconds is None else event.seconds / 1_000_000,
    )
