"""The store contract: what each database must be able to do, with what each verb guarantees.

Adapters hold no rules about jobs. A wake and a claim are single statements that are proven equal to ``transitions``;
everything else is ``read`` a row, let ``transitions.decide`` say what it becomes, and ``swap`` it in if its revision is
still the one that was read (``operations.py`` does that once, for all stores).

Common to all verbs:
- They take sequences and answer in the same order, one answer for each. An empty sequence costs nothing.
- ``now`` None means the database's clock; only tests and the testing kit pass a moment.
- Batches touch rows in the order of their ids, so that two batches never wait for each other in a circle.
- A connection that is lost, a server that is not there, a lock that can't be had in time: StoreUnavailable. Nothing of
  the call is known to have happened; every verb may be called again.
- Foreign errors never leave an adapter: see ``errors.py``.
"""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, NamedTuple, Protocol

from store.attachments import Attachment, Caps, Fence, Item
from store.events import Claim, Wake
from store.filters import Filter, Order, Tally
from store.job import Job, Recorded
from store.migrations import Subject
from store.outbox import Extent, Page
from store.transitions import Decision


class Woken(NamedTuple):
    """What a wake did: describes the stored job, never the request."""

    id: str
    state: str
    generation: int
    run_at: datetime
    created: bool  # a new row
    repeated: bool  # policy ``once`` found the original and left it untouched
    due: bool  # queued, and its run_at has come by the database's clock


class Claimed(NamedTuple):
    """``job`` is the row as claimed, or None: then ``held`` tells a row in somebody's open transaction (try again
    soon) from one that refuses (it is not due, not runnable, leased to another, or gone: drop it)."""

    job: Job | None
    held: bool = False


class Renewal(NamedTuple):
    """One sign of life of a run. ``seconds`` None leaves the lease as it is and only looks."""

    id: str
    lease_id: str
    attempt: int
    seconds: float | None = None
    progress: tuple[int, str | None] | None = None  # percent 0..100, message
    stopping: bool = False


class Renewed(NamedTuple):
    """``held``: the row still carries this lease and attempt. A row that an open transaction holds counts as held."""

    held: bool
    cancelled: bool = False  # a cancel stands


class Change(NamedTuple):
    """A decision to be written on the row of ``id`` if its revision is still ``revision``."""

    id: str
    revision: int
    decision: Decision


class Due(NamedTuple):
    """A row that may run now, as far as a reader can tell."""

    id: str
    queue: str
    priority: int
    run_at: datetime


class Document(NamedTuple):
    """A small keyed value with a version, for policies, queue controls and cron ticks."""

    kind: str
    key: str
    version: int
    body: Mapping[str, Any]


class Archived(NamedTuple):
    """A pruned row that was kept: ``job`` is its columns as a JSON object, where ``payload`` and ``result`` are null if
    only their gzip was kept. ``archived_at`` None: not written yet, then it is the database's now."""

    id: str
    generation: int
    domain: str
    queue: str
    job_type: str
    key: str | None
    job: str
    payload_gzip: bytes | None = None
    result_gzip: bytes | None = None
    archived_at: datetime | None = None


#: Where the archive begins: an id and a generation before all others.
ARCHIVE_START = ("00000000-0000-0000-0000-000000000000", 0)


class Term(NamedTuple):
    """An answer to ``lead``. ``settled`` tells that the term has been held without a gap for the grace asked for."""

    held: bool
    settled: bool = False


#: For ``put``: whatever version is there.
ANY_VERSION = -1


class Tx(Protocol):
    """A transaction of the store, or a caller's own connection inside one (``Store.adopt``).

    Work in it commits or vanishes with it. Nothing here begins, commits or rolls back.
    """

    def wake(self, wakes: Sequence[Wake], *, now: datetime | None = None) -> list[Woken]:
        """As ``Store.wake``, as part of this transaction."""
        ...

    def swap(self, changes: Sequence[Change], *, now: datetime | None = None) -> list[bool]:
        """As ``Store.swap``, as part of this transaction."""
        ...

    def read(self, ids: Sequence[str]) -> list[Job | None]:
        """As ``Store.read``, as this transaction sees the rows; locks nothing."""
        ...

    def put(self, document: Document, *, now: datetime | None = None) -> bool:
        """As ``Store.put``, as part of this transaction."""
        ...

    def archive(self, rows: Sequence[Archived], *, now: datetime | None = None) -> None:
        """Keep rows that this transaction deletes; the same id and generation again replaces what was kept, and an
        ``archived_at`` that is given stays."""
        ...

    def execute(self, statement: str, parameters: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """Run one statement of the caller's own, in this store's dialect, with ``:name`` parameters on SQLite and
        ``%(name)s`` on Postgres; answers all rows (empty where there are none). Errors of the database arrive as
        StoreUnavailable (connection, lock) or Refused (a constraint or the statement itself, by SQLSTATE or class)."""
        ...


class Signal(Protocol):
    """Tells that some row may have become due. Never needed for correctness: whoever waits also looks once a second."""

    def wait(self, timeout: float) -> bool:
        """Block until something changed or ``timeout`` seconds went by; True: look now."""
        ...

    def close(self) -> None:
        """Let go of the connection."""
        ...


class Store(Protocol):
    """A database of jobs. Safe to share between threads; after a fork a child makes its own connections."""

    dialect: str  # "postgres", "sqlite", "surreal": picks statement files of callers with statements of their own

    # --- the hot path

    def wake(self, wakes: Sequence[Wake], *, now: datetime | None = None, notify: bool = True) -> list[Woken]:
        """Upsert rows as ``transitions._wake`` says, in one transaction: all of them or none.

        ``notify`` False leaves out the change signal, for callers that ring Valkey themselves. The same id may come
        several times in one call; then it takes effect in order. Raises Refused where a row breaks a CHECK.
        """
        ...

    def due(
        self, *, limit: int = 100, after: Mapping[str, Due] | None = None, now: datetime | None = None
    ) -> list[Due]:
        """Rows that are runnable now, at most ``limit`` of each queue, each queue ordered by (priority, run_at, id).

        Runnable: queued, run_at has come, its type is published, its queue is not paused (for all domains or for the
        row's). One statement for all queues; the cost does not depend on rows that are not due. ``after`` pages on:
        for each queue named there only rows beyond that one, and queues that are not named are left out.
        """
        ...

    def claim(self, claims: Sequence[Claim], *, now: datetime | None = None) -> list[Claimed]:
        """Take rows as ``transitions._claim`` says, under the same predicate as ``due``; one statement when nothing is
        refused. Rows that another transaction has locked are skipped and answered ``held``. A repeated claim with the
        same lease id gets the same row again."""
        ...

    def renew(self, renewals: Sequence[Renewal], *, now: datetime | None = None) -> list[Renewed]:
        """Extend leases, write progress, mark ``stopping``: guarded by lease id, attempt and ``processing``, not by
        generation or revision. Never shortens a lease. Only ``stopping`` moves the revision. Progress never goes
        backwards within an attempt."""
        ...

    def swap(self, changes: Sequence[Change], *, now: datetime | None = None) -> list[bool]:
        """Write decisions on rows whose revision is unchanged (and, where it says ``lapsed``, whose lease still lies
        in the past); True for those that were written. One transaction, one statement where no history is written.

        History entries stand in a savepoint of their own: where that fails the rows are written all the same and
        ``job_history_failed`` is logged. The newest HISTORY_KEPT entries of each job are kept. Rows that another
        transaction has locked are skipped (False). A row that breaks a CHECK raises Refused, and nothing is written.
        A deleted row takes its history with it.
        """
        ...

    # --- reading and operating

    def read(self, ids: Sequence[str]) -> list[Job | None]:
        """Rows by id."""
        ...

    def find(
        self, filter: Filter, *, order: Order = "id", descending: bool = False, limit: int = 100,
        now: datetime | None = None,
    ) -> list[Job]:  # fmt: skip
        """Rows that match, at most ``limit``. ``claim`` orders by (priority, run_at, id)."""
        ...

    def tally(self, filter: Filter, *, now: datetime | None = None) -> list[Tally]:
        """Counts of the rows that match, a record for each (domain, queue, job type), ordered by them."""
        ...

    def history(self, job_id: str, *, limit: int = 50) -> list[Recorded]:
        """The newest entries of a job, newest first."""
        ...

    def archived(self, job_id: str) -> list[Archived]:
        """What was kept of a pruned job, newest generation first, at most 100."""
        ...

    def archive_page(self, after: tuple[str, int] = ARCHIVE_START, *, limit: int = 100) -> list[Archived]:
        """What was kept, by (id, generation), from behind ``after`` on."""
        ...

    def orphans(self, *, remove: bool = False, limit: int = 10_000) -> int:
        """How many history entries have no job, counted up to ``limit``; ``remove`` deletes those."""
        ...

    # --- documents and terms

    def get(self, kind: str, key: str) -> Document | None:
        """One document."""
        ...

    def list(self, kind: str) -> list[Document]:
        """All documents of a kind, ordered by key, at most 10,000."""
        ...

    def put(self, document: Document, *, now: datetime | None = None) -> bool:
        """Write a document if ``document.version`` is the stored one (0: only if there is none; ANY_VERSION: in any
        case); its version then becomes one more. False: somebody was faster, nothing was written."""
        ...

    def remove(self, kind: str, key: str) -> bool:
        """Take a document away, whatever its version; False: there was none."""
        ...

    def lead(self, name: str, holder: str, seconds: float, *, grace: float = 0, now: datetime | None = None) -> Term:
        """Take or prolong the term of ``name`` for ``seconds``: held if nobody has it, it ran out, or it is ours.

        ``settled`` stays False until ``grace`` seconds after the moment at which the term was taken up again after
        a vacancy longer than ``grace`` (and for a term that nobody ever had: at once), whoever holds it meanwhile.
        """
        ...

    def resign(self, name: str, holder: str, *, now: datetime | None = None) -> None:
        """Give the term back, if it is ours: the next ``lead`` by anybody gets it at once, and it counts as no gap
        until then."""
        ...

    # --- lifecycle events and attachments

    def arm(self) -> bool:
        """Make the database write lifecycle events while the document ('outbox', 'events') says ``on``, watch the
        limits of documents 'sla', and do neither at no cost otherwise. Safe while workers run; answers whether anything
        changed. Raises StoreUnavailable where a long transaction stands in the way."""
        ...

    def events(
        self, after: int | None, *, limit: int = 100, domain: str | None = None, queue: str | None = None,
        job_type: str | None = None,
    ) -> Page:  # fmt: skip
        """Events behind position ``after`` (None: from the oldest that is kept), in order, at most ``limit``.

        Nothing appears behind a position that was told, whenever it commits; a job's events are in the order in which
        they happened. Raises CursorTooOld where events behind ``after`` were pruned, and Refused where there is no such
        position yet.
        """
        ...

    def extent(self) -> Extent:
        """Which events are kept."""
        ...

    def prune_events(self, *, seconds: float, through: int, limit: int = 10_000, now: datetime | None = None) -> int:
        """Remove the oldest events, at most ``limit``: up to the first that is younger than ``seconds`` or lies beyond
        position ``through``. Answers how many."""
        ...

    def attach(
        self, job_id: str, items: Sequence[Item], *, caps: Caps | None = None, fence: Fence | None = None,
        now: datetime | None = None,
    ) -> builtins.list[int] | None:  # fmt: skip
        """Attach files and log lines to a job, all of them or none; answers their numbers. None: the row is not there,
        or ``fence`` does not hold it any more. Of log lines the newest are kept. Raises Refused where the files would
        go beyond ``caps``."""
        ...

    def attachments(self, job_id: str) -> builtins.list[Attachment]:
        """What is attached to a job, by number, without the bytes."""
        ...

    def attachment(self, job_id: str, number: int) -> tuple[Attachment, bytes] | None:
        """One attachment, with its bytes."""
        ...

    # --- transactions, changes, care

    def transaction(self) -> AbstractContextManager[Tx]:
        """A transaction that commits when the block ends and rolls back when it raises. It begins as a writer."""
        ...

    def adopt(self, connection: Any) -> Tx:
        """The caller's own driver connection (psycopg.Connection, sqlite3.Connection) inside its own transaction, or
        a Tx of ours, which comes back as it is. Raises UsageError for anything else, and for a connection that would
        commit each statement by itself; Refused for one to another database, where that can be seen."""
        ...

    def ring(self) -> None:
        """Give the change signal, once, for rows that a ``swap`` has made due."""
        ...

    def changes(self) -> Signal:
        """A signal of changes by others, on a connection of its own."""
        ...

    def migrate(self, subjects: Sequence[Subject] = ()) -> int:
        """Bring our schema and those of ``subjects`` up to date; racing migrators are harmless. Answers how many
        migrations were applied here. Raises SchemaTooNew where the database carries a migration, unknown to this
        program, that is marked breaking."""
        ...

    def check_schema(self, subjects: Sequence[Subject] = ()) -> None:
        """Raise SchemaTooNew as ``migrate`` does, and Refused where migrations are missing."""
        ...

    def ping(self) -> datetime:
        """One round trip; answers the database's now."""
        ...

    def close(self) -> None:
        """Close every connection; further calls open new ones."""
        ...
