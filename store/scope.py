"""A process that may see and change the jobs of some domains only: every verb of a store, within them.

What lies outside is not there: it is found by nobody, counted nowhere, and claimed, changed and woken by nobody. A
fleet of such processes has terms of its own (and keys of its own in Valkey, see ``valkey/keys.py``), so that it neither
waits for another fleet's scheduler nor takes the work out of its hands. On Postgres row-level security sees to the same
beneath (``postgres/schema/007``); elsewhere this is all there is, and ``Tx.execute`` runs whatever it is given.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final, cast

from store.attachments import Attachment
from store.contract import (
    ARCHIVE_START,
    Archived,
    Change,
    Claimed,
    Document,
    Due,
    Renewal,
    Renewed,
    Store,
    Term,
    Tx,
    Woken,
)
from store.errors import NotAllowed, Refused
from store.events import Claim, Wake
from store.filters import Filter, Order, Tally
from store.identity import SEPARATOR, name_of_scope
from store.job import Job, Recorded
from store.outbox import Page

#: Pages of due rows that one look turns at most: of a queue that it shares with other domains a fleet sees that far.
PAGES_MOST: Final = 50

#: Ids whose domain is remembered, since it never changes.
REMEMBERED: Final = 20_000

#: Documents that speak of no domain, and that every worker may write: what it says of itself.
_SHARED: Final = frozenset({"policy", "schedule", "consumer"})

#: What has to do with no row, or with no more than what the rows under the same scope say.
_OPEN: Final = frozenset(
    {"dialect", "gaps", "changes", "ring", "migrate", "check_schema", "ping", "close", "extent", "arm"}
)

_ORDERS: Final[dict[Order, Callable[[Job], Any]]] = {
    "id": lambda job: job.id,
    "claim": lambda job: (job.priority, job.run_at, job.id),
    "created": lambda job: (job.created_at, job.id),
    "updated": lambda job: (job.updated_at, job.id),
}


def document_domain(kind: str, key: str) -> str | None:
    """The domain that a document speaks of; None: of none."""
    parts = [*key.split(SEPARATOR), ""]
    if kind in ("quota", "spent", "flight"):
        return parts[0] or None
    return (parts[1] or None) if kind in ("queue", "allow", "sla") else None


class _Scoped:
    """What a store and a transaction have in common."""

    def __init__(self, real: Any, scope: Sequence[str], known: dict[str, bool] | None = None) -> None:
        self._real = real
        self._scope = tuple(scope)
        self._known = {} if known is None else known

    def _visible(self, ids: Sequence[str]) -> set[str]:
        """Those of ``ids`` whose rows are there and in scope."""
        if len(self._known) > REMEMBERED:
            self._known.clear()
        seen = {id_: self._known[id_] for id_ in ids if id_ in self._known}
        if unknown := [id_ for id_ in dict.fromkeys(ids) if id_ not in seen]:
            found = {row.id: row.domain in self._scope for row in self._real.read(unknown) if row is not None}
            self._known.update(found)
            seen |= found
        return {id_ for id_, inside in seen.items() if inside}

    def _admitted(self, wakes: Sequence[Wake]) -> Sequence[Wake]:
        for wake in wakes:
            if wake.domain not in self._scope:
                raise NotAllowed(
                    f"the domain {wake.domain!r} is outside of what this process may wake: name it in JOBS_DOMAINS"
                )
        return wakes

    def _may_read(self, kind: str, key: str) -> bool:
        domain = document_domain(kind, key)
        return domain is None or domain in self._scope

    def _may_write(self, kind: str, key: str) -> bool:
        domain = document_domain(kind, key)
        return kind in _SHARED if domain is None else domain in self._scope

    def _written(self, document: Document) -> Document:
        if not self._may_write(document.kind, document.key):
            raise NotAllowed(
                f"this process works for {', '.join(self._scope)} alone (JOBS_DOMAINS): what holds for other domains, "
                "or for all of them, is changed by one that works for all"
            )
        return document

    # --- verbs of both

    def wake(self, wakes: Sequence[Wake], *, now: datetime | None = None, **options: Any) -> list[Woken]:
        """As the contract says; raises NotAllowed for another domain, and nothing is changed."""
        woken: list[Woken] = self._real.wake(self._admitted(wakes), now=now, **options)
        return woken

    def swap(self, changes: Sequence[Change], *, now: datetime | None = None) -> list[bool]:
        """As the contract says; False for a row of another domain."""
        inside = self._visible([change.id for change in changes])
        written = iter(self._real.swap([change for change in changes if change.id in inside], now=now))
        return [change.id in inside and next(written) for change in changes]

    def read(self, ids: Sequence[str]) -> list[Job | None]:
        """As the contract says; None for a row of another domain."""
        rows: list[Job | None] = self._real.read(ids)
        return [None if row is None or row.domain not in self._scope else row for row in rows]

    def put(self, document: Document, *, now: datetime | None = None) -> bool:
        """As the contract says; raises NotAllowed for what holds for others as well."""
        done: bool = self._real.put(self._written(document), now=now)
        return done


class _ScopedTx(_Scoped):
    """See ``contract.Tx``."""

    def archive(self, rows: Sequence[Archived], *, now: datetime | None = None) -> None:
        """As the contract says."""
        if any(row.domain not in self._scope for row in rows):
            raise Refused("there is no such job")
        self._real.archive(rows, now=now)

    def execute(self, statement: str, parameters: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """As the contract says. A statement of the caller's own is bound by the database alone, if at all."""
        rows: list[tuple[Any, ...]] = self._real.execute(statement, parameters)
        return rows


class ScopedStore(_Scoped):
    """See ``contract.Store``; ``scope``: names of domains."""

    def __init__(self, real: Store, scope: Sequence[str]) -> None:
        super().__init__(real, scope)

    def __getattr__(self, name: str) -> Any:
        if name not in _OPEN:
            raise AttributeError(name)
        return getattr(self._real, name)

    # --- the hot path

    def due(
        self, *, limit: int = 100, after: Mapping[str, Due] | None = None, now: datetime | None = None
    ) -> builtins.list[Due]:  # fmt: skip
        """As the contract says; what others have due in the same queues is turned over, a page at a time."""
        kept: dict[str, builtins.list[Due]] = {}
        for _ in range(PAGES_MOST):
            page: builtins.list[Due] = self._real.due(limit=limit, after=after, now=now)
            inside = self._visible([one.id for one in page])
            seen: dict[str, builtins.list[Due]] = {}
            for one in page:
                seen.setdefault(one.queue, []).append(one)
            after = {}
            for queue, rows in seen.items():
                own = kept.setdefault(queue, [])
                own += [one for one in rows if one.id in inside][: limit - len(own)]
                if len(rows) == limit and len(own) < limit:
                    after[queue] = rows[-1]
            if not after:
                break
        return [one for queue in sorted(kept) for one in kept[queue]]

    def claim(self, claims: Sequence[Claim], *, now: datetime | None = None) -> builtins.list[Claimed]:
        """As the contract says; a row of another domain refuses."""
        inside = self._visible([claim.id for claim in claims])
        taken = iter(self._real.claim([claim for claim in claims if claim.id in inside], now=now))
        return [next(taken) if claim.id in inside else Claimed(None) for claim in claims]

    def renew(self, renewals: Sequence[Renewal], *, now: datetime | None = None) -> builtins.list[Renewed]:
        """As the contract says; a row of another domain is not held."""
        inside = self._visible([renewal.id for renewal in renewals])
        held = iter(self._real.renew([renewal for renewal in renewals if renewal.id in inside], now=now))
        return [next(held) if renewal.id in inside else Renewed(held=False) for renewal in renewals]

    # --- reading and operating

    def find(
        self, filter: Filter, *, order: Order = "id", descending: bool = False, limit: int = 100,
        now: datetime | None = None,
    ) -> builtins.list[Job]:  # fmt: skip
        """As the contract says, within the scope."""
        found = [
            job
            for each in self._narrowed(filter)
            for job in self._real.find(each, order=order, descending=descending, limit=limit, now=now)
        ]
        return sorted(found, key=_ORDERS[order], reverse=descending)[: max(limit, 0)]

    def tally(self, filter: Filter, *, now: datetime | None = None) -> builtins.list[Tally]:
        """As the contract says, within the scope."""
        return sorted(one for each in self._narrowed(filter) for one in self._real.tally(each, now=now))

    def history(self, job_id: str, *, limit: int = 50) -> builtins.list[Recorded]:
        """As the contract says."""
        return self._real.history(job_id, limit=limit) if self._visible([job_id]) else []

    def archive_page(self, after: tuple[str, int] = ARCHIVE_START, *, limit: int = 100) -> builtins.list[Archived]:
        """As the contract says; what is kept of others is turned over, a page at a time, up to the archive's end."""
        kept: builtins.list[Archived] = []
        while len(kept) < limit:
            page = self._real.archive_page(after, limit=limit)
            kept += [row for row in page if row.domain in self._scope]
            if len(page) < limit:
                break
            after = (page[-1].id, page[-1].generation)
        return kept[: max(limit, 0)]

    def archived(self, job_id: str) -> builtins.list[Archived]:
        """As the contract says."""
        return [row for row in self._real.archived(job_id) if row.domain in self._scope]

    def orphans(self, *, remove: bool = False, limit: int = 10_000) -> int:
        """None: what has no job has no domain."""
        return 0

    def _narrowed(self, filter: Filter) -> builtins.list[Filter]:
        if filter.domain is not None:
            return [filter] if filter.domain in self._scope else []
        return [filter._replace(domain=domain) for domain in self._scope]

    # --- documents and terms

    def get(self, kind: str, key: str) -> Document | None:
        """As the contract says; None for what speaks of another domain."""
        return self._real.get(kind, key) if self._may_read(kind, key) else None

    def list(self, kind: str) -> builtins.list[Document]:
        """As the contract says, without what speaks of other domains."""
        return [document for document in self._real.list(kind) if self._may_read(kind, document.key)]

    def remove(self, kind: str, key: str) -> bool:
        """As the contract says; raises NotAllowed for what holds for others as well."""
        self._written(Document(kind, key, 0, {}))
        return bool(self._real.remove(kind, key))

    def lead(self, name: str, holder: str, seconds: float, *, grace: float = 0, now: datetime | None = None) -> Term:
        """As the contract says: a term among those of the same scope."""
        return cast(Term, self._real.lead(self._own(name), holder, seconds, grace=grace, now=now))

    def resign(self, name: str, holder: str, *, now: datetime | None = None) -> None:
        """As the contract says."""
        self._real.resign(self._own(name), holder, now=now)

    def _own(self, name: str) -> str:
        return f"{name}@{name_of_scope(self._scope)}"

    # --- lifecycle events and attachments

    def events(
        self, after: int | None, *, limit: int = 100, domain: str | None = None, queue: str | None = None,
        job_type: str | None = None,
    ) -> Page:  # fmt: skip
        """As the contract says, without events of other domains."""
        asked = domain if domain is not None or len(self._scope) > 1 else self._scope[0]
        page: Page = self._real.events(after, limit=limit, domain=asked, queue=queue, job_type=job_type)
        return page._replace(events=[event for event in page.events if event.domain in self._scope])

    def prune_events(self, *, seconds: float, through: int, limit: int = 10_000, now: datetime | None = None) -> int:
        """Refused: events lie in one row for all domains."""
        raise NotAllowed("events are pruned by a process that works for all domains (JOBS_DOMAINS)")

    def attach(self, job_id: str, items: Any, **options: Any) -> builtins.list[int] | None:
        """As the contract says."""
        return self._real.attach(job_id, items, **options) if self._visible([job_id]) else None

    def attachments(self, job_id: str) -> builtins.list[Attachment]:
        """As the contract says."""
        return self._real.attachments(job_id) if self._visible([job_id]) else []

    def attachment(self, job_id: str, number: int) -> tuple[Attachment, bytes] | None:
        """As the contract says."""
        return self._real.attachment(job_id, number) if self._visible([job_id]) else None

    # --- transactions

    @contextmanager
    def transaction(self) -> Iterator[Tx]:
        """As the contract says."""
        with self._real.transaction() as tx:
            yield cast(Tx, _ScopedTx(tx, self._scope, self._known))

    def adopt(self, connection: Any) -> Tx:
        """As the contract says."""
        if isinstance(connection, _ScopedTx):
            return cast(Tx, connection)
        return cast(Tx, _ScopedTx(self._real.adopt(connection), self._scope, self._known))
