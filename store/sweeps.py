"""Bounded passes over the rows, for a job or a person alike: one sweep of a name at a time, whoever asks for it.

Whoever sweeps holds the store's term for it, prolonged before every batch and given back at the end; where the term was
lost in between, the pass ends. Of a leader that died the term runs out.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from itertools import product
from typing import Final, NamedTuple
from uuid import uuid4

from store.archive import Archiving
from store.contract import Document, Store
from store.events import Expire, Prune, Reclaim
from store.filters import Filter
from store.job import Job, State
from store.operations import Applied, Settled, apply, policies, read_policy

#: Seconds that a dead leader blocks a sweep at most.
TERM: Final = 60.0

#: Rows that one pass looks at most, unless told otherwise; the next one goes on.
MOST: Final = 1_000_000

#: Seconds after which a lease that has run out should have been taken back by any shift: beyond, nobody does.
LAPSED_TOO_LONG: Final = 60.0

DAY: Final = 86_400.0

Told = Callable[[Settled], None]


class Scope(NamedTuple):
    """Which rows a sweep is for: any of these names, or all where there are none."""

    domains: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    job_types: tuple[str, ...] = ()

    def filters(self) -> list[Filter]:
        """A filter for each combination."""
        return [Filter(domain=domain, queue=queue, job_type=job_type) for domain, queue, job_type in
                product(self.domains or (None,), self.queues or (None,), self.job_types or (None,))]  # fmt: skip


class Limits(NamedTuple):
    """How long a job may wait, counted from run_at, and run; in seconds, None for ever. ``fail`` or else cancel."""

    age: float | None = None
    runtime: float | None = None
    fail: bool = False


class Passed(NamedTuple):
    """What a pass did, or (dry run) would do. ``more``: it ended at its bound. Not ``led``: somebody else is at it."""

    led: bool
    affected: int = 0
    unchanged: int = 0
    unsettled: int = 0
    more: bool = False


class Sound(NamedTuple):
    """What an integrity sweep found that should not be, and how much of it was mended."""

    led: bool
    processing_expired: int = 0
    history_without_job: int = 0
    documents_unreadable: int = 0
    fixed: int = 0
    more: bool = False


def prune(
    store: Store,
    filter: Filter,
    *,
    dry_run: bool = False,
    archive: Archiving | None = None,
    limit: int = MOST,
    told: Told | None = None,
    going: Callable[[], bool] = lambda: True,
    now: datetime | None = None,
) -> Applied:
    """Delete the ended and held jobs among those that match. Raises Refused for a filter that narrows nothing down."""
    return apply(
        store,
        filter,
        lambda job: Prune(job.generation),
        dry_run=dry_run,
        archive=archive,
        limit=limit,
        told=told,
        going=going,
        now=now,
    )


def retention(
    store: Store,
    days: Mapping[State, float],
    scope: Scope = Scope(),  # noqa: B008 - a value
    *,
    dry_run: bool = False,
    archive: Archiving | None = None,
    limit: int = MOST,
    told: Told | None = None,
    check: Callable[[], None] = lambda: None,
    now: datetime | None = None,
) -> Passed:
    """Delete what has stood in its state for longer than ``days`` says; a state without an entry, or 0, is kept."""
    wanted = [
        filter._replace(states=(state,), ended_over=kept * DAY)
        for state, kept in days.items()
        if kept > 0
        for filter in scope.filters()
    ]
    with _leading(store, "sweep.retention", check, now, dry_run) as going:
        if going is None:
            return Passed(False)
        passed = Passed(True)
        for filter in wanted:
            left = limit - _seen(passed)
            done = prune(
                store, filter, dry_run=dry_run, archive=archive, limit=left, told=told, going=going, now=now
            )  # fmt: skip
            passed = _added(passed, done)
        return passed._replace(more=_seen(passed) >= limit)


def expire(
    store: Store,
    limits: Limits,
    scope: Scope = Scope(),  # noqa: B008 - a value
    *,
    dry_run: bool = False,
    limit: int = MOST,
    told: Told | None = None,
    check: Callable[[], None] = lambda: None,
    now: datetime | None = None,
) -> Passed:
    """End what has waited or run for longer than ``limits`` says. Parked rows have no age.

    Runs are as many as the fleet has slots, so they are all looked at; ``limit`` is for rows that wait.
    """
    with _leading(store, "sweep.ttl", check, now, dry_run) as going:
        if going is None:
            return Passed(False)
        known, passed, waited = policies(store), Passed(True), 0
        for filter in scope.filters():
            if limits.runtime is not None:
                running = filter._replace(running_over=limits.runtime)
                act = _overrun(limits.fail)
                done = apply(
                    store, running, act, dry_run=dry_run, told=told, known=known, going=going, now=now
                )  # fmt: skip
                passed = _added(passed, done)
            if limits.age is not None and waited < limit:
                waiting = filter._replace(states=(State.QUEUED,), waiting_over=limits.age)
                act = _outwaited(limits.fail)
                done = apply(
                    store, waiting, act, dry_run=dry_run, limit=limit - waited, told=told, going=going, now=now
                )  # fmt: skip
                passed, waited = _added(passed, done), waited + sum(done)
        return passed._replace(more=waited >= limit)


def integrity(
    store: Store,
    *,
    fix: bool = False,
    limit: int = MOST,
    check: Callable[[], None] = lambda: None,
    now: datetime | None = None,
) -> Sound:
    """Look for what the database's own rules can't exclude: leases that nobody takes back, history without a job,
    documents that can't be read; ``fix`` takes back and removes the first two. Documents are only told."""
    with _leading(store, "sweep.integrity", check, now) as going:
        if going is None:
            return Sound(False)
        lapsed = Filter(states=(State.PROCESSING,), lapsed_over=LAPSED_TOO_LONG)
        expired = sum(tally.processing for tally in store.tally(lapsed, now=now))
        fixed = 0
        if fix and expired:
            act = apply(store, lapsed, _reclaimed, limit=limit, known=policies(store), going=going, now=now)
            fixed = act.affected
        lost = store.orphans(limit=limit)
        if fix and lost and going():
            fixed += store.orphans(remove=True, limit=limit)
        return Sound(True, expired, lost, len(unreadable(store)), fixed, max(expired, lost) >= limit)


def unreadable(store: Store) -> list[Document]:
    """Documents of ours that no program can use: policies, queue controls and ticks."""
    found = [document for document in store.list("policy") if not _is_policy(document)]
    found += [document for document in store.list("queue") if not isinstance(document.body, dict)]
    return found + [document for document in store.list("schedule") if not isinstance(document.body, dict)]


def _is_policy(document: Document) -> bool:
    if not isinstance(document.body, dict):
        return False
    policy = read_policy(document)
    return policy is not None and policy.job_type == document.key


def _overrun(fail: bool) -> Callable[[Job], Expire]:
    return lambda job: Expire(job.generation, job.attempt, job.lease_id, fail)


def _outwaited(fail: bool) -> Callable[[Job], Expire]:
    return lambda job: Expire(job.generation, job.attempt, None, fail)


def _reclaimed(job: Job) -> Reclaim:
    return Reclaim(job.lease_id or "", random.random())


@contextmanager
def _leading(
    store: Store, name: str, check: Callable[[], None], now: datetime | None, dry_run: bool = False
) -> Iterator[Callable[[], bool] | None]:
    """Hold the term of ``name``: yields what prolongs it and tells whether it is still held, or None where it is taken.
    ``check`` is called before each batch too, and may raise. A dry run is in nobody's way, and takes no term."""
    holder = str(uuid4())

    def going() -> bool:
        check()
        return dry_run or store.lead(name, holder, TERM, now=now).held

    if dry_run:
        yield going
        return
    if not store.lead(name, holder, TERM, now=now).held:
        yield None
        return
    try:
        yield going
    finally:
        store.resign(name, holder, now=now)


def _seen(passed: Passed) -> int:
    return passed.affected + passed.unchanged + passed.unsettled


def _added(passed: Passed, applied: Applied) -> Passed:
    return passed._replace(
        affected=passed.affected + applied.affected,
        unchanged=passed.unchanged + applied.unchanged,
        unsettled=passed.unsettled + applied.unsettled,
    )
