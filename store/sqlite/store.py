"""The verbs of the store contract on SQLite."""

from __future__ import annotations

import builtins
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final

from store import attachments, clock, migrations
from store.attachments import Attachment, Caps, Fence, Item
from store.contract import ARCHIVE_START, Archived, Change, Claimed, Document, Due, Renewal, Renewed, Term, Woken
from store.errors import Refused
from store.events import Claim, Wake
from store.filters import Filter, Order, Tally
from store.job import Job, Recorded
from store.migrations import Subject
from store.outbox import Extent, Page, page_of
from store.sqlite import archive, claims, documents, finding, lanes, migrating, outbox, place, swaps, triggers, wakes
from store.sqlite.changes import Changes
from store.sqlite.connections import Connections
from store.sqlite.rows import now_or
from store.sqlite.transaction import Transaction, adopt

_OLDEST: Final = (3, 38, 0)


class SqliteStore:
    """One file. Safe between threads and processes of one machine, and over forks; see ``contract.Store``."""

    dialect = "sqlite"

    #: SQLite has one writer at a time: nobody ever meets a row that is locked, so nothing is answered ``held``.
    gaps: frozenset[str] = frozenset({"row_locks", "quiet_wakes"})

    def __init__(self, url: str, *, patience: float = 10.0) -> None:
        """``patience``: seconds to wait for others' locks. Opens nothing. Raises UsageError and Refused."""
        if sqlite3.sqlite_version_info < _OLDEST:
            raise Refused(
                f"this Python has SQLite {sqlite3.sqlite_version}, and 3.38 is the oldest that will do: "
                "use a newer Python, or another store"
            )
        self._patience = patience
        self._connections = Connections(place.path_of(url), patience=patience)

    # --- the hot path

    def wake(
        self, wakes_: Sequence[Wake], *, now: datetime | None = None, notify: bool = True
    ) -> builtins.list[Woken]:  # fmt: skip
        """As the contract says. Whoever waits for changes sees any commit, so ``notify`` makes no difference."""
        if not wakes_:
            return []
        return self._connections.write(lambda cursor: wakes.wake(cursor, wakes_, now_or(now)))

    def due(
        self, *, limit: int = 100, after: Mapping[str, Due] | None = None, now: datetime | None = None
    ) -> builtins.list[Due]:  # fmt: skip
        """As the contract says; a few short statements on one snapshot rather than one long one."""
        return self._connections.snapshot(lambda cursor: lanes.due(cursor, limit, after, clock.micros(now_or(now))))

    def claim(self, claims_: Sequence[Claim], *, now: datetime | None = None) -> builtins.list[Claimed]:
        """As the contract says; ``held`` never comes, see ``gaps``."""
        if not claims_:
            return []
        return self._connections.write(lambda cursor: claims.claim(cursor, claims_, now_or(now)))

    def renew(self, renewals: Sequence[Renewal], *, now: datetime | None = None) -> builtins.list[Renewed]:
        """As the contract says; a batch that only looks takes no write lock."""
        if not renewals:
            return []
        run = self._connections.write if any(map(claims.writes, renewals)) else self._connections.read
        return run(lambda cursor: claims.renew(cursor, renewals, now_or(now)))

    def swap(self, changes: Sequence[Change], *, now: datetime | None = None) -> builtins.list[bool]:
        """As the contract says."""
        if not changes:
            return []
        return self._connections.write(lambda cursor: swaps.swap(cursor, changes, now_or(now)))

    # --- reading and operating

    def read(self, ids: Sequence[str]) -> builtins.list[Job | None]:
        """As the contract says."""
        return self._connections.read(lambda cursor: finding.read(cursor, ids)) if ids else []

    def find(
        self, filter: Filter, *, order: Order = "id", descending: bool = False, limit: int = 100,
        now: datetime | None = None,
    ) -> builtins.list[Job]:  # fmt: skip
        """As the contract says."""
        return self._connections.read(
            lambda cursor: finding.find(cursor, filter, order, descending, limit, clock.micros(now_or(now)))
        )

    def tally(self, filter: Filter, *, now: datetime | None = None) -> builtins.list[Tally]:
        """As the contract says."""
        return self._connections.read(lambda cursor: finding.tally(cursor, filter, clock.micros(now_or(now))))

    def history(self, job_id: str, *, limit: int = 50) -> builtins.list[Recorded]:
        """As the contract says."""
        return self._connections.read(lambda cursor: finding.history(cursor, job_id, limit))

    def archived(self, job_id: str) -> builtins.list[Archived]:
        """As the contract says."""
        return self._connections.read(lambda cursor: archive.read(cursor, job_id))

    def archive_page(self, after: tuple[str, int] = ARCHIVE_START, *, limit: int = 100) -> builtins.list[Archived]:
        """As the contract says."""
        return self._connections.read(lambda cursor: archive.page(cursor, after, limit))

    def orphans(self, *, remove: bool = False, limit: int = 10_000) -> int:
        """As the contract says."""
        if remove:
            return self._connections.write(lambda cursor: archive.remove_orphans(cursor, limit))
        return self._connections.read(lambda cursor: archive.count_orphans(cursor, limit))

    # --- documents and terms

    def get(self, kind: str, key: str) -> Document | None:
        """As the contract says."""
        return self._connections.read(lambda cursor: documents.get(cursor, kind, key))

    def list(self, kind: str) -> builtins.list[Document]:
        """As the contract says."""
        return self._connections.read(lambda cursor: documents.list_(cursor, kind))

    def put(self, document: Document, *, now: datetime | None = None) -> bool:
        """As the contract says."""
        return self._connections.write(lambda cursor: documents.put(cursor, document, now_or(now)))

    def remove(self, kind: str, key: str) -> bool:
        """As the contract says."""
        return self._connections.write(lambda cursor: documents.remove(cursor, kind, key))

    def lead(self, name: str, holder: str, seconds: float, *, grace: float = 0, now: datetime | None = None) -> Term:
        """As the contract says."""
        return self._connections.write(lambda cursor: documents.lead(cursor, name, holder, seconds, grace, now_or(now)))

    def resign(self, name: str, holder: str, *, now: datetime | None = None) -> None:
        """As the contract says."""
        self._connections.write(lambda cursor: documents.resign(cursor, name, holder, now_or(now)))

    # --- lifecycle events and attachments

    def arm(self) -> bool:
        """As the contract says."""
        return self._connections.write(triggers.arm)

    def events(
        self, after: int | None, *, limit: int = 100, domain: str | None = None, queue: str | None = None,
        job_type: str | None = None,
    ) -> Page:  # fmt: skip
        """As the contract says."""
        names = {"domain": domain, "queue": queue, "job_type": job_type}
        kept, found = self._connections.snapshot(lambda cursor: outbox.page(cursor, after, limit, names))
        return page_of(after, limit, kept, found)

    def extent(self) -> Extent:
        """As the contract says."""
        return self._connections.read(outbox.extent)

    def prune_events(self, *, seconds: float, through: int, limit: int = 10_000, now: datetime | None = None) -> int:
        """As the contract says."""
        return self._connections.write(lambda cursor: outbox.prune(cursor, seconds, through, limit, now_or(now)))

    def attach(
        self, job_id: str, items: Sequence[Item], *, caps: Caps | None = None, fence: Fence | None = None,
        now: datetime | None = None,
    ) -> builtins.list[int] | None:  # fmt: skip
        """As the contract says."""
        return attachments.fitting(
            self._connections.write(
                lambda cursor: outbox.attach(cursor, job_id, items, caps or Caps(), fence, now_or(now))
            )
        )

    def attachments(self, job_id: str) -> builtins.list[Attachment]:
        """As the contract says."""
        return self._connections.read(lambda cursor: outbox.attachments(cursor, job_id))

    def attachment(self, job_id: str, number: int) -> tuple[Attachment, bytes] | None:
        """As the contract says."""
        return self._connections.read(lambda cursor: outbox.attachment(cursor, job_id, number))

    # --- transactions, changes, care

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """As the contract says. It holds the one write lock of the database: keep it short."""
        with self._connections.transaction() as connection:
            transaction = Transaction(connection, self._connections)
            try:
                yield transaction
            finally:
                transaction.end()

    def adopt(self, connection: Any) -> Transaction:
        """As the contract says; the connection must be one to this store's file (else Refused)."""
        return adopt(connection, self._connections)

    def ring(self) -> None:
        """Nothing to do: whoever waits for changes sees any commit."""

    def changes(self) -> Changes:
        """As the contract says; a commit by this process counts too."""
        return Changes(Connections(self._connections.path, patience=self._patience))

    def migrate(self, subjects: Sequence[Subject] = ()) -> int:
        """As the contract says; makes the file and its directory where they are missing."""
        wanted, count = migrating.known(subjects), 0
        while self._connections.write(lambda cursor: migrating.apply_next(cursor, wanted), create=True):
            count += 1
        if count:
            self.arm()  # a newer version may word its triggers in another way
        return count

    def check_schema(self, subjects: Sequence[Subject] = ()) -> None:
        """As the contract says."""
        there = place.file_id(self._connections.path) is not None
        migrations.refuse_missing(
            migrating.known(subjects), self._connections.snapshot(migrating.applied) if there else []
        )

    def ping(self) -> datetime:
        """As the contract says."""
        self._connections.read(lambda cursor: cursor.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone())
        return now_or(None)

    def close(self) -> None:
        """As the contract says."""
        self._connections.close()
