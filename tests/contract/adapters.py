"""What the suite has to know of a store beyond its contract: how to reach it as a stranger would.

Another store joins the suite by a class here and an entry in ADAPTERS.
"""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterable
from datetime import datetime
from typing import Any, ClassVar

import psycopg

from store import clock
from store.contract import Store, Tx
from store.job import COLUMNS, TIME_COLUMNS, Job
from store.open import open_store
from store.sqlite.store import SqliteStore


class Adapter(ABC):
    """One empty database for one test, and every connection to it that has to be closed."""

    #: A table of a caller's own, named so that no session's settings matter.
    orders: ClassVar[str]
    #: A URL at which no database answers.
    nowhere: ClassVar[str]

    def __init__(self, url: str) -> None:
        self.url = url
        self._stores: list[Store] = []
        self._connections: list[Any] = []

    @property
    def gaps(self) -> frozenset[str]:
        """What the store says that it can't do."""
        gaps = type(self.open()).gaps  # type: ignore[attr-defined]
        assert isinstance(gaps, frozenset)
        return gaps

    @abstractmethod
    def join(self, **options: Any) -> Any:
        """A driver's connection as a caller of ours would make it, with transactions that he ends himself."""

    @abstractmethod
    def table(self, name: str) -> str:
        """One of our tables as statements name it."""

    @abstractmethod
    def parameter(self, name: str) -> str:
        """A named parameter as statements spell it."""

    @abstractmethod
    def spell(self, moment: datetime) -> Any:
        """A moment as a column holds it."""

    def open(self) -> Store:
        """One more store over this database, with connections of its own."""
        return self._keep(open_store(self.url))

    def open_hasty(self) -> Store:
        """One more store, which gives up at once where it would have to wait for a lock."""
        return self.open()

    def connect(self, **options: Any) -> Any:
        """One more connection of a caller's own."""
        self._connections.append(self.join(**options))
        return self._connections[-1]

    def close(self) -> None:
        """Close all that was opened."""
        for connection in self._connections:
            connection.close()
        for store in self._stores:
            store.close()

    def insert(self, tx: Tx, jobs: Iterable[Job]) -> None:
        """Write rows as they are, past all verbs."""
        values = ", ".join(self.parameter(name) for name in COLUMNS)
        statement = f"INSERT INTO {self.table('job')} ({', '.join(COLUMNS)}) VALUES ({values})"
        for job in jobs:
            tx.execute(statement, {name: self._cell(name, value) for name, value in job._asdict().items()})

    def plant(self, store: Store, jobs: Iterable[Job]) -> None:
        """Empty the table of jobs, and fill it with these."""
        with store.transaction() as tx:
            tx.execute(f"DELETE FROM {self.table('job')}")
            self.insert(tx, jobs)

    def _keep(self, store: Store) -> Store:
        self._stores.append(store)
        return store

    def _cell(self, name: str, value: Any) -> Any:
        return self.spell(value) if name in TIME_COLUMNS and value is not None else value


class Sqlite(Adapter):
    """A file of its own."""

    orders = "orders"
    nowhere = "sqlite:////nowhere/at/all/jobs.db"

    def open_hasty(self) -> Store:
        return self._keep(SqliteStore(self.url, patience=0.05))

    def join(self, **options: Any) -> Any:
        return sqlite3.connect(self.url.removeprefix("sqlite:///"), **options)

    def table(self, name: str) -> str:
        return f"dramaturg_{name}"

    def parameter(self, name: str) -> str:
        return f":{name}"

    def spell(self, moment: datetime) -> int:
        return clock.micros(moment)


class Postgres(Adapter):
    """A database of its own on the server of this test process."""

    orders = "public.orders"
    nowhere = "postgresql://nobody:hidden-word@127.0.0.1:1/jobs"

    def join(self, **options: Any) -> Any:
        return psycopg.connect(self.url, **options)

    def table(self, name: str) -> str:
        return f"dramaturg.{name}"

    def parameter(self, name: str) -> str:
        return f"%({name})s"

    def spell(self, moment: datetime) -> Any:
        return "infinity" if moment == clock.PARKED else moment


ADAPTERS: dict[str, type[Adapter]] = {"sqlite": Sqlite, "postgres": Postgres}
