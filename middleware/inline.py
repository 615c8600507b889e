"""The testing kit: jobs run inline, in the test's own thread, on a real store whose clock stands still.

    with InlineJobs(now=datetime(2026, 3, 1, tzinfo=UTC)) as jobs:
        send_invoice.send(invoice_id=7)
        jobs.run_due()

Nothing of it is a second implementation: rows are claimed as ``Jobs`` does, run under the fence and finished by the
completion. Only the clock is the kit's.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import dramatiq
from dramatiq.middleware import Interrupt
from pydantic import SecretStr
from pydantic_core import to_jsonable_python

from middleware.acquiring import Acquirer, Where
from middleware.broker import SCHEDULER_ACTOR, Broker
from middleware.build import broker as process_broker
from middleware.frozen import FrozenClock, frozen
from middleware.handlers import Handled, JobHandler, event_loop
from middleware.heartbeat import TICK
from middleware.instant import InstantHolding
from middleware.job import JobActor, dumped, validated
from middleware.jobs import Jobs
from middleware.loop import RowHeartbeat, run_one
from middleware.lost import TERM, take_back
from middleware.rows_only import RowsOnly
from middleware.run import Run
from middleware.settings import WorkerSettings
from store import clock, payloads
from store.boundary import guarded, load_boundary
from store.clock import PARKED
from store.contract import ANY_VERSION, Document, Store, Woken
from store.errors import NotFound, PayloadSealed, Refused, StoreUnavailable, UsageError
from store.events import Cancel, Wake
from store.filters import Filter
from store.identity import DEFAULT_DOMAIN, job_id, new_lease_id
from store.job import Job, Recorded, State
from store.open import open_store
from store.operations import Item, settle
from store.outcome import Outcome
from store.policy import Policy
from store.settings import StoreSettings, load_all
from store.transitions import Answer

#: The kind of the document by which the kit knows a database that is its own.
MARK: Final = "testing"

#: How the kit calls itself where a worker's name stands.
NAME: Final = "inline"

#: Seconds that the store may take to write what a run left.
FLUSH_SECONDS: Final = 30.0

#: Rows of one page when the kit looks for the next moment.
PAGE: Final = 1000


class Ran(NamedTuple):
    """One run, as the test sees it."""

    id: str
    job_type: str
    outcome: Outcome | None  # what the handler returned
    error: BaseException | None  # what it raised
    job: Job | None  # the row afterwards; None: it has been deleted

    @property
    def state(self) -> str | None:
        """The row's state afterwards."""
        return None if self.job is None else self.job.state


class InlineJobs:
    """A context manager: inside, every job of the process' broker is sent to a store of the test's own.

    ``now`` is the moment at which the clock stands (this one, unless given). ``url`` is a database that no worker
    uses; without it, a SQLite file that lives as long as the block. ``handlers`` are run beside the broker's jobs.
    ``reraise``: what a handler raises is raised by ``run_due`` too, once its row is settled.

    Raises UsageError for a block inside a block, and Refused for a database that workers use or that holds jobs which
    are not the kit's.
    """

    def __init__(
        self,
        *,
        now: datetime | None = None,
        url: str | None = None,
        handlers: Sequence[Handled] = (),
        reraise: bool = False,
        broker: Broker | None = None,
    ) -> None:
        if now is not None and now.tzinfo is None:
            raise UsageError("now wants a datetime with a time zone")
        self._start = clock.wall() if now is None else now
        self._url = url
        self._given = tuple(handlers)
        self._reraise = reraise
        self._broker = broker
        self._open = ExitStack()
        self._seen: tuple[Outcome | None, BaseException | None] = (None, None)

    def __enter__(self) -> Self:
        with ExitStack() as opened:
            broker = self._broker or _chosen_broker()
            if broker is not None and isinstance(broker.runtime, RowsOnly):
                raise UsageError("the testing kit is open already: one block at a time")
            folder = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="dramaturg-")))
            url = self._url or f"sqlite:///{folder / 'jobs.db'}"
            real = open_store(url)
            opened.callback(real.close)
            real.migrate(() if broker is None else broker.runtime.subjects)
            _claim_database(real)
            self._clock = FrozenClock(self._start)
            self.store = frozen(guarded(real, load_boundary()), self._clock)
            self._runtime = _runtime(folder, url, self.store, broker)
            opened.callback(self._runtime.completion.close, FLUSH_SECONDS)
            self.jobs = Jobs.over(self._runtime)
            self._acquirer = Acquirer(self._runtime)
            self._heartbeat = RowHeartbeat(self)
            if broker is not None:
                opened.callback(_give_back, broker, broker.runtime)
                broker.runtime = self._runtime
            opened.enter_context(event_loop())
            self._actors = {} if broker is None else broker.actors
            self._publish()
            self._open = opened.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    @property
    def runtime(self) -> RowsOnly:
        """What the kit works with, as a worker's parts see it."""
        return self._runtime

    def call_scheduler(self) -> None:
        """There is none: what is due is run by ``run_due``."""

    # --- time

    @property
    def now(self) -> datetime:
        """Where the clock stands."""
        return self._clock.now

    def travel(self, *, seconds: float = 0, minutes: float = 0, hours: float = 0, days: float = 0) -> datetime:
        """Move the clock forward; nothing runs by that. Answers where it stands then. Raises UsageError."""
        return self.travel_to(self.now + timedelta(seconds=seconds, minutes=minutes, hours=hours, days=days))

    def travel_to(self, moment: datetime) -> datetime:
        """Move the clock to a moment that has not passed. Raises UsageError."""
        if moment.tzinfo is None or moment < self.now:
            raise UsageError("time goes forward only, to a datetime with a time zone")
        self._clock.now = moment
        return moment

    # --- running

    def run_due(self, limit: int = 100) -> list[Ran]:
        """Run what is due, the most urgent first, until nothing is, what these runs wake included; the clock stands.

        Raises UsageError after ``limit`` runs: a job that wants to run again at once would never end.
        """
        self._publish()
        take_back(self.store)
        ran: list[Ran] = []
        while (one := self._run_next()) is not None:
            ran.append(one)
            if self._reraise and one.error is not None and not isinstance(one.error, Interrupt):
                raise one.error
            if len(ran) >= limit and self._is_due():
                raise UsageError(f"{limit} runs, and something is due still: does a job ask for itself at once?")
        return ran

    def drain(self, limit: int = 1000) -> list[Ran]:
        """Run what is due and move the clock to the next moment at which something is, until every job has ended, is
        parked or is held. Raises UsageError after ``limit`` runs: a job that always runs again never ends."""
        ran = self.run_due(limit)
        while (moment := self._next_moment()) is not None:
            if len(ran) >= limit:
                raise UsageError(f"{limit} runs, and more are scheduled: use travel() and run_due() for such jobs")
            self.travel_to(moment)
            ran += self.run_due(limit)
        return ran

    def _run_next(self) -> Ran | None:
        handled = self._handled()
        where = Where(types=tuple(sorted(handled)))
        rows = self._acquirer.take([new_lease_id()], where, self._runtime.worker.lease_seconds)
        if not rows:
            return None
        row = rows[0]
        one = handled[row.job_type]
        holding = InstantHolding(row, one.policy, lambda seconds: self.travel(seconds=seconds))
        self._runtime.in_hand.add((holding,))
        self._seen = (None, None)
        run_one(holding, self._watched(one), self._runtime)
        if not self._runtime.completion.flush(FLUSH_SECONDS):
            raise StoreUnavailable("the store does not write what the run left")
        return Ran(row.id, row.job_type, *self._seen, self._read(row.id))

    def _watched(self, one: Handled) -> JobHandler:
        def watch(payload: Any, run: Run) -> Any:
            try:
                outcome = one.handler(payload, run)
            except BaseException as error:
                self._seen = (None, error)
                raise
            self._seen = (outcome, None)
            return outcome

        return JobHandler(one.policy, one.payload_type, watch)

    def _handled(self) -> dict[str, Handled]:
        actors = [actor for actor in self._actors.values() if isinstance(actor, JobActor)]
        return {one.policy.job_type: one for one in (*actors, *self._given)}

    def _publish(self) -> None:
        self._runtime.policies.update({job_type: one.policy for job_type, one in self._handled().items()})
        if not self._runtime.published:
            self._runtime.publish()

    def _is_due(self) -> bool:
        return any(self.store.find(Filter(phase="ready", job_type=name), limit=1) for name in self._handled())

    def _next_moment(self) -> datetime | None:
        handled, moments = self._handled(), []
        page, last = True, None
        while page:
            rows = self.store.find(Filter(phase="scheduled", after_id=last), limit=PAGE)
            moments += [row.run_at for row in rows if row.job_type in handled and row.run_at != PARKED]
            page, last = len(rows) == PAGE, rows[-1].id if rows else None
        return min(moments, default=None)

    # --- looking, and what an operator does

    def woken(self, job: str | JobActor[Any, Any], /, **fields: Any) -> list[Job]:
        """Rows of a job type, or of a job, whose payload has these fields, oldest first; empty, and so false, if there
        is none. A row that its type keeps no longer is not there any more."""
        job_type = job if isinstance(job, str) else job.actor_name
        wanted = to_jsonable_python(fields)
        found = self.store.find(Filter(job_type=job_type), order="created", limit=10_000)
        rows = [self._opened(row) for row in found]
        return [row for row in rows if wanted.items() <= payloads.decode(row.payload).items()] if wanted else rows

    def job(self, id_: str) -> Job:
        """The row of an id, its columns open where they are encrypted with a key that is here. Raises NotFound."""
        row = self._read(id_)
        if row is None:
            raise NotFound("there is no such job: its type may keep no finished rows")
        return row

    def _read(self, id_: str) -> Job | None:
        row = self.store.read([id_])[0]
        return None if row is None else self._opened(row)

    def _opened(self, row: Job) -> Job:
        try:
            return self._runtime.boundary.opened(row)
        except PayloadSealed:
            return row

    def history(self, id_: str) -> list[Recorded]:
        """What a job's history says, newest first."""
        return self.store.history(id_)

    def wake(self, job_type: str, payload: dict[str, Any], *, key: str | None = None, delay: float = 0) -> Woken:
        """Wake a job of ``handlers``, for which there is no ``send``. Raises UsageError, PayloadInvalid."""
        one = self._handled().get(job_type)
        if one is None:
            raise UsageError(f"nothing here handles {job_type!r}: name it among the handlers")
        checked = validated(one.payload_type, payload, job_type)  # type: ignore[type-var]
        policy: Policy = one.policy
        wake = Wake(
            id=job_id(DEFAULT_DOMAIN, policy.queue, job_type, key),
            domain=DEFAULT_DOMAIN,
            queue=policy.queue,
            job_type=job_type,
            key=key,
            payload=payloads.encode(dumped(checked, job_type), limit=self._runtime.settings.max_json_bytes),
            priority=policy.priority,
            delay=delay,
            max_retries=policy.max_retries,
        )
        return self.store.wake([wake])[0]

    def cancel(self, id_: str) -> Answer | None:
        """Cancel a job as an operator does; a run in hand hears of it at its next check."""
        [settled] = settle(self.store, [Item(id_, Cancel(), Policy("any"))])
        self._heartbeat.beat(clock.elapsed() + 2 * TICK)
        return settled.answer


def _chosen_broker() -> Broker | None:
    """The process' broker, made if there is none, so that jobs declared inside the block are the kit's too."""
    chosen = dramatiq.broker.global_broker
    if chosen is None:
        return process_broker()
    return chosen if isinstance(chosen, Broker) else None


def _runtime(folder: Path, url: str, store: Store, broker: Broker | None) -> RowsOnly:
    if broker is None:
        settings, worker = load_all(StoreSettings, WorkerSettings)
        assert isinstance(settings, StoreSettings)
        assert isinstance(worker, WorkerSettings)
    else:
        settings, worker = broker.runtime.settings, broker.runtime.worker
    settings = settings.model_copy(update={"home": folder, "db_url": SecretStr(url), "valkey_url": None})
    made = RowsOnly(settings, worker, store=store, name=f"{NAME}:{os.getpid()}")
    if broker is not None:
        made.policies.update(broker.runtime.policies)
        made.subjects = broker.runtime.subjects
    return made


def _give_back(broker: Broker, runtime: Any) -> None:
    runtime.policies.update(broker.runtime.policies)  # of jobs that were declared meanwhile
    broker.runtime = runtime


def _claim_database(store: Store) -> None:
    """See that no worker uses this database, and mark it as the kit's. Raises Refused."""
    if not store.list(MARK):
        if store.list("policy") or store.find(Filter(), limit=1):
            raise Refused("this database has jobs or job types that are not the testing kit's: give it an empty one")
        store.put(Document(MARK, NAME, ANY_VERSION, {}))
    holder = new_lease_id()
    for term in (SCHEDULER_ACTOR, TERM):
        if not store.lead(term, holder, 1.0).held:
            raise Refused("a worker is at work on this database: the testing kit wants one of its own")
        store.resign(term, holder)
    for row in store.find(Filter(states=(State.PROCESSING,), lapsed=False), limit=PAGE):
        if not (row.worker or "").startswith(f"{NAME}:"):
            raise Refused("a worker runs a job of this database: the testing kit wants one of its own")
