"""How a job and its moments are spelled in a row, and back."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, get_type_hints

import orjson

from store import clock
from store.job import COLUMNS, TIME_COLUMNS, Job

PARKED: Final = clock.micros(clock.PARKED)

#: All columns of a job, of the table under the name ``job``.
JOB: Final = ", ".join(f"job.{name}" for name in COLUMNS)

_TEXTS: Final = tuple(place for place, kind in enumerate(get_type_hints(Job).values()) if kind in (str, str | None))

#: The same on a caller's own connection, which may decode texts and declared types in any way: neither bytes nor
#: expressions are touched.
UNDECODED: Final = ", ".join(
    f"CAST(job.{name} AS BLOB)" if place in _TEXTS else f"job.{name} + 0" for place, name in enumerate(COLUMNS)
)

_TIMES: Final = tuple(place for place, name in enumerate(COLUMNS) if name in TIME_COLUMNS)
_STOPPING: Final = COLUMNS.index("stopping")


def now_or(moment: datetime | None) -> datetime:
    """The database's now, unless a test passes its own.

    SQLite's clock is this machine's. It is asked for here and not by ``julianday('now')``, which knows milliseconds:
    a row's first generation is its birth in microseconds, and rows can be made, ended and made again within one
    millisecond.
    """
    return clock.wall() if moment is None else moment


def job_of(row: Sequence[Any]) -> Job:
    """The job in a row that was read as ``JOB``."""
    values = list(row)
    for place in _TIMES:
        if values[place] is not None:
            values[place] = clock.from_micros(values[place])
    values[_STOPPING] = bool(values[_STOPPING])
    return Job._make(values)


def job_of_undecoded(row: Sequence[Any]) -> Job:
    """The job in a row that was read as ``UNDECODED``."""
    values = list(row)
    for place in _TEXTS:
        if values[place] is not None:
            values[place] = values[place].decode()
    return job_of(values)


@lru_cache(maxsize=64)  # a batch asks for one sum again and again
def in_micros(moment: datetime, seconds: float) -> int:
    """``moment`` plus ``seconds``, as it is stored."""
    return clock.micros(clock.later(moment, seconds) if seconds else moment)


def stored(value: Any) -> Any:
    """A column's value as SQLite takes it."""
    return clock.micros(value) if isinstance(value, datetime) else value


def batch(values: Sequence[Any]) -> str:
    """Plain values as one parameter for ``json_each``."""
    return orjson.dumps(values).decode()
