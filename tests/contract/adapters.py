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
from surrealdb import BlockingWsSurrealConnection, RecordID

from store import clock
from store.contract import Store, Tx
from store.job import COLUMNS, TIME_COLUMNS, Job
from store.open import open_store
from store.sqlite.store import SqliteStore
from store.surreal.address import parse
from store.surreal.store import SurrealStore
from store.surreal.transaction import Bundle

#: What the suite says in a caller's own words, as SQL has it. In braces: tables of theirs and ours, and parameters.
SQL = {
    "make orders": "CREATE TABLE {orders} (id integer PRIMARY KEY, note text NOT NULL)",
    "add order": "INSERT INTO {orders} (id, note) VALUES ({id}, {note})",
    "all orders": "SELECT id, note FROM {orders} ORDER BY id",
    "orders beyond": "SELECT id, note FROM {orders} WHERE id > {id} ORDER BY id",
    "remove order": "DELETE FROM {orders} WHERE id = {id}",
    "note on all": "UPDATE {orders} SET note = {note} RETURNING id, note",
    "note to change": "SELECT note FROM {orders} WHERE id = 1",
    "forget all jobs": "DELETE FROM {job}",
    "add history": "INSERT INTO {history} (job_id, at, kind, attempt, detail) VALUES ({id}, {at}, 'lost', 1, '{{}}')",
    "spoil history": "ALTER TABLE {history} RENAME TO somewhere_else",
    "count migrations": "SELECT count(*) FROM {migration}",
    "subjects": "SELECT DISTINCT subject FROM {migration}",
    "migration of the future": "INSERT INTO {migration} (subject, number, name, breaking, applied_at) "
    "SELECT {subject}, 999, 'from_the_future', {breaking}, applied_at FROM {migration} LIMIT 1",
}

_IN_ORDER = "(SELECT * FROM orders {where} ORDER BY id)"

#: The same in SurrealQL.
SURQL = {
    "make orders": "{ DEFINE TABLE orders SCHEMAFULL; DEFINE FIELD note ON orders TYPE string }",
    "add order": "CREATE type::record('orders', $id) SET note = $note RETURN NONE",
    "all orders": f"SELECT VALUE [record::id(id), note] FROM {_IN_ORDER.format(where='')}",
    "orders beyond": f"SELECT VALUE [record::id(id), note] FROM {_IN_ORDER.format(where='WHERE record::id(id) > $id')}",
    "remove order": "DELETE type::record('orders', $id) RETURN NONE",
    "note on all": "UPDATE orders SET note = $note RETURN VALUE [record::id(id), note]",
    "note to change": "SELECT VALUE [note] FROM orders:1",
    "forget all jobs": "DELETE dramaturg_job RETURN NONE",
    "add history": "CREATE type::record('dramaturg_history', [$id, 1]) SET at = $at, kind = 'lost', attempt = 1, "
    "detail = '{}' RETURN NONE",
    "spoil history": "DEFINE FIELD OVERWRITE at ON dramaturg_history TYPE int ASSERT $value < 0",
    "count migrations": "SELECT VALUE [count] FROM (SELECT count() FROM dramaturg_migration GROUP ALL)",
    "subjects": "array::distinct((SELECT VALUE subject FROM dramaturg_migration))",
    "migration of the future": "CREATE type::record('dramaturg_migration', [$subject, 999]) SET subject = $subject, "
    "number = 999, name = 'from_the_future', breaking = $breaking, applied_at = $now RETURN NONE",
}


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

    def say(self, name: str) -> str:
        """One of the statements of SQL, as this store has it."""
        tables = {table: self.table(table) for table in ("job", "history", "migration")}
        parameters = {name: self.parameter(name) for name in ("id", "at", "note", "subject", "breaking")}
        return SQL[name].format(orders=self.orders, **tables, **parameters)

    def insert(self, tx: Tx, jobs: Iterable[Job]) -> None:
        """Write rows as they are, past all verbs."""
        values = ", ".join(self.parameter(name) for name in COLUMNS)
        statement = f"INSERT INTO {self.table('job')} ({', '.join(COLUMNS)}) VALUES ({values})"
        for job in jobs:
            tx.execute(statement, {name: self._cell(name, value) for name, value in job._asdict().items()})

    def plant(self, store: Store, jobs: Iterable[Job]) -> None:
        """Empty the table of jobs, and fill it with these."""
        with store.transaction() as tx:
            tx.execute(self.say("forget all jobs"))
            self.insert(tx, jobs)

    def committing(self) -> Any:
        """A caller's connection that commits each statement by itself, where there is such a thing."""
        return self.connect()

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

    def committing(self) -> Any:
        return self.connect(isolation_level=None)

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

    def committing(self) -> Any:
        return self.connect(autocommit=True)

    def say(self, name: str) -> str:
        return super().say(name) + (" FOR UPDATE" if name == "note to change" else "")

    def join(self, **options: Any) -> Any:
        return psycopg.connect(self.url, **options)

    def table(self, name: str) -> str:
        return f"dramaturg.{name}"

    def parameter(self, name: str) -> str:
        return f"%({name})s"

    def spell(self, moment: datetime) -> Any:
        return "infinity" if moment == clock.PARKED else moment


class Surreal(Adapter):
    """A database of its own on the engine of this test process."""

    orders = "orders"
    nowhere = "ws://nobody:hidden-word@127.0.0.1:1/dramaturg/jobs"

    def open_hasty(self) -> Store:
        return self._keep(SurrealStore(self.url, patience=0.05))

    def committing(self) -> Any:
        connection = self._sdk()
        self._connections.append(connection)
        return connection

    def join(self, **options: Any) -> Any:
        return Bundle(self._sdk())

    def table(self, name: str) -> str:
        return f"dramaturg_{name}"

    def parameter(self, name: str) -> str:
        return f"${name}"

    def spell(self, moment: datetime) -> int:
        return clock.micros(moment)

    def say(self, name: str) -> str:
        return SURQL[name]

    def insert(self, tx: Tx, jobs: Iterable[Job]) -> None:
        rows = [
            {name: self._cell(name, value) for name, value in job._asdict().items()}
            | {"id": RecordID("dramaturg_job", job.id)}
            for job in jobs
        ]
        if rows:
            tx.execute("INSERT INTO dramaturg_job $rows RETURN NONE", {"rows": rows})

    def _sdk(self) -> BlockingWsSurrealConnection:
        address = parse(self.url)
        connection = BlockingWsSurrealConnection(address.server)
        connection.signin(dict(address.credentials))
        connection.use(address.namespace, address.database)
        return connection


ADAPTERS: dict[str, type[Adapter]] = {"sqlite": Sqlite, "postgres": Postgres, "surreal": Surreal}
