"""How a job and its durations are spelled in a row, and back."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from surrealdb import RecordID

from store import clock
from store.job import COLUMNS, TIME_COLUMNS, Job

TABLE: Final = "dramaturg_job"

#: All columns of a job as one array, in their order.
JOB: Final = f"[{', '.join('record::id(id)' if name == 'id' else name for name in COLUMNS)}]"

#: The limits that there are, or NONE. Asking for the record first spares the server to look the function up.
LIMITS: Final = (
    "(IF record::exists(type::record('dramaturg_document', ['limited', 'here'])) "
    "{ fn::dramaturg::limits() } ELSE { NONE })"
)

PARKED: Final = clock.micros(clock.PARKED)

_TIMES: Final = tuple(place for place, name in enumerate(COLUMNS) if name in TIME_COLUMNS)

#: Microseconds that take any moment beyond the year 9999 and still fit into the database's integers with one added.
_ENDLESS: Final = 10**18


def job_of(row: Sequence[Any]) -> Job:
    """The job in an array that was read as ``JOB``."""
    values = list(row)
    for place in _TIMES:
        if values[place] is not None:
            values[place] = clock.from_micros(values[place])
    return Job._make(values)


def stored(value: Any) -> Any:
    """A column's value as the database takes it."""
    return clock.micros(value) if isinstance(value, datetime) else value


def record(id_: str) -> RecordID:
    """The record of a job."""
    return RecordID(TABLE, id_)


def micros(seconds: float) -> int:
    """A duration as the statements take it, rounded as Python rounds it."""
    try:
        delta = timedelta(seconds=seconds)
    except OverflowError:
        return _ENDLESS if seconds > 0 else -_ENDLESS
    exact = (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds
    return max(-_ENDLESS, min(exact, _ENDLESS))
