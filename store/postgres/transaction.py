"""A transaction as others see it: ours, or a caller's own connection inside one of theirs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from store.contract import Archived, Change, Document, Woken
from store.errors import UsageError
from store.events import Wake
from store.job import Job
from store.postgres import archive, documents, finding, hot
from store.postgres.errors import worded
from store.postgres.values import plain_rows


class Transaction:
    """See ``contract.Tx``. Begins, commits and rolls back nothing."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection: psycopg.Connection[Any] | None = connection

    def wake(self, wakes: Sequence[Wake], *, now: datetime | None = None) -> list[Woken]:
        """As the contract says; whoever waits for changes hears of it at the commit."""
        with worded():
            return hot.wake(self._open(), wakes, now)

    def swap(self, changes: Sequence[Change], *, now: datetime | None = None) -> list[bool]:
        """As the contract says."""
        with worded():
            return hot.swap(self._open(), changes, now)

    def read(self, ids: Sequence[str]) -> list[Job | None]:
        """As the contract says."""
        with worded():
            return finding.read(self._open(), ids)

    def put(self, document: Document, *, now: datetime | None = None) -> bool:
        """As the contract says."""
        with worded():
            return documents.put(self._open(), document, now)

    def archive(self, rows: Sequence[Archived], *, now: datetime | None = None) -> None:
        """As the contract says."""
        with worded():
            archive.write(self._open(), rows, now)

    def execute(self, statement: str, parameters: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """As the contract says. uuid, json and jsonb come as text, timestamptz in UTC with ``infinity`` as PARKED."""
        with worded():
            return plain_rows(self._open(), statement, parameters)

    def end(self) -> None:
        """It is over: whoever kept it can do nothing more with it."""
        self._connection = None

    def _open(self) -> psycopg.Connection[Any]:
        if self._connection is None:
            raise UsageError("this transaction is over: do its work inside the block that it was made for")
        return self._connection


def adopt(connection: Any) -> Transaction:
    """``connection`` as a Transaction. Raises UsageError for what is none."""
    if isinstance(connection, Transaction):
        return connection
    if isinstance(connection, psycopg.AsyncConnection):
        raise UsageError(
            "an AsyncConnection can't be used here: pass a psycopg.Connection, or call SELECT dramaturg.wake(...) on "
            "yours"
        )
    if not isinstance(connection, psycopg.Connection):
        raise UsageError(f"a transaction on Postgres is a psycopg.Connection, not a {type(connection).__name__}")
    status = connection.info.transaction_status
    if connection.closed or status == TransactionStatus.UNKNOWN:
        raise UsageError("this connection is closed: pass one that is open")
    if status == TransactionStatus.INERROR:
        raise UsageError("a statement of this connection's transaction has failed: roll it back first")
    if status == TransactionStatus.IDLE and connection.autocommit:
        raise UsageError(
            "this connection commits each statement by itself, so a wake would be part of nothing: wrap the work in "
            "`with connection.transaction():`, or connect without autocommit"
        )
    return Transaction(connection)
