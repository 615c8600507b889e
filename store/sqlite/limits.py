"""Limits on SQLite: read where there are any, and obeyed under the one write lock, which leaves nothing to race for."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import orjson

from store.contract import Document
from store.events import Wake
from store.limits import ALLOW, QUOTA, SPENT, Limits, exceeded, limits_of, not_allowed

#: One seek where there are none.
ANY: Final = "SELECT 1 FROM dramaturg_document WHERE kind IN ('allow', 'quota') LIMIT 1"

# As bytes: on a caller's own connection texts may be decoded in any way.
_ALL: Final = """
SELECT CAST(kind AS BLOB), CAST(key AS BLOB), CAST(body AS BLOB) FROM dramaturg_document WHERE kind IN (?1, ?2)
"""
_LIVE: Final = """
SELECT domain, owner, count(*) FROM dramaturg_job WHERE state = 'processing' AND leased_until > ?1 GROUP BY 1, 2
"""
_NAMES: Final = "SELECT domain, owner, queue, job_type FROM dramaturg_job WHERE id = ?1"
_STORED: Final = "SELECT CAST(owner AS BLOB), finished_at IS NOT NULL FROM dramaturg_job WHERE id = ?1"
_WAITING: Final = """
SELECT CAST(domain AS BLOB), CAST(owner AS BLOB), state = 'queued', count(*)
FROM dramaturg_job WHERE state = 'queued' OR state = 'processing' GROUP BY 1, 2, 3
"""
_SPENT: Final = "SELECT CAST(body AS BLOB) FROM dramaturg_document WHERE kind = ?1 AND key = ?2"
_SPEND: Final = """
INSERT INTO dramaturg_document (kind, key, version, body, updated_at) VALUES (?1, ?2, 1, ?3, ?4)
ON CONFLICT (kind, key) DO UPDATE SET version = version + 1, body = excluded.body, updated_at = excluded.updated_at
"""


def limits(cursor: sqlite3.Cursor) -> Limits | None:
    """The limits as this transaction sees them."""
    if cursor.execute(ANY).fetchone() is None:
        return None
    rows = cursor.execute(_ALL, (ALLOW, QUOTA)).fetchall()
    return limits_of(Document(kind.decode(), key.decode(), 1, orjson.loads(body)) for kind, key, body in rows)


class Flight:
    """What runs now, counted for the quotas that govern it; claims that are made meanwhile are counted too."""

    def __init__(self, cursor: sqlite3.Cursor, limits: Limits, stamp: int) -> None:
        self._cursor = cursor
        self._limits = limits
        self._most = limits.figures["max_in_flight"]
        self._live: Counter[str | None] = Counter()
        if self._most:
            for domain, owner, number in cursor.execute(_LIVE, (stamp,)).fetchall():
                self._live[limits.governing("max_in_flight", domain, owner)] += number

    def admits(self, domain: str, owner: str | None, queue: str, job_type: str) -> bool:
        """Whether a row of these may start: what it is is allowed, and its quota has a place."""
        if self._limits.fault(domain, queue, job_type) is not None:
            return False
        key = self._limits.governing("max_in_flight", domain, owner)
        return key is None or self._live[key] < self._most[key]

    def names(self, id_: str) -> tuple[Any, ...] | None:
        """The arguments of ``admits`` for a row."""
        found: tuple[Any, ...] | None = self._cursor.execute(_NAMES, (id_,)).fetchone()
        return found

    def started(self, domain: str, owner: str | None) -> None:
        """One more runs."""
        self._live[self._limits.governing("max_in_flight", domain, owner)] += 1


def admit(cursor: sqlite3.Cursor, wakes: Sequence[Wake], stamp: int) -> None:
    """Count wakes, of which no two have one id, before they are written. Raises NotAllowed and QuotaExceeded."""
    there = limits(cursor)
    if there is None:
        return
    adding: Counter[str] = Counter()
    submits: Counter[str] = Counter()
    for wake in wakes:
        if (fault := there.fault(wake.domain, wake.queue, wake.job_type)) is not None:
            raise not_allowed(fault, wake.domain)
        stored = cursor.execute(_STORED, (wake.id,)).fetchone()
        if stored is not None and wake.once:
            continue
        owner = wake.owner if stored is None or stored[0] is None else stored[0].decode()
        if (key := there.governing("submits_per_minute", wake.domain, owner)) is not None:
            submits[key] += 1
        if (stored is None or stored[1]) and (key := there.governing("max_queued", wake.domain, owner)) is not None:
            adding[key] += 1
    for key in adding.keys() | submits.keys():
        _spend(cursor, there, key, adding[key], submits[key], stamp)


def _spend(cursor: sqlite3.Cursor, there: Limits, key: str, adding: int, submits: int, stamp: int) -> None:
    row = cursor.execute(_SPENT, (SPENT, key)).fetchone()
    spent = {} if row is None else orjson.loads(row[0])
    minute = stamp // 60_000_000
    if spent.get("minute") != minute:
        spent = {"minute": minute, "submits": 0, "bound": None}
    spent["submits"] += submits
    if submits and spent["submits"] > (most := there.figures["submits_per_minute"][key]):
        raise exceeded("submits_per_minute", key, most)
    if adding:
        most = there.figures["max_queued"][key]
        # What was counted and added since can only be too much: counting is left out while even that is within.
        if spent["bound"] is None or spent["bound"] + adding > most:
            waiting = Counter[bool]()
            for domain, owner, queued, number in cursor.execute(_WAITING).fetchall():
                if there.governing("max_queued", domain.decode(), None if owner is None else owner.decode()) == key:
                    waiting[bool(queued)] += number
            if waiting[True] + adding > most:
                raise exceeded("max_queued", key, most)
            spent["bound"] = waiting.total()
        spent["bound"] += adding
    cursor.execute(_SPEND, (SPENT, key, orjson.dumps(spent).decode(), stamp))
