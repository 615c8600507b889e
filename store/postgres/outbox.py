"""Lifecycle events and attachments on one connection; the rest stands in ``schema/004``."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import orjson
import psycopg

from store.attachments import Attachment, Caps, Fence, Item
from store.outbox import Event, Extent
from store.postgres.values import rows, spelled

Connection = psycopg.Connection[Any]

#: Events that get their positions in one transaction.
NUMBERED: Final = 10_000

_NUMBER: Final = f"SELECT dramaturg.number_events({NUMBERED})"

_EXTENT: Final = """
SELECT coalesce((SELECT min(o.position) FROM dramaturg.outbox AS o), c.last + 1), c.last
FROM dramaturg.outbox_counter AS c
"""

#: One statement, so that what is kept and what is read are of one moment.
_PAGE: Final = f"""
WITH extent (oldest, newest) AS ({_EXTENT})
SELECT x.oldest, x.newest, e.position, e.name, e.at, e.job_id::text, e.domain, e.queue, e.job_type, e.key, e.owner,
  e.state, e.attempt, e.generation, e.revision, e.run_at, e.code, e.took, e.allowed, e.request_id, e.trace
FROM extent x LEFT JOIN LATERAL (
  SELECT o.* FROM dramaturg.outbox AS o
  WHERE o.position > coalesce(%(after)s::bigint, x.oldest - 1)
    AND o.position <= coalesce(%(after)s::bigint, x.oldest - 1) + %(scanned)s
    AND (%(domain)s::text IS NULL OR o.domain = %(domain)s)
    AND (%(queue)s::text IS NULL OR o.queue = %(queue)s)
    AND (%(job_type)s::text IS NULL OR o.job_type = %(job_type)s)
  ORDER BY o.position LIMIT %(limit)s
) e ON true
ORDER BY e.position
"""

#: What is older, from the oldest on and up to the first that is not.
_PRUNE: Final = """
WITH doomed AS (
  SELECT o.position, o.at FROM dramaturg.outbox AS o
  WHERE o.position <= %(through)s ORDER BY o.position LIMIT %(limit)s
), kept AS (
  SELECT min(d.position) AS position FROM doomed d
  WHERE d.at >= coalesce(%(now)s::timestamptz, clock_timestamp()) - make_interval(secs => %(seconds)s)
), gone AS (
  DELETE FROM dramaturg.outbox AS o
  USING doomed d, kept k
  WHERE o.position = d.position AND (k.position IS NULL OR d.position < k.position)
  RETURNING 1
)
SELECT count(*) FROM gone
"""

_ATTACH: Final = (
    "SELECT dramaturg.attach(%(job)s::uuid, %(items)s::json, %(caps)s::json, %(fence)s::json, %(now)s::timestamptz)"
)
_LISTED: Final = (
    "SELECT a.job_id::text, a.number, a.kind, a.name, a.media_type, octet_length(a.data), a.at"
    "{data} FROM dramaturg.attachment AS a WHERE a.job_id = %(job)s::uuid {which} ORDER BY a.number"
)


def number(connection: Connection) -> int:
    """Give positions to what has been committed; how many got one."""
    [(given,)] = rows(connection, _NUMBER)
    assert isinstance(given, int)
    return given


def extent(connection: Connection) -> Extent:
    """What has a position."""
    [found] = rows(connection, _EXTENT)
    return Extent._make(found)


def page(
    connection: Connection, after: int | None, limit: int, scanned: int, names: dict[str, str | None]
) -> tuple[Extent, list[Event]]:
    """Events behind ``after``, of the ``scanned`` next ones, and what is kept."""
    found = rows(connection, _PAGE, names | {"after": after, "limit": limit, "scanned": scanned})
    return Extent(*found[0][:2]), [_event(row[2:]) for row in found if row[2] is not None]


def prune(connection: Connection, seconds: float, through: int, limit: int, now: datetime | None) -> int:
    """Remove the oldest events that are older than ``seconds``."""
    [(gone,)] = rows(connection, _PRUNE, {"seconds": float(seconds), "through": through, "limit": limit, "now": now})
    assert isinstance(gone, int)
    return gone


def arm(connection: Connection) -> bool:
    """Switch the triggers as the documents say."""
    return bool(rows(connection, "SELECT dramaturg.arm()")[0][0])


def attach(
    connection: Connection, job_id: str, items: Sequence[Item], caps: Caps, fence: Fence | None, now: datetime | None
) -> list[int] | None:
    """The numbers of what was attached; none where it does not fit, None where the row is gone or another's."""
    sent = {
        "job": job_id,
        "items": _json([item._asdict() | {"data": base64.b64encode(item.data).decode()} for item in items]),
        "caps": _json(caps._asdict()),
        "fence": None if fence is None else _json(fence._asdict()),
        "now": None if now is None else spelled(now),
    }
    [(given,)] = rows(connection, _ATTACH, sent)
    return None if given is None else list(given)


def attachments(connection: Connection, job_id: str) -> list[Attachment]:
    """What is attached, without bytes."""
    return [Attachment._make(row) for row in rows(connection, _LISTED.format(data="", which=""), {"job": job_id})]


def attachment(connection: Connection, job_id: str, number: int) -> tuple[Attachment, bytes] | None:
    """One attachment with its bytes."""
    text = _LISTED.format(data=", a.data", which="AND a.number = %(number)s")
    found = rows(connection, text, {"job": job_id, "number": number})
    return (Attachment._make(found[0][:-1]), bytes(found[0][-1])) if found else None


def _event(row: Sequence[Any]) -> Event:
    event = Event._make(row)
    return event if event.seconds is None else event._replace(seconds=event.seconds / 1_000_000)


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()
