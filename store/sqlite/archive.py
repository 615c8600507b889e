"""Pruned rows that are kept, and history that was left behind."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from store import clock
from store.archive import gzip64, ungzip64
from store.contract import Archived

_WRITE: Final = """
INSERT OR REPLACE INTO dramaturg_archive
  (id, generation, domain, queue, job_type, key, job, payload_gzip, result_gzip, archived_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
"""

_COLUMNS: Final = """
SELECT id, generation, domain, queue, job_type, key, job, payload_gzip, result_gzip, archived_at FROM dramaturg_archive
"""
_READ: Final = f"{_COLUMNS} WHERE id = ?1 ORDER BY generation DESC LIMIT 100"
_PAGE: Final = f"{_COLUMNS} WHERE (id, generation) > (?1, ?2) ORDER BY id, generation LIMIT ?3"

_ORPHANS: Final = """
SELECT id FROM dramaturg_history AS h
WHERE NOT EXISTS (SELECT 1 FROM dramaturg_job AS job WHERE job.id = h.job_id) LIMIT ?1
"""


def write(cursor: sqlite3.Cursor, kept: Sequence[Archived], now: datetime) -> None:
    """As ``Tx.archive``."""
    cursor.executemany(
        _WRITE,
        [
            (*row[:7], gzip64(row.payload_gzip), gzip64(row.result_gzip), clock.micros(row.archived_at or now))
            for row in kept
        ],
    )


def read(cursor: sqlite3.Cursor, job_id: str) -> list[Archived]:
    """As ``Store.archived``."""
    return _archived(cursor.execute(_READ, (job_id,)).fetchall())


def page(cursor: sqlite3.Cursor, after: tuple[str, int], limit: int) -> list[Archived]:
    """As ``Store.archive_page``."""
    return _archived(cursor.execute(_PAGE, (*after, max(limit, 0))).fetchall())


def count_orphans(cursor: sqlite3.Cursor, limit: int) -> int:
    """As ``Store.orphans``."""
    found = cursor.execute(f"SELECT count(*) FROM ({_ORPHANS})", (max(limit, 0),)).fetchone()
    return int(found[0])


def remove_orphans(cursor: sqlite3.Cursor, limit: int) -> int:
    """As ``Store.orphans``; answers how many are gone."""
    cursor.execute(f"DELETE FROM dramaturg_history WHERE id IN ({_ORPHANS})", (max(limit, 0),))
    return cursor.rowcount


def _archived(rows: list[tuple[Any, ...]]) -> list[Archived]:
    return [Archived._make((*row[:7], ungzip64(row[7]), ungzip64(row[8]), clock.from_micros(row[9]))) for row in rows]
