"""Decisions written on rows that are still as they were read, and the history that goes with them.

One statement for all decisions of a batch that differ in values alone: each statement that is run lets other threads go
ahead, and waits for them to let it go on.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple

import orjson
import structlog

from store import clock, wire
from store.contract import Change
from store.job import COLUMNS, HISTORY_KEPT, Entry, State
from store.sqlite.errors import Raised, code_of
from store.sqlite.rows import batch, in_micros, stored
from store.transitions import Write

#: What a write does to run_at: nothing, take the earlier one, or replace it.
_Move = Literal["", "earliest", "replace"]

_LAPSED: Final = " AND +job.leased_until < ?1"

#: The only names that statements are made of.
_NAMES: Final = {name: name for name in COLUMNS}

RECORD: Final = """
INSERT INTO dramaturg_history (job_id, at, kind, attempt, code, detail) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
"""

TRIM: Final = f"""
DELETE FROM dramaturg_history WHERE job_id = ?1 AND id <= (
  SELECT id FROM dramaturg_history WHERE job_id = ?1 ORDER BY id DESC LIMIT 1 OFFSET {HISTORY_KEPT})
"""


_STATES: Final = {state.value: f"'{state.value}'" for state in State}

#: Which of some rows are as they were read. Parameters: now, and an array of [id, revision, ...].
STANDS: Final = """
SELECT json_group_array(each.key) FROM json_each(?2) AS each CROSS JOIN dramaturg_job AS job
  ON job.id = each.value ->> 0 AND job.revision = each.value ->> 1
"""


class Shape(NamedTuple):
    """Decisions that one statement can write: they differ in few values alone."""

    plain: tuple[tuple[str, str], ...]  # columns that take the same in all of them, and how that is spelled
    columns: tuple[str, ...]
    stamps: tuple[str, ...]
    move: _Move
    lapsed: bool
    delete: bool


def swap(cursor: sqlite3.Cursor, changes: Sequence[Change], now: datetime) -> list[bool]:
    """Write what is still true at ``now``. Sqlite3's errors pass, but for those of the history."""
    stamp = clock.micros(now)
    written = [False] * len(changes)
    for round_ in wire.rounds(changes):
        shapes: dict[Shape, list[tuple[int, list[Any]]]] = {}
        for place, (id_, revision, decision) in round_:
            if decision.write is not None:
                shape, values = _shaped(decision.write, now)
                shapes.setdefault(shape, []).append((place, [id_, revision, *values]))
        for shape, rows in shapes.items():
            for place in _write(cursor, shape, rows, stamp):
                written[place] = True
    entries = [
        (id_, entry)
        for (id_, _, decision), done in zip(changes, written, strict=True)
        if done and decision.history and decision.write is not None and not decision.write.delete
        for entry in decision.history
    ]
    if entries:
        _record(cursor, entries, stamp)
    return written


def _shaped(write: Write, now: datetime) -> tuple[Shape, list[Any]]:
    if write.delete:
        return Shape((), (), (), "", write.lapsed, True), []
    # Each value that is taken out of the array costs as much as the rest of its column: most of a finish's are NULL.
    plain, columns, values = [], [], []
    for name, value in write.set.items():
        if value is None:
            plain.append((name, "NULL"))
        elif value is False or value == 0:
            plain.append((name, "0"))
        elif name == "state" and value in _STATES:
            plain.append((name, _STATES[value]))
        else:
            columns.append(name)
            values.append(stored(value))
    move: _Move = "earliest" if write.earliest else "replace"
    if write.run_in is not None:
        values.append(in_micros(now, write.run_in))
    elif write.run_at is not None:
        values.append(clock.micros(write.run_at))
    else:
        move = ""
    return Shape(tuple(plain), tuple(columns), write.stamps, move, write.lapsed, False), values


def _write(cursor: sqlite3.Cursor, shape: Shape, rows: list[tuple[int, list[Any]]], stamp: int) -> list[int]:
    """The places of those that were written."""
    asked = batch([values for _, values in rows])
    [(found,)] = cursor.execute(STANDS + (_LAPSED if shape.lapsed else ""), (stamp, asked))
    keys = orjson.loads(found)
    if keys:
        cursor.execute(statement(shape), (stamp, asked))
    return [rows[key][0] for key in keys]


@lru_cache(maxsize=256)
def statement(shape: Shape) -> str:
    """The statement for decisions of one shape, of which ``transitions`` has some thirty: one for a whole batch.

    Parameters: now, and an array of [id, revision, a value for each column, then run_at where there is a ``move``].
    A deleted row's history goes with it by a trigger.
    """
    guard = _LAPSED if shape.lapsed else ""
    if shape.delete:
        return (
            "DELETE FROM dramaturg_job AS job WHERE (id, revision) IN "
            f"(SELECT each.value ->> 0, each.value ->> 1 FROM json_each(?2) AS each){guard}"
        )
    sets = ["revision = job.revision + 1", "updated_at = ?1"]
    sets += [f"{_NAMES[name]} = {spelling}" for name, spelling in shape.plain]
    sets += [f"{_NAMES[name]} = each.value ->> {place}" for place, name in enumerate(shape.columns, start=2)]
    sets += [f"{_NAMES[name]} = ?1" for name in shape.stamps]  # where a column is named twice, SQLite takes the last
    last = f"each.value ->> {len(shape.columns) + 2}"
    sets += {"": [], "earliest": [f"run_at = min(run_at, {last})"], "replace": [f"run_at = {last}"]}[shape.move]
    return (
        f"UPDATE dramaturg_job AS job SET {', '.join(sets)} FROM json_each(?2) AS each "
        f"WHERE job.id = each.value ->> 0 AND job.revision = each.value ->> 1{guard}"
    )


def _record(cursor: sqlite3.Cursor, entries: Sequence[tuple[str, Entry]], stamp: int) -> None:
    job_ids = sorted({job_id for job_id, _ in entries})
    cursor.execute("SAVEPOINT dramaturg_history")
    try:
        cursor.executemany(
            RECORD,
            [
                (job_id, stamp, kind, attempt, code, orjson.dumps(dict(detail)).decode())
                for job_id, (kind, attempt, code, detail) in entries
            ],
        )
        cursor.executemany(TRIM, [(job_id,) for job_id in job_ids])
    except (*Raised, orjson.JSONEncodeError) as error:
        if not cursor.connection.in_transaction:
            raise  # a full disk and the like: SQLite has undone the rows as well
        cursor.execute("ROLLBACK TO dramaturg_history")
        structlog.get_logger("store").warning("job_history_failed", job_ids=job_ids, error=code_of(error))
    cursor.execute("RELEASE dramaturg_history")
