"""The verbs of the store contract on SurrealDB."""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from store import attachments, clock, migrations
from store.attachments import Attachment, Caps, Fence, Item
from store.contract import ARCHIVE_START, Archived, Change, Claimed, Document, Due, Renewal, Renewed, Term, Woken
from store.events import Claim, Wake
from store.filters import Filter, Order, Tally
from store.job import Job, Recorded
from store.migrations import Subject
from store.outbox import Extent, Page, page_of
from store.surreal import archive, claims, documents, finding, lanes, migrating, outbox, swaps, wakes
from store.surreal.address import parse
from store.surreal.changes import Changes
from store.surreal.connections import PATIENCE, Connections
from store.surreal.requests import Step, read, write
from store.surreal.rows import job_of
from store.surreal.transaction import Transaction, adopt, committed


class SurrealStore:
    """One database of a server. Safe between threads and processes, and over forks; see ``contract.Store``."""

    dialect = "surreal"

    #: SurrealDB locks no row: nobody waits, nothing is answered ``held``, and of two transactions that are in each
    #: other's way the second to commit does its work again or, where it was told something else, is refused.
    gaps: frozenset[str] = frozenset({"locks"})

    def __init__(self, url: str, *, pool_size: int = 8, patience: float = PATIENCE) -> None:
        """``pool_size``: connections at most, for this process. ``patience``: seconds to wait for the answer to one
        request, and for others' transactions to be out of the way. Connects to nothing. Raises UsageError."""
        self._connections = Connections(parse(url), size=pool_size, patience=patience)

    # --- the hot path

    def wake(
        self, wakes_: Sequence[Wake], *, now: datetime | None = None, notify: bool = True
    ) -> builtins.list[Woken]:  # fmt: skip
        """As the contract says."""
        if not wakes_:
            return []
        return wakes.answers(wakes_, self._write(wakes.step(wakes_, notify=notify), now))

    def due(
        self, *, limit: int = 100, after: Mapping[str, Due] | None = None, now: datetime | None = None
    ) -> builtins.list[Due]:  # fmt: skip
        """As the contract says; a request for each queue."""
        found: builtins.list[Due] = []
        if after is not None:
            for step in lanes.pages(after, limit):
                queue, rows = self._read(step, now)
                found += lanes.due_of(queue, rows, limit)
            return found
        answer = self._read(lanes.first("", limit), now)
        while answer is not None:
            queue, rows = answer
            found += lanes.due_of(queue, rows, limit)
            answer = self._read(lanes.first(lanes.after_queue(queue), limit), now)
        return found

    def claim(self, claims_: Sequence[Claim], *, now: datetime | None = None) -> builtins.list[Claimed]:
        """As the contract says; ``held`` never comes, see ``gaps``."""
        return claims.claimed(claims_, self._write(claims.claim(claims_), now)) if claims_ else []

    def renew(self, renewals: Sequence[Renewal], *, now: datetime | None = None) -> builtins.list[Renewed]:
        """As the contract says."""
        if not renewals:
            return []
        run = self._write if any(map(claims.writes, renewals)) else self._read
        return claims.renewed(run(claims.renew(renewals), now))

    def swap(self, changes: Sequence[Change], *, now: datetime | None = None) -> builtins.list[bool]:
        """As the contract says."""
        return swaps.swap(lambda step: self._write(step, now), changes)

    # --- reading and operating

    def read(self, ids: Sequence[str]) -> builtins.list[Job | None]:
        """As the contract says."""
        return finding.jobs_of(ids, self._read(finding.read(ids), None)) if ids else []

    def find(
        self, filter: Filter, *, order: Order = "id", descending: bool = False, limit: int = 100,
        now: datetime | None = None,
    ) -> builtins.list[Job]:  # fmt: skip
        """As the contract says."""
        return [job_of(row) for row in self._read(finding.find(filter, order, descending, limit), now)]

    def tally(self, filter: Filter, *, now: datetime | None = None) -> builtins.list[Tally]:
        """As the contract says."""
        return finding.tallies(self._read(finding.tally(filter), now))

    def history(self, job_id: str, *, limit: int = 50) -> builtins.list[Recorded]:
        """As the contract says."""
        return finding.recorded(self._read(finding.history(job_id, limit), None))

    def archived(self, job_id: str) -> builtins.list[Archived]:
        """As the contract says."""
        return archive.archived(self._read(archive.read(job_id), None))

    def archive_page(self, after: tuple[str, int] = ARCHIVE_START, *, limit: int = 100) -> builtins.list[Archived]:
        """As the contract says."""
        return archive.archived(self._read(archive.page(after, limit), None))

    def orphans(self, *, remove: bool = False, limit: int = 10_000) -> int:
        """As the contract says."""
        step = archive.orphans(remove, limit)
        return int(self._write(step, None) if remove else self._read(step, None))

    # --- documents and terms

    def get(self, kind: str, key: str) -> Document | None:
        """As the contract says."""
        return documents.document_of(self._read(documents.get(kind, key), None))

    def list(self, kind: str) -> builtins.list[Document]:
        """As the contract says."""
        found = map(documents.document_of, self._read(documents.list_(kind), None))
        return [document for document in found if document is not None]

    def put(self, document: Document, *, now: datetime | None = None) -> bool:
        """As the contract says."""
        return bool(self._write(documents.put(document), now))

    def remove(self, kind: str, key: str) -> bool:
        """As the contract says."""
        return bool(self._write(documents.remove(kind, key), None))

    def lead(self, name: str, holder: str, seconds: float, *, grace: float = 0, now: datetime | None = None) -> Term:
        """As the contract says."""
        return documents.term_of(self._write(documents.lead(name, holder, seconds, grace), now))

    def resign(self, name: str, holder: str, *, now: datetime | None = None) -> None:
        """As the contract says."""
        self._write(documents.resign(name, holder), now)

    # --- lifecycle events and attachments

    def arm(self) -> bool:
        """As the contract says."""
        return bool(self._write(outbox.arm(), None))

    def events(
        self, after: int | None, *, limit: int = 100, domain: str | None = None, queue: str | None = None,
        job_type: str | None = None,
    ) -> Page:  # fmt: skip
        """As the contract says; a request more where events have no position yet."""
        if self._read(outbox.waiting(), None):
            self._write(outbox.number(), None)
        names = {"domain": domain, "queue": queue, "job_type": job_type}
        kept, found = outbox.page_of(self._read(outbox.page(after, limit, names), None))
        return page_of(after, limit, kept, found)

    def extent(self) -> Extent:
        """As the contract says."""
        while self._write(outbox.number(), None) == outbox.NUMBERED:
            pass
        return Extent(*self._read(outbox.extent(), None))

    def prune_events(self, *, seconds: float, through: int, limit: int = 10_000, now: datetime | None = None) -> int:
        """As the contract says."""
        return int(self._write(outbox.prune(seconds, through, limit), now))

    def attach(
        self, job_id: str, items: Sequence[Item], *, caps: Caps | None = None, fence: Fence | None = None,
        now: datetime | None = None,
    ) -> builtins.list[int] | None:  # fmt: skip
        """As the contract says."""
        return attachments.fitting(self._write(outbox.attach(job_id, items, caps or Caps(), fence), now))

    def attachments(self, job_id: str) -> builtins.list[Attachment]:
        """As the contract says."""
        return builtins.list(map(outbox.attachment_of, self._read(outbox.attachments(job_id), None)))

    def attachment(self, job_id: str, number: int) -> tuple[Attachment, bytes] | None:
        """As the contract says."""
        row = self._read(outbox.attachment(job_id, number), None)
        return None if row is None else (outbox.attachment_of(row[:-1]), bytes(row[-1]))

    # --- transactions, changes, care

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """As the contract says; it holds no lock, and its commit may be refused: see ``transaction.py``."""
        self._read(Step("true", {}), None)  # a server that isn't there is told at the beginning
        with committed(Transaction(self._ask, self._connections.patience, self._connections.turn)) as transaction:
            yield transaction

    def adopt(self, connection: Any) -> Transaction:
        """As the contract says; takes a ``Bundle`` over the caller's own connection."""
        return adopt(connection)

    def ring(self) -> None:
        """As the contract says."""
        self._write(Step("fn::dramaturg::ring()", {}), None)

    def changes(self) -> Changes:
        """As the contract says; what is woken with ``notify`` or by ``fn::wake`` is heard."""
        return Changes(Connections(self._connections.address, size=1, patience=self._connections.patience))

    def migrate(self, subjects: Sequence[Subject] = ()) -> int:
        """As the contract says."""
        wanted, count = migrating.known(subjects), 0
        migrating.define_ledger(self._connections)
        while (done := migrating.apply_next(self._connections, wanted)) is not False:
            count += done is True
        return count

    def check_schema(self, subjects: Sequence[Subject] = ()) -> None:
        """As the contract says."""
        migrations.refuse_missing(migrating.known(subjects), migrating.applied(self._connections))

    def ping(self) -> datetime:
        """As the contract says."""
        return clock.from_micros(self._read(Step("$now", {}), None))

    def close(self) -> None:
        """As the contract says."""
        self._connections.close()

    def _read(self, step: Step, now: datetime | None) -> Any:
        return read(self._connections, step, now)

    def _write(self, step: Step, now: datetime | None) -> Any:
        return write(self._connections, step, now)

    def _ask(self, statements: str, values: Mapping[str, Any]) -> Mapping[str, Any]:
        with self._connections.lend() as link:
            return link.query(statements, values)
