"""A worker without Dramatiq: ``acquire``, ``renew``, ``finish`` and their like straight on the store, under its fence.

For programs that have a loop of their own, or that want no Valkey. Whatever a program does here is what a Dramatiq
worker does: the same claim, the same finish, the same guard of lease id, attempt and generation.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, NamedTuple

from middleware.acquiring import Acquirer, Where
from middleware.answers import finish_of, plain_finish
from middleware.failures import describe
from middleware.handlers import Handled
from middleware.holding import Holding
from middleware.loop import Loop
from middleware.lost import LostLeases, take_back
from middleware.rows_only import RowsOnly, rows_only
from middleware.run import check_progress
from store.boundary import Boundary
from store.contract import Renewal, Renewed
from store.errors import StoreUnavailable, UsageError
from store.events import Event, Failure, Kind, Release
from store.filters import Filter
from store.identity import check_code, check_id, new_lease_id
from store.job import Job, State
from store.operations import Item, read_policy, settle
from store.outcome import Done, Outcome
from store.payloads import decode
from store.policy import Policy
from store.transitions import Answer

#: Tries to write an end on a row that is locked or keeps changing, and the seconds between them.
TRIES: Final = 5
PAUSE: Final = 0.05

#: A lease's length in seconds.
LEAST_SECONDS, MOST_SECONDS = 1.0, 3600.0


@dataclass(frozen=True, slots=True)
class Lease:
    """One claimed job, as it was when it was acquired. ``job`` has every column of the row."""

    job: Job
    boundary: Boundary = field(default_factory=Boundary, repr=False, compare=False)

    @property
    def id(self) -> str:
        """The job's id."""
        return self.job.id

    @property
    def lease_id(self) -> str:
        """What makes this attempt's writes ours."""
        return self.job.lease_id or ""

    @property
    def attempt(self) -> int:
        """Claims of this job so far, this one included."""
        return self.job.attempt

    @property
    def generation(self) -> int:
        """The intent that is served: a wake that comes meanwhile makes a newer one, which the finish leaves alone."""
        return self.job.generation

    @property
    def job_type(self) -> str:
        """The job's type."""
        return self.job.job_type

    @property
    def leased_until(self) -> datetime | None:
        """When the lease ends unless it is renewed, by the database's clock."""
        return self.job.leased_until

    @property
    def payload(self) -> Any:
        """The payload as plain JSON values. Raises PayloadSealed: say ``fail`` with it."""
        return decode(self.boundary.read(self.job, "payload"))

    @property
    def checkpoint(self) -> Any:
        """What the last run that set one left behind. Raises PayloadSealed."""
        return decode(self.boundary.read(self.job, "checkpoint"))


class Ended(NamedTuple):
    """What became of a run's last word. ``stale`` and ``gone`` changed nothing: the job is somebody else's by now."""

    answer: Answer  # applied, repeated (the same was said before), stale or gone
    state: str | None  # that the row is in; None: it has been deleted

    @property
    def counted(self) -> bool:
        """Whether this run's end stands in the row."""
        return self.answer in (Answer.APPLIED, Answer.REPEATED)


class Jobs:
    """Jobs for a program with its own loop. Safe to share between threads; all verbs may be called again.

    ``url`` is the database (JOBS_DB_URL unless given), ``worker`` a name for people (the host and process unless
    given). Making it connects to nothing. Raises SettingsInvalid; every verb raises StoreUnavailable, and Refused
    where the schema is missing or too new.
    """

    def __init__(self, url: str | None = None, *, worker: str | None = None) -> None:
        self._set_up(rows_only(url, name=worker))

    @classmethod
    def over(cls, runtime: RowsOnly) -> Jobs:
        """Over a process' runtime that was made elsewhere."""
        jobs = cls.__new__(cls)
        jobs._set_up(runtime)
        return jobs

    def _set_up(self, runtime: RowsOnly) -> None:
        self._runtime = runtime
        self._acquirer = Acquirer(runtime)
        self._checked = False
        self._lost: LostLeases | None = None

    def publish(self, *handlers: Handled | Policy) -> None:
        """Make job types known, so that their rows may run; ``run`` does it by itself."""
        self._ready()
        for one in handlers:
            policy = one if isinstance(one, Policy) else one.policy
            self._runtime.policies[policy.job_type] = policy
        self._runtime.publish()

    def acquire(
        self,
        *,
        types: Sequence[str] | None = None,
        queues: Sequence[str] | None = None,
        domain: str | None = None,
        seconds: float | None = None,
        lease_id: str | None = None,
    ) -> Lease | None:
        """Claim the most urgent job that is due, in the order (priority, run_at, id), among those of these types,
        queues and domain; None if there is none. It is yours for ``seconds``
        (JOBS_LEASE_SECONDS) and for as long as you renew it.

        With a ``lease_id`` (a uuid of your own, a new one for each job) a call whose answer was lost can be repeated:
        it answers the job that it had claimed. Now and then it also takes back what lost workers held.
        """
        self._ready()
        self.lost_leases.step()
        where, length = where_of(types, queues, domain), self._seconds(seconds)
        if lease_id is None:
            taken = self._acquirer.take([new_lease_id()], where, length)
            return self._lease(taken[0]) if taken else None
        lease_id = check_id(lease_id)
        if held := self._held_under(lease_id):
            return held[0]
        taken = self._acquirer.take([lease_id], where, length)
        # The claim whose answer was lost may have been done while this one was made: the earlier one is the job.
        held = self._held_under(lease_id) if taken else []
        for late in held[1:]:
            self.release(late)
        return held[0] if held else None

    def renew(
        self, lease: Lease, *, seconds: float | None = None, percent: int | None = None, message: str | None = None
    ) -> Renewed:
        """Hold on to a job for ``seconds`` from now on, and report how far it is. Not ``held``: it is somebody else's
        by now, stop. ``cancelled``: an operator wants it to stop, say ``end_cancelled``."""
        if percent is None and message is not None:
            raise UsageError("a message of progress wants its percent")
        if percent is not None:
            check_progress(percent, message)
            message = self._runtime.boundary.message(message)
        progress = None if percent is None else (percent, message)
        renewal = Renewal(lease.id, lease.lease_id, lease.attempt, self._seconds(seconds), progress)
        return self._runtime.store.renew([renewal])[0]

    def finish(self, lease: Lease, outcome: Outcome | None) -> Ended:
        """End a run with what a handler would have answered. Raises PayloadInvalid, and the job stays yours, for a
        result or checkpoint that is not allowed."""
        holding = self._holding(lease)
        return self._end(lease, finish_of(holding, outcome, self._runtime))

    def complete(self, lease: Lease, result: Any = None) -> Ended:
        """``finish`` with ``Done(result)``."""
        return self.finish(lease, Done(result))

    def fail(self, lease: Lease, why: str | BaseException, *, retry: bool = True) -> Ended:
        """A failed attempt, with a stable code or the error itself (of which its class, code and place are kept, and
        never its text). It runs again by its type's backoff, unless ``retry`` is False."""
        failure = describe(why) if isinstance(why, BaseException) else Failure("", check_code(why))
        kind = Kind.RETRY if retry else Kind.FAIL
        return self._end(lease, plain_finish(self._holding(lease), kind, failure=failure))

    def end_cancelled(self, lease: Lease) -> Ended:
        """The run stopped since an operator had cancelled the job."""
        return self._end(lease, plain_finish(self._holding(lease), Kind.CANCELLED))

    def release(self, lease: Lease) -> Ended:
        """Give a job back unpunished: due at once, for whoever comes first."""
        return self._end(lease, Release(lease.lease_id, lease.attempt))

    def reclaim(self) -> int:
        """Take back jobs now whose lease has run out, at most a hundred; answers how many. ``acquire`` and ``run`` do
        it by themselves: this is for programs that live too short for that."""
        self._ready()
        return len(take_back(self._runtime.store).taken)

    def run(
        self,
        *handlers: Handled,
        queues: Sequence[str] | None = None,
        domain: str | None = None,
        concurrency: int | None = None,
        stop: threading.Event | None = None,
    ) -> None:
        """Run jobs of these handlers until ``stop`` is set, or until SIGTERM or SIGINT where the main thread calls it.

        ``concurrency`` threads (WORKER_CONCURRENCY) run handlers, others renew leases, look for cancels and write
        progress. A stop lets runs end for JOBS_SHUTDOWN_WAIT_FOR_LEASES_SEC, then gives them back unpunished. A
        database that is away is waited for. Raises UsageError, and Refused for a schema that can't be worked with.
        """
        types = [one.policy.job_type for one in handlers]
        if not handlers or len(set(types)) < len(types):
            raise UsageError("run() wants handlers, each of a job type of its own: jobs.run(send_invoice)")
        where = where_of(types, queues, domain)
        Loop(self._runtime, {one.policy.job_type: one for one in handlers}, where, concurrency).run(stop)

    def close(self) -> None:
        """Let go of every connection; further calls open new ones."""
        self._runtime.close()

    @property
    def lost_leases(self) -> LostLeases:
        """The sweep that ``acquire`` does beside its work."""
        if self._lost is None:
            self._lost = LostLeases(self._runtime)
        return self._lost

    def _held_under(self, lease_id: str) -> list[Lease]:
        rows = self._runtime.store.find(Filter(states=(State.PROCESSING,), lease_id=lease_id), limit=10)
        return [self._lease(row) for row in sorted(rows, key=lambda row: (row.started_at or row.updated_at, row.id))]

    def _lease(self, job: Job) -> Lease:
        return Lease(job, self._runtime.boundary)

    def _ready(self) -> None:
        if not self._checked:
            self._runtime.store.check_schema(self._runtime.subjects)
            self._checked = True

    def _seconds(self, seconds: float | None) -> float:
        if seconds is None:
            return self._runtime.worker.lease_seconds
        if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
            raise UsageError("the length of a lease is a number of seconds")
        if not LEAST_SECONDS <= seconds <= MOST_SECONDS:
            raise UsageError(f"a lease lasts {LEAST_SECONDS:.0f} to {MOST_SECONDS:.0f} seconds")
        return float(seconds)

    def _holding(self, lease: Lease) -> Holding:
        return Holding(lease.job, self._policy(lease.job_type), "", float("inf"))

    def _policy(self, job_type: str) -> Policy:
        if (known := self._runtime.policies.get(job_type)) is not None:
            return known
        document = self._runtime.store.get("policy", job_type)
        published = None if document is None else read_policy(document)
        return published or Policy(job_type)

    def _end(self, lease: Lease, event: Event) -> Ended:
        item = Item(lease.id, event, self._policy(lease.job_type), lease.job)
        for number in range(TRIES):
            if number:
                time.sleep(PAUSE * (1 + random.random()))
                item = item._replace(job=None)
            [settled] = settle(self._runtime.store, [item])
            if settled.decision is not None:
                return Ended(settled.decision.answer, settled.decision.state)
        raise StoreUnavailable("the job's row is locked by another transaction: say the same again")


def where_of(types: Sequence[str] | None, queues: Sequence[str] | None, domain: str | None) -> Where:
    """Which rows are meant; raises UsageError for a string in the place of a list, and for an empty list."""
    for name, value in (("types", types), ("queues", queues)):
        if isinstance(value, str) or (value is not None and not value):
            raise UsageError(f"{name} wants a list of names, or None for all")
    return Where(
        None if queues is None else tuple(sorted(set(queues))),
        None if types is None else tuple(sorted(set(types))),
        domain,
    )
