"""The verbs of the store contract on Postgres."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final, TypeVar

from store import attachments, migrations
from store.attachments import Attachment, Caps, Fence, Item
from store.contract import ARCHIVE_START, Archived, Change, Claimed, Document, Due, Renewal, Renewed, Term, Woken
from store.errors import Refused
from store.events import Claim, Wake
from store.filters import Filter, Order, Tally
from store.job import Job, Recorded
from store.migrations import Subject
from store.outbox import SCANNED, Extent, Page, page_of
from store.postgres import archive, documents, finding, hot, migrating, outbox
from store.postgres.changes import CHANNEL, Changes
from store.postgres.connections import PATIENCE, Connection, Connections
from store.postgres.errors import worded
from store.postgres.transaction import Transaction, adopt
from store.postgres.values import rows

Answer = TypeVar("Answer")

_SCOPE: Final = "SELECT set_config('app.domain_allowlist', %(scope)s, true)"


class PostgresStore:
    """One database. Safe between threads and over forks; see ``contract.Store``. A pooler may stand between."""

    dialect = "postgres"

    #: Nothing of the contract is missing here.
    gaps: frozenset[str] = frozenset()

    def __init__(
        self,
        url: str,
        *,
        pool_size: int = 8,
        patience: float = PATIENCE,
        scope: str | None = None,
        bound: bool = False,
    ) -> None:
        """``pool_size``: connections at most, for this process; count one for each thread that may hold a transaction,
        and two more. ``patience``: seconds to wait for the answer to one statement. ``scope``: domains for row-level
        security, parted by commas, or ``*``; ``bound``: refuse to work where that does not bind us. Connects to
        nothing. Raises UsageError."""
        self._connections = Connections(url, pool_size, patience, scope)
        self._bound = bound

    # --- the hot path

    def wake(
        self, wakes: Sequence[Wake], *, now: datetime | None = None, notify: bool = True
    ) -> builtins.list[Woken]:  # fmt: skip
        """As the contract says; one statement where no id comes twice."""
        if not wakes:
            return []
        if len({wake.id for wake in wakes}) == len(wakes):
            return self._hot(lambda connection: hot.wake(connection, wakes, now, notify=notify))
        with self._connections.transaction() as connection, worded():
            return hot.wake(connection, wakes, now, notify=notify)

    def due(
        self, *, limit: int = 100, after: Mapping[str, Due] | None = None, now: datetime | None = None
    ) -> builtins.list[Due]:  # fmt: skip
        """As the contract says."""
        return self._hot(lambda connection: hot.due(connection, limit, after, now))

    def claim(self, claims: Sequence[Claim], *, now: datetime | None = None) -> builtins.list[Claimed]:
        """As the contract says."""
        return self._hot(lambda connection: hot.claim(connection, claims, now)) if claims else []

    def renew(self, renewals: Sequence[Renewal], *, now: datetime | None = None) -> builtins.list[Renewed]:
        """As the contract says."""
        return self._hot(lambda connection: hot.renew(connection, renewals, now)) if renewals else []

    def swap(self, changes: Sequence[Change], *, now: datetime | None = None) -> builtins.list[bool]:
        """As the contract says; one statement, history and all."""
        return self._hot(lambda connection: hot.swap(connection, changes, now)) if changes else []

    # --- reading and operating

    def read(self, ids: Sequence[str]) -> builtins.list[Job | None]:
        """As the contract says."""
        return self._run(lambda connection: finding.read(connection, ids)) if ids else []

    def find(
        self, filter: Filter, *, order: Order = "id", descending: bool = False, limit: int = 100,
        now: datetime | None = None,
    ) -> builtins.list[Job]:  # fmt: skip
        """As the contract says."""
        return self._run(lambda connection: finding.find(connection, filter, order, descending, limit, now))

    def tally(self, filter: Filter, *, now: datetime | None = None) -> builtins.list[Tally]:
        """As the contract says."""
        return self._run(lambda connection: finding.tally(connection, filter, now))

    def history(self, job_id: str, *, limit: int = 50) -> builtins.list[Recorded]:
        """As the contract says."""
        return self._run(lambda connection: finding.history(connection, job_id, limit))

    def archived(self, job_id: str) -> builtins.list[Archived]:
        """As the contract says."""
        return self._run(lambda connection: archive.read(connection, job_id))

    def archive_page(self, after: tuple[str, int] = ARCHIVE_START, *, limit: int = 100) -> builtins.list[Archived]:
        """As the contract says."""
        return self._run(lambda connection: archive.page(connection, after, limit))

    def orphans(self, *, remove: bool = False, limit: int = 10_000) -> int:
        """As the contract says."""
        return self._run(lambda connection: archive.orphans(connection, remove, limit))

    # --- documents and terms

    def get(self, kind: str, key: str) -> Document | None:
        """As the contract says."""
        return self._run(lambda connection: documents.get(connection, kind, key))

    def list(self, kind: str) -> builtins.list[Document]:
        """As the contract says."""
        return self._run(lambda connection: documents.list_(connection, kind))

    def put(self, document: Document, *, now: datetime | None = None) -> bool:
        """As the contract says."""
        return self._run(lambda connection: documents.put(connection, document, now))

    def remove(self, kind: str, key: str) -> bool:
        """As the contract says."""
        return self._run(lambda connection: documents.remove(connection, kind, key))

    def lead(self, name: str, holder: str, seconds: float, *, grace: float = 0, now: datetime | None = None) -> Term:
        """As the contract says."""
        return self._run(lambda connection: documents.lead(connection, name, holder, seconds, grace, now))

    def resign(self, name: str, holder: str, *, now: datetime | None = None) -> None:
        """As the contract says."""
        self._run(lambda connection: documents.resign(connection, name, holder, now))

    # --- lifecycle events and attachments

    def arm(self) -> bool:
        """As the contract says."""
        return self._run(outbox.arm)

    def events(
        self, after: int | None, *, limit: int = 100, domain: str | None = None, queue: str | None = None,
        job_type: str | None = None,
    ) -> Page:  # fmt: skip
        """As the contract says."""
        names = {"domain": domain, "queue": queue, "job_type": job_type}
        self._run(outbox.number)
        kept, found = self._run(lambda connection: outbox.page(connection, after, limit, SCANNED, names))
        return page_of(after, limit, kept, found)

    def extent(self) -> Extent:
        """As the contract says."""
        while self._run(outbox.number) == outbox.NUMBERED:
            pass
        return self._run(outbox.extent)

    def prune_events(self, *, seconds: float, through: int, limit: int = 10_000, now: datetime | None = None) -> int:
        """As the contract says."""
        return self._run(lambda connection: outbox.prune(connection, seconds, through, limit, now))

    def attach(
        self, job_id: str, items: Sequence[Item], *, caps: Caps | None = None, fence: Fence | None = None,
        now: datetime | None = None,
    ) -> builtins.list[int] | None:  # fmt: skip
        """As the contract says."""
        given = self._run(lambda connection: outbox.attach(connection, job_id, items, caps or Caps(), fence, now))
        return attachments.fitting(given)

    def attachments(self, job_id: str) -> builtins.list[Attachment]:
        """As the contract says."""
        return self._run(lambda connection: outbox.attachments(connection, job_id))

    def attachment(self, job_id: str, number: int) -> tuple[Attachment, bytes] | None:
        """As the contract says."""
        return self._run(lambda connection: outbox.attachment(connection, job_id, number))

    # --- transactions, changes, care

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """As the contract says. It holds row locks and one connection of the pool: keep it short."""
        with self._connections.transaction() as connection:
            transaction = Transaction(connection)
            try:
                yield transaction
            finally:
                transaction.end()

    def adopt(self, connection: Any) -> Transaction:
        """As the contract says; nothing of the caller's connection is changed."""
        adopted = adopt(connection)
        if self._connections.scope is not None and adopted is not connection:
            with worded():
                rows(
                    connection,
                    "SELECT set_config('app.domain_allowlist', %(scope)s, true)",
                    {"scope": self._connections.scope},
                )
        return adopted

    def ring(self) -> None:
        """As the contract says."""
        self._run(lambda connection: rows(connection, f"SELECT FROM pg_notify('{CHANNEL}', '')"))

    def changes(self) -> Changes:
        """As the contract says; what others wake with ``notify`` or by ``dramaturg.wake(...)`` is heard."""
        return Changes(self._connections)

    def migrate(self, subjects: Sequence[Subject] = ()) -> int:
        """As the contract says. Raises Refused where the user may not create."""
        wanted, count = migrating.known(subjects), 0
        connection = self._connections.connect(patience=migrating.PATIENCE)
        try:
            with worded():
                while migrating.apply_next(connection, wanted):
                    count += 1
        finally:
            connection.close()
        return count

    def check_schema(self, subjects: Sequence[Subject] = ()) -> None:
        """As the contract says; and Refused where row-level security does not bind us though it should, or hides every
        row because nobody said which domains are wanted."""
        migrations.refuse_missing(migrating.known(subjects), self._run(migrating.applied))
        [(binding,)] = self._run(lambda connection: rows(connection, "SELECT row_security_active('dramaturg.job')"))
        if self._bound and not binding:
            raise Refused(
                "JOBS_PG_RLS_ENABLE is set, but row-level security does not bind this user of the database: it wants "
                "Postgres 15, and a user who is no superuser and does not own the tables: a member of dramaturg_run"
            )
        if binding and self._connections.scope is None:
            raise Refused(
                "row-level security binds this user of the database, and no domains are named: set JOBS_DOMAINS to "
                "their names, or to * for all of them"
            )

    def ping(self) -> datetime:
        """As the contract says."""
        [(now,)] = self._run(lambda connection: rows(connection, "SELECT clock_timestamp()"))
        assert isinstance(now, datetime)
        return now

    def close(self) -> None:
        """As the contract says."""
        self._connections.close()

    def _hot(self, work: Callable[[Connection], Answer]) -> Answer:
        """``work`` by ``values.called`` alone, which brings the scope along."""
        with self._connections.lend() as connection, worded():
            return work(connection)

    def _run(self, work: Callable[[Connection], Answer]) -> Answer:
        if self._connections.scope is None:
            return self._hot(work)
        with self._connections.transaction() as connection, worded():
            return work(connection)
