"""A store whose clock stands still until it is moved: the testing kit's, and nobody else's.

It is a real store with every ``now`` filled in. Nothing in the settings and nothing in a broker leads here: only
``InlineJobs`` makes one, over a database that no worker uses.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from typing import Any

from store.contract import (
    Change,
    Claimed,
    Document,
    Due,
    Renewal,
    Renewed,
    Signal,
    Store,
    Term,
    Tx,
    Woken,
)
from store.events import Claim, Wake
from store.filters import Filter, Order, Tally
from store.job import Job, Recorded
from store.migrations import Subject


class FrozenTx:
    """A transaction in which it is the frozen moment."""

    def __init__(self, tx: Tx, now: datetime) -> None:
        self._tx = tx
        self._now = now

    def wake(self, wakes: Sequence[Wake], *, now: datetime | None = None) -> list[Woken]:
        """As ``Tx.wake``."""
        return self._tx.wake(wakes, now=now or self._now)

    def swap(self, changes: Sequence[Change], *, now: datetime | None = None) -> list[bool]:
        """As ``Tx.swap``."""
        return self._tx.swap(changes, now=now or self._now)

    def read(self, ids: Sequence[str]) -> list[Job | None]:
        """As ``Tx.read``."""
        return self._tx.read(ids)

    def put(self, document: Document, *, now: datetime | None = None) -> bool:
        """As ``Tx.put``."""
        return self._tx.put(document, now=now or self._now)

    def execute(self, statement: str, parameters: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """As ``Tx.execute``."""
        return self._tx.execute(statement, parameters)


class FrozenStore:
    """``store`` at the moment ``now``, which whoever made it may move."""

    def __init__(self, store: Store, now: datetime) -> None:
        self._store = store
        self.now = now
        self.dialect = store.dialect

    def wake(self, wakes: Sequence[Wake], *, now: datetime | None = None, notify: bool = True) -> list[Woken]:
        """As ``Store.wake``."""
        return self._store.wake(wakes, now=now or self.now, notify=notify)

    def due(
        self, *, limit: int = 100, after: Mapping[str, Due] | None = None, now: datetime | None = None
    ) -> builtins.list[Due]:
        """As ``Store.due``."""
        return self._store.due(limit=limit, after=after, now=now or self.now)

    def claim(self, claims: Sequence[Claim], *, now: datetime | None = None) -> builtins.list[Claimed]:
        """As ``Store.claim``."""
        return self._store.claim(claims, now=now or self.now)

    def renew(self, renewals: Sequence[Renewal], *, now: datetime | None = None) -> builtins.list[Renewed]:
        """As ``Store.renew``."""
        return self._store.renew(renewals, now=now or self.now)

    def swap(self, changes: Sequence[Change], *, now: datetime | None = None) -> builtins.list[bool]:
        """As ``Store.swap``."""
        return self._store.swap(changes, now=now or self.now)

    def read(self, ids: Sequence[str]) -> builtins.list[Job | None]:
        """As ``Store.read``."""
        return self._store.read(ids)

    def find(
        self, filter: Filter, *, order: Order = "id", descending: bool = False, limit: int = 100,
        now: datetime | None = None,
    ) -> builtins.list[Job]:  # fmt: skip
        """As ``Store.find``."""
        return self._store.find(filter, order=order, descending=descending, limit=limit, now=now or self.now)

    def tally(self, filter: Filter, *, now: datetime | None = None) -> builtins.list[Tally]:
        """As ``Store.tally``."""
        return self._store.tally(filter, now=now or self.now)

    def history(self, job_id: str, *, limit: int = 50) -> builtins.list[Recorded]:
        """As ``Store.history``."""
        return self._store.history(job_id, limit=limit)

    def get(self, kind: str, key: str) -> Document | None:
        """As ``Store.get``."""
        return self._store.get(kind, key)

    def list(self, kind: str) -> builtins.list[Document]:
        """As ``Store.list``."""
        return self._store.list(kind)

    def put(self, document: Document, *, now: datetime | None = None) -> bool:
        """As ``Store.put``."""
        return self._store.put(document, now=now or self.now)

    def lead(self, name: str, holder: str, seconds: float, *, grace: float = 0, now: datetime | None = None) -> Term:
        """As ``Store.lead``."""
        return self._store.lead(name, holder, seconds, grace=grace, now=now or self.now)

    def resign(self, name: str, holder: str, *, now: datetime | None = None) -> None:
        """As ``Store.resign``."""
        self._store.resign(name, holder, now=now or self.now)

    def transaction(self) -> AbstractContextManager[Tx]:
        """As ``Store.transaction``."""
        return self._transaction()

    @contextmanager
    def _transaction(self) -> Iterator[Tx]:
        with self._store.transaction() as tx:
            yield FrozenTx(tx, self.now)

    def adopt(self, connection: Any) -> Tx:
        """As ``Store.adopt``."""
        return connection if isinstance(connection, FrozenTx) else FrozenTx(self._store.adopt(connection), self.now)

    def changes(self) -> Signal:
        """As ``Store.changes``."""
        return self._store.changes()

    def migrate(self, subjects: Sequence[Subject] = ()) -> int:
        """As ``Store.migrate``."""
        return self._store.migrate(subjects)

    def check_schema(self, subjects: Sequence[Subject] = ()) -> None:
        """As ``Store.check_schema``."""
        self._store.check_schema(subjects)

    def ping(self) -> datetime:
        """The frozen moment, once the database has answered."""
        self._store.ping()
        return self.now

    def close(self) -> None:
        """As ``Store.close``."""
        self._store.close()
