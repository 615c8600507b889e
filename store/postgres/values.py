"""How values travel: ids and JSON as text, moments in UTC with ``infinity`` as PARKED.

All of it hangs on a cursor of ours, so that a caller's own connection keeps its adapters, row factory and settings.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final, TypeVar, cast

import psycopg
from psycopg.adapt import AdaptersMap, Buffer, Dumper, Loader, Transformer
from psycopg.cursor import Cursor
from psycopg.pq import Format, TransactionStatus
from psycopg.raw_cursor import RawCursor
from psycopg.rows import tuple_row
from psycopg.types.datetime import DatetimeDumper, TimestamptzLoader
from psycopg.types.string import TextBinaryLoader, TextLoader

from store.clock import PARKED
from store.job import COLUMNS, Job
from store.postgres.connections import Connection

_UUID_COLUMNS: Final = frozenset({"id", "lease_id", "ended_lease", "finish_token"})

#: A job's columns, for statements that call the row ``job``. The server spells ids: that is half the cost of doing it
#: here.
JOB: Final = ", ".join(f"job.{name}::text" if name in _UUID_COLUMNS else f"job.{name}" for name in COLUMNS)

_EPOCH: Final = datetime(2000, 1, 1, tzinfo=UTC)
_NEVER: Final = 2**63 - 1

Row = TypeVar("Row")


class _Moment(Loader):
    """Eight bytes of microseconds since 2000. Years that Python can't say are PARKED, or the first moment of all."""

    format = Format.BINARY

    def load(self, data: Buffer) -> datetime:
        micros = int.from_bytes(data, "big", signed=True)
        if micros == _NEVER:
            return PARKED
        try:
            return _EPOCH + timedelta(microseconds=micros)
        except OverflowError:
            return PARKED if micros > 0 else datetime.min.replace(tzinfo=UTC)


class _MomentText(TimestamptzLoader):
    """The same from text, for statements of callers."""

    def load(self, data: Buffer) -> datetime:
        if bytes(data) == b"infinity":
            return PARKED
        return super().load(data).astimezone(UTC)


class _MomentDumper(DatetimeDumper):
    """PARKED is ``infinity``."""

    def dump(self, obj: datetime) -> Buffer | None:
        return b"infinity" if obj == PARKED else super().dump(obj)

    def upgrade(self, obj: datetime, format: Any) -> Dumper:
        return self if obj.tzinfo else super().upgrade(obj, format)


def _adapters() -> AdaptersMap:
    adapters = AdaptersMap(psycopg.adapters)
    adapters.register_loader("timestamptz", _Moment)
    adapters.register_loader("timestamptz", _MomentText)
    adapters.register_dumper(datetime, _MomentDumper)
    for name in ("json", "jsonb", "uuid"):
        adapters.register_loader(name, TextLoader)
    adapters.register_loader("json", TextBinaryLoader)
    return adapters


_ADAPTERS: Final = _adapters()


class _Cursor(Cursor[Any]):
    """A cursor that knows nothing of its connection's adapters and row factory."""

    @property
    def adapters(self) -> AdaptersMap:
        return _ADAPTERS


class _Numbered(RawCursor[Any]):
    """The same for parameters that are called ``$1`` and so on."""

    @property
    def adapters(self) -> AdaptersMap:
        return _ADAPTERS


@lru_cache
def _scoped(statement: str) -> str:
    """The same with a parameter more: its scope is set while its moment, the one parameter that is cast to a
    timestamptz, is handed to the function that it calls."""
    last = max(int(number) for number in re.findall(r"\$(\d+)", statement))
    scoped, places = re.subn(r"(\$\d+)::timestamptz", rf"dramaturg.scoped(${last + 1}, \1::timestamptz)", statement)
    assert places == 1
    return scoped


class _Ours:
    """What psycopg's Transformer asks of a connection."""

    adapters = _ADAPTERS
    connection = None


_OURS: Final = _Ours()


def called(
    connection: psycopg.Connection[Any],
    statement: str,
    parameters: Sequence[str | None],
    make: Callable[[Sequence[Any]], Row],
) -> list[Row]:
    """The rows of a statement of the hot path, whose parameters are texts for ``$1`` and so on. In a transaction by
    itself, a connection of ours brings its scope along."""
    if isinstance(connection, Connection):
        if connection.scope is not None and connection.pgconn.transaction_status == TransactionStatus.IDLE:
            statement, parameters = _scoped(statement), [*parameters, connection.scope]
        sent = [None if text is None else text.encode() for text in parameters]
        result = connection.ask(statement.encode(), sent)
        transformer = Transformer(_OURS)
        transformer.set_pgresult(result)
        return transformer.load_rows(0, result.ntuples, cast(Any, make))
    with _Numbered(connection, row_factory=cast(Any, lambda _: make)) as cursor:
        cursor.execute(cast(Any, statement), parameters, prepare=False, binary=True)
        return cursor.fetchall()


def rows(
    connection: psycopg.Connection[Any], statement: str, parameters: Mapping[str, Any] | None = None
) -> list[tuple[Any, ...]]:
    """All rows of one statement of ours. Nothing is prepared in the server's session."""
    return _fetch(connection, statement, parameters, tuple, binary=True)


def jobs(connection: psycopg.Connection[Any], statement: str, parameters: Mapping[str, Any]) -> list[Job]:
    """The rows of a statement that answers ``JOB``."""
    return _fetch(connection, statement, parameters, Job._make, binary=True)


def plain_rows(
    connection: psycopg.Connection[Any], statement: str, parameters: Mapping[str, Any] | None
) -> list[tuple[Any, ...]]:
    """All rows of a statement of a caller's; text, as not every type has a binary form that psycopg reads."""
    return _fetch(connection, statement, parameters, tuple, binary=False)


def _fetch(
    connection: psycopg.Connection[Any],
    statement: str,
    parameters: Mapping[str, Any] | None,
    make: Callable[[Sequence[Any]], Row],
    *,
    binary: bool,
) -> list[Row]:
    factory = tuple_row if make is tuple else lambda _: make
    with _Cursor(connection, row_factory=cast(Any, factory)) as cursor:
        cursor.execute(statement, parameters, prepare=False, binary=binary)
        # Not ``cursor.description``: that makes an object for each column.
        return cursor.fetchall() if cursor.pgresult is not None and cursor.pgresult.nfields else []


def spelled(moment: datetime) -> str:
    """A moment inside JSON, read alike under every session's settings."""
    return "infinity" if moment == PARKED else moment.isoformat()
