"""What is done to jobs, once for all stores: read, decide, swap, and again where somebody was faster.

``transitions`` decides, a store compares and sets. Every loop here is bounded; what it could not settle is told.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

from store.archive import Archiving, kept
from store.contract import Change, Document, Store, Tx
from store.errors import Refused, StoreUnavailable, UsageError
from store.events import Cancel, Event, Failure, Finish, Kind, Reclaim, Requeue, Reschedule
from store.filters import Filter
from store.job import Job, State
from store.policy import Policy
from store.transitions import Answer, Decision, decide

#: How often a decision is made anew for a row that keeps changing or stays locked, before the caller hears of it.
ROUNDS = 5

#: Rows of one committed batch of a bulk action.
BATCH = 200


class Item(NamedTuple):
    """An event for one row; ``job`` is the row as last seen, or None to have it read first."""

    id: str
    event: Event
    policy: Policy
    job: Job | None = None


class Settled(NamedTuple):
    """What became of an item. ``decision`` None: the row was locked or kept changing; nothing was written."""

    decision: Decision | None
    job: Job | None  # the row that the decision was made on

    @property
    def answer(self) -> Answer | None:
        """What whoever sent the event hears; None: try again."""
        return None if self.decision is None else self.decision.answer


Swap = Callable[[Sequence[Change]], list[bool]]


def settle(
    store: Store, items: Sequence[Item], *, now: datetime | None = None, swap: Swap | None = None
) -> list[Settled]:  # fmt: skip
    """Bring events about, in as few statements as there can be: one when nobody interfered. ``swap``: in place of the
    store's own, for whoever has something to write beside it.

    A refused batch is retried row by row; a finish that the database refuses by itself becomes a coded failure, so
    one bad row holds up nobody. Raises StoreUnavailable: then some may have been settled, and all may be sent again.
    """
    settled: list[Settled | None] = [None] * len(items)
    swap = swap or partial(store.swap, now=now)
    rows: dict[int, Job | None] = {place: item.job for place, item in enumerate(items) if item.job is not None}
    open_ = list(range(len(items)))
    for _ in range(ROUNDS):
        unread = [place for place in open_ if place not in rows]
        rows.update(zip(unread, store.read([items[place].id for place in unread]), strict=True))
        changes: list[tuple[int, Change]] = []
        for place in open_:
            row = rows[place]
            decision = decide(row, items[place].event, items[place].policy)
            settled[place] = Settled(decision, row)
            if row is not None and decision.write is not None:
                changes.append((place, Change(row.id, row.revision, decision)))
        written = _swap(swap, items, changes, settled)
        open_ = [place for (place, _), done in zip(changes, written, strict=True) if not done]
        if not open_:
            break
        for place in open_:
            rows.pop(place, None)
    for place in open_:
        settled[place] = Settled(None, None)
    return [item for item in settled if item is not None]


def settle_in(tx: Tx, item: Item) -> Settled:
    """Bring one event about as part of a transaction. The row is locked from here to the commit, and not before.

    Raises StoreUnavailable where the row stays locked or keeps changing.
    """
    for _ in range(ROUNDS):
        row = tx.read([item.id])[0]
        decision = decide(row, item.event, item.policy)
        if row is None or decision.write is None or tx.swap([Change(row.id, row.revision, decision)])[0]:
            return Settled(decision, row)
    raise StoreUnavailable("the job's row is locked by another transaction, or changes all the time: try again")


def _swap(
    swap: Swap, items: Sequence[Item], changes: list[tuple[int, Change]], settled: list[Settled | None]
) -> list[bool]:  # fmt: skip
    try:
        return swap([change for _, change in changes])
    except Refused:
        if len(changes) > 1:
            return [_swap(swap, items, [pair], settled)[0] for pair in changes]
    # This one alone is refused by the database: what it wanted to write can't be kept. For a finish that is a failed
    # attempt like any other; anything else is a mistake of ours and the caller must hear of it.
    place, change = changes[0]
    item, row = items[place], settled[place]
    if not isinstance(item.event, Finish) or row is None or row.job is None:
        raise Refused(f"the database refused what {type(item.event).__name__.lower()} wanted to write on one row")
    failed = Finish(
        item.event.lease_id,
        item.event.attempt,
        item.event.generation,
        Kind.RETRY,
        item.event.jitter,
        failure=Failure.of_code("outcome_refused"),
    )
    decision = decide(row.job, failed, item.policy)
    settled[place] = Settled(decision, row.job)
    return swap([change._replace(decision=decision)])


def policies(store: Store) -> dict[str, Policy]:
    """Every published policy by job type; a document that can't be read is left out (its rows wait, visibly)."""
    found = {}
    for document in store.list("policy"):
        if (policy := read_policy(document)) is not None:
            found[document.key] = policy
    return found


def read_policy(document: Document) -> Policy | None:
    """The policy in a document; None where a newer or foreign program wrote something that we can't read."""
    try:
        return Policy.from_document(dict(document.body))
    except (UsageError, TypeError):
        return None


class Swept(NamedTuple):
    """What a sweep for lost leases took back, what the database refused to take back, and where the next one goes on
    (None: from the start)."""

    taken: list[Settled]
    refused: list[Job]
    last_id: str | None


def reclaim(store: Store, *, limit: int = 100, after_id: str | None = None, now: datetime | None = None) -> Swept:
    """Take back up to ``limit`` rows whose lease has run out; rows that are renewed meanwhile are left alone."""
    lapsed = store.find(
        Filter(states=(State.PROCESSING,), lapsed=True, after_id=after_id), order="id", limit=limit, now=now
    )
    if not lapsed:
        return Swept([], [], None)
    known = policies(store)
    changes, decisions = [], []
    for job in lapsed:
        policy = known.get(job.job_type) or Policy(job.job_type)
        decision = decide(job, Reclaim(job.lease_id or "", random.random()), policy)
        decisions.append(Settled(decision, job))
        changes.append(Change(job.id, job.revision, decision))
    refused: list[Job] = []
    try:
        written = store.swap(changes, now=now)
    except Refused:
        # One row that the database refuses must not keep the others: they go one by one, and it stays, visibly.
        written = []
        for job, change in zip(lapsed, changes, strict=True):
            try:
                written += store.swap([change], now=now)
            except Refused:
                written.append(False)
                refused.append(job)
    taken = [item for item, done in zip(decisions, written, strict=True) if done]
    return Swept(taken, refused, lapsed[-1].id if len(lapsed) == limit else None)


class Applied(NamedTuple):
    """What a bulk action did, or (dry run) would do. ``unsettled`` rows were locked, kept changing, or the database
    refuses what was to be written on them."""

    affected: int
    unchanged: int
    unsettled: int


#: What is done to each row: the same to all, or what follows from the row as it was found.
Action = Cancel | Requeue | Reschedule | Callable[[Job], Event]


def apply(
    store: Store,
    filter: Filter,
    action: Action,
    *,
    dry_run: bool = False,
    limit: int = 1_000_000,
    now: datetime | None = None,
    told: Callable[[Settled], None] | None = None,
    known: Mapping[str, Policy] = MappingProxyType({}),
    archive: Archiving | None = None,
    going: Callable[[], bool] = lambda: True,
) -> Applied:
    """Do ``action`` to every row that matches, in committed batches by id; a dry run decides and writes nothing.

    ``known``: the types' policies, where the action asks for them. ``archive``: keep what is deleted, in the same
    transaction. ``going`` is asked before each batch, and ends it all by False. What becomes due is signalled, once a
    batch. Raises Refused for a filter that narrows nothing down: that would be every row.
    """
    if not filter.narrows():
        raise Refused("this filter matches every row: name an id, domain, queue, type, key, owner or state")
    plain: Swap = partial(store.swap, now=now) if archive is None else partial(_swap_archiving, store, archive, now)
    refused: set[str] = set()
    affected = unchanged = unsettled = seen = 0
    page = filter
    while seen < limit and going():
        rows = store.find(page, order="id", limit=min(BATCH, limit - seen), now=now)
        if not rows:
            break
        seen += len(rows)
        events = [action(row) if callable(action) else action for row in rows]
        items = [
            Item(row.id, event, known.get(row.job_type) or Policy(row.job_type), row)
            for row, event in zip(rows, events, strict=True)
        ]
        if dry_run:
            done = [Settled(decide(item.job, item.event, item.policy), item.job) for item in items]
        else:
            done = settle(store, items, now=now, swap=partial(_swap_all_but, plain, refused))
            done = [Settled(None, row) if row.id in refused else one for row, one in zip(rows, done, strict=True)]
            if any(map(_made_due, done)):
                store.ring()
        for result in done:
            if result.answer is Answer.APPLIED:
                affected += 1
            elif result.answer is None:
                unsettled += 1
            else:
                unchanged += 1
            if told is not None:
                told(result)
        page = filter._replace(after_id=rows[-1].id)
    return Applied(affected, unchanged, unsettled)


def _swap_all_but(swap: Swap, refused: set[str], changes: Sequence[Change]) -> list[bool]:
    """Swap; of a row that the database refuses by itself only its id is noted: it must not keep its neighbours."""
    try:
        return swap(changes)
    except Refused:
        if len(changes) > 1:
            raise  # parted by whoever asked
        refused.add(changes[0].id)
        return [True]


def _made_due(settled: Settled) -> bool:
    """It is queued by now, and may be due at once: a signal too many only costs a look."""
    write = settled.decision.write if settled.decision is not None else None
    if write is None or settled.decision is None or settled.decision.state != State.QUEUED:
        return False
    return write.run_at is not None or (write.run_in is not None and write.run_in <= 0)


def _swap_archiving(
    store: Store, how: Archiving, now: datetime | None, changes: Sequence[Change]
) -> list[bool]:  # fmt: skip
    """Swap, and keep the rows that are deleted, all in one transaction."""
    leaving = [change.id for change in changes if change.decision.write is not None and change.decision.write.delete]
    with store.transaction() as tx:
        rows = {row.id: row for row in tx.read(leaving) if row is not None}
        written = tx.swap(changes, now=now)
        gone = {change.id for change, done in zip(changes, written, strict=True) if done}
        tx.archive([kept(row, how) for id_, row in rows.items() if id_ in gone], now=now)
    return written
