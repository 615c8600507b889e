"""Wakers, workers, the scheduler and operators as they are, a step at a time, and everything that can go wrong.

The store's statements, the transitions, the operations and the lease scripts are the real ones. A process is a
generator that stops between any two of its steps: one that isn't chosen for long is frozen, one that is dropped has
crashed. ``Between`` lets others take steps even inside an operation, between its read and its write.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from store import clock
from store.contract import ANY_VERSION, Change, Document, Due, Renewal, Store
from store.errors import StoreUnavailable
from store.events import Cancel, Claim, Failure, Finish, GiveBack, Kind, Release, Requeue, Reschedule, Wake
from store.filters import Filter
from store.identity import job_id, new_lease_id
from store.job import TERMINAL, Job, State
from store.operations import Item, Settled, apply, reclaim, settle
from store.policy import Policy
from store.transitions import Answer, Decision, Write
from store.valkey import entries
from store.valkey.entries import Ack, Offer
from store.valkey.leases import Leases
from store.valkey.scores import job_score
from tests.simulation.auditor import Auditor, Broken
from tests.simulation.choices import Choices, Exhausted

QUEUE = "simulated"
LEASE = 120.0
POLICIES = {
    policy.job_type: policy
    for policy in (
        Policy("kept", queue=QUEUE),
        Policy("retired", queue=QUEUE, keep_finished=False),
        Policy("touchy", queue=QUEUE, quarantine_after=2),
        Policy("limited", queue=QUEUE, max_retries=1),
    )
}
KEYS = ("a",)
KINDS = (Kind.DONE, Kind.DONE, Kind.AGAIN, Kind.RETRY, Kind.PARK, Kind.FAIL, Kind.CANCELLED)

#: Steps after the last fault within which everything must have come to rest.
PATIENCE = 600

Process = Iterator[None]


class Rollback(Exception):
    """A caller's transaction fails."""


class Between:
    """The store, with others' steps before each statement."""

    def __init__(self, world: World) -> None:
        self._world = world

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._world.store, name)
        if name not in ("read", "find", "swap", "list"):
            return real

        def call(*args: Any, **options: Any) -> Any:
            self._world.meanwhile()
            return real(*args, **options)

        return call


class World:
    """One queue, one store, one Valkey, two workers, and a moment that nobody but this moves."""

    def __init__(self, store: Store, leases: Leases, valkey: Any, choices: Choices) -> None:
        self.store, self.leases, self.valkey, self.choices = store, leases, valkey, choices
        self.between: Any = Between(self)
        self.auditor = Auditor()
        self.now = datetime(2026, 3, 1, tzinfo=UTC)
        self.paused = False
        self._inside = False
        self.claims: dict[str, Claim] = {}  # the latest of each job
        self.log: list[str] = []
        self.processes: dict[str, Callable[[], Process]] = {
            "worker 1": lambda: self._worker("worker 1"),
            "worker 2": lambda: self._worker("worker 2"),
            "scheduler": self._scheduler,
            "sweeper": self._sweeper,
        }
        self.lives = {name: begin() for name, begin in self.processes.items()}

    # --- the schedule

    def play(self) -> None:
        """Until the schedule is over; then the faults end, and everything must come to rest."""
        random.seed(0)  # the jitter of the backoff is drawn from here
        for policy in POLICIES.values():
            self.store.put(Document("policy", policy.job_type, ANY_VERSION, policy.document()))
        self._pause(False)
        try:
            while True:
                self.step()
                self._look()
        except Exhausted:
            pass
        self._settle_down()

    def step(self) -> None:
        """One step of somebody, chosen."""
        self.now += timedelta(milliseconds=1)
        steps: list[Callable[[], None]] = [
            *[lambda: self.advance("worker 1")] * 10,
            *[lambda: self.advance("worker 2")] * 10,
            *[lambda: self.advance("scheduler")] * 6,
            *[lambda: self.advance("sweeper")] * 3,
            *[self._wake] * 4,
            *[self._time_passes] * 4,
            *[self._operator] * 2,
            self._late_copy,
            self._crash,
            self._valkey_loses_all,
            self._leases_run_out,
        ]
        steps[self.choices.draw(len(steps))]()

    def meanwhile(self) -> None:
        """Somebody else, between two statements of one operation."""
        if self._inside or not self.choices.once_in(4):
            return
        self._inside = True
        try:
            self.step()
        finally:
            self._inside = False

    def advance(self, name: str) -> None:
        """One step of a process; it is not there twice."""
        self.log.append(name)
        try:
            next(self.lives[name])
        except ValueError:
            return  # it is in the middle of an operation, in which we are the meanwhile
        except StopIteration:
            self.lives[name] = self.processes[name]()

    def _look(self) -> None:
        self.auditor.rows(self.store.find(Filter(queue=QUEUE), limit=1000))

    def _settle_down(self) -> None:
        self.choices.tame = True
        self._pause(False)
        for turn in range(PATIENCE):
            for name in self.lives:
                self.advance(name)
            if turn % 10 == 0:
                self._pass(3600.0)
                self._leases_run_out()
            rows = self.store.find(Filter(queue=QUEUE), limit=1000)
            sizes = self.leases.sizes(QUEUE)
            busy = any(job.state == State.PROCESSING or (job.state == State.QUEUED and job.run_at != clock.PARKED)
                       for job in rows)  # fmt: skip
            if not busy and not sizes.ready and not sizes.in_flight:
                break
        self._look()
        self.auditor.at_rest(self.store.find(Filter(queue=QUEUE), limit=1000))
        sizes = self.leases.sizes(QUEUE)
        if sizes.ready or sizes.in_flight:
            raise Broken(f"Valkey holds {sizes} at rest")

    # --- processes

    def _worker(self, name: str) -> Process:
        while True:
            token = new_lease_id()
            taken = self.leases.claim(QUEUE, [token], full_ms=3_600_000, short_ms=3_600_000).taken
            if self.choices.once_in(6):  # the answer is lost: the same again
                yield
                taken = self.leases.claim(QUEUE, [token], full_ms=3_600_000, short_ms=3_600_000).taken
            yield
            if taken:
                yield from self._job(name, taken[0])

    def _job(self, name: str, one: entries.Claimed) -> Process:
        claim = self.claims[one.member[2:]] = Claim(one.member[2:], one.token, name, LEASE)
        claimed = self.store.claim([claim], now=self.now)[0]
        if claimed.job is not None:
            self.auditor.claimed(claimed.job)
        if self.choices.once_in(6):
            yield
            claimed = self.store.claim([claim], now=self.now)[0]
            if claimed.job is not None:
                self.auditor.claimed(claimed.job, again=True)
        yield
        if claimed.job is None:
            if claimed.held:
                self.leases.release(QUEUE, [entries.Release(one.member, one.token, 0)])
            else:
                self.leases.ack(QUEUE, [Ack(one.member, one.token)])
            return
        job = claimed.job
        self.leases.renew(QUEUE, [entries.Renewal(one.member, one.token, 3_600_000)], row_claimed=True)
        yield
        if self.choices.once_in(12):
            yield from self._back(job, Release(one.token, job.attempt))
        elif self.choices.once_in(20):
            yield from self._back(job, GiveBack(one.token, job.attempt, 10.0, "type_unknown_here"))
        else:
            for _ in range(self.choices.draw(5)):
                if self.choices.once_in(2) and not self._renew(job):
                    break  # the run hears that it is over, and gives its lease in Valkey up
                yield
            else:
                yield from self._end(job)
        again = self.choices.once_in(3)  # a hint, right or wrong
        self.leases.ack(QUEUE, [Ack(one.member, one.token, again, job_score(5, 1) if again else "")])
        yield

    def _renew(self, job: Job) -> bool:
        percent = (self.choices.draw(101), None) if self.choices.once_in(2) else None
        renewal = Renewal(job.id, job.lease_id or "", job.attempt, LEASE, percent, self.choices.once_in(10))
        held = self.store.renew([renewal], now=self.now)[0].held
        self.auditor.renewed(job, held, self.now + timedelta(seconds=LEASE))
        return held

    def _end(self, job: Job) -> Process:
        kind = KINDS[self.choices.draw(len(KINDS))]
        failing = kind in (Kind.RETRY, Kind.FAIL)
        finish = Finish(
            job.lease_id or "", job.attempt, job.generation, kind,
            delay=(0.0, 0.0, 40.0)[self.choices.draw(3)] if kind is Kind.AGAIN else 0.0,
            sets_checkpoint=kind is Kind.AGAIN, checkpoint='{"page":1}' if kind is Kind.AGAIN else None,
            failure=Failure("Error", f"code_{self.choices.draw(2)}") if failing else None,
        )  # fmt: skip
        times = 1 + self.choices.once_in(5)  # the answer is lost: the same again
        for _ in range(times):
            settled = self._settle(job, finish)
            self.auditor.finished(job, finish, settled, self.store.read([job.id])[0])
            yield

    def _back(self, job: Job, event: Release | GiveBack) -> Process:
        settled = self._settle(job, event)
        self.auditor.left(job.id, job.lease_id or "", settled)
        yield

    def _settle(self, job: Job, event: Any) -> Settled:
        """As the completion does: with the row as it was claimed, and again until it is written or refused."""
        settled = settle(self.between, [Item(job.id, event, POLICIES[job.job_type], job)], now=self.now)[0]
        while settled.answer is None:
            settled = settle(self.store, [Item(job.id, event, POLICIES[job.job_type])], now=self.now)[0]
        return settled

    def _scheduler(self) -> Process:
        rows: list[Due] = self.store.due(limit=3, now=self.now)
        yield
        offers = [Offer(f"j:{row.id}", job_score(row.priority, clock.micros(row.run_at) // 1000)) for row in rows]
        if offers:
            self.leases.offer(QUEUE, offers, watermark=4)
        yield

    def _sweeper(self) -> Process:
        for settled in reclaim(self.between, limit=3, now=self.now).taken:
            assert settled.job is not None
            self.auditor.left(settled.job.id, settled.job.lease_id or "", settled, lapsed_at=self.now)
        yield

    # --- wakes and operators

    def _wake(self) -> None:
        job_type = list(POLICIES)[self.choices.draw(len(POLICIES))]
        key = KEYS[self.choices.draw(len(KEYS))]
        once = job_type != "retired" and self.choices.once_in(5)
        wake = Wake(
            job_id("default", QUEUE, job_type, key), "default", QUEUE, job_type, key, '{"n":1}',
            priority=1 + self.choices.draw(10), delay=(0.0, 0.0, 0.0, 30.0)[self.choices.draw(4)], once=once,
            max_retries=POLICIES[job_type].max_retries,
        )  # fmt: skip
        self.log.append(f"wake {job_type} {key}")
        if self.choices.once_in(4):
            try:
                with self.store.transaction() as tx:
                    told = tx.wake([wake], now=self.now)
                    if self.choices.once_in(2):
                        raise Rollback
            except (Rollback, StoreUnavailable):
                return
        else:
            told = self.store.wake([wake], now=self.now)
        self.auditor.woken(told, once=once)
        if told[0].due and self.choices.once_in(2):
            self.leases.offer(QUEUE, [Offer(f"j:{wake.id}", job_score(wake.priority, 1))], watermark=4)

    def _operator(self) -> None:
        rows = self.store.find(Filter(queue=QUEUE), limit=1000)
        what = self.choices.draw(5)
        self.log.append(f"operator {what}")
        if what == 0:
            self._pause(self.choices.once_in(4))
        elif rows:
            job = rows[self.choices.draw(len(rows))]
            only = Filter(ids=(job.id,))
            if what == 1:
                apply(self.between, only, Cancel(), now=self.now)
            elif what == 2:
                apply(self.between, only, Requeue(), now=self.now)
            elif what == 3:
                apply(self.between, only, Reschedule(delay=30.0), now=self.now)
                if (found := self.store.read([job.id])[0]) is not None:
                    self.auditor.moved(found)
            elif job.state in TERMINAL | {State.QUARANTINED}:
                change = Change(job.id, job.revision, Decision(Answer.APPLIED, None, Write(delete=True)))
                self.meanwhile()
                if self.store.swap([change], now=self.now)[0]:
                    self.auditor.deleted(job)

    def _pause(self, paused: bool) -> None:
        self.paused = paused
        self.store.put(Document("queue", QUEUE, ANY_VERSION, {"paused": paused}))

    # --- faults

    def _late_copy(self) -> None:
        """A claim that the network kept arrives once more."""
        if self.claims:
            claim = list(self.claims.values())[self.choices.draw(len(self.claims))]
            if (job := self.store.claim([claim], now=self.now)[0].job) is not None:
                self.auditor.claimed(job, copy=True)

    def _time_passes(self) -> None:
        self._pass((1.0, 31.0, 61.0, 130.0, 400.0)[self.choices.draw(5)])

    def _pass(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def _crash(self) -> None:
        name = list(self.lives)[self.choices.draw(len(self.lives))]
        self.log.append(f"{name} crashes")
        self.lives[name] = self.processes[name]()

    def _valkey_loses_all(self) -> None:
        self.log.append("Valkey loses all")
        self.valkey.flushall()
        if self.choices.once_in(2):
            self.valkey.script_flush()

    def _leases_run_out(self) -> None:
        """In Valkey, whose clock is its own: every lease there has run out."""
        self.log.append("leases run out in Valkey")
        key = f"dramaturg:{{{QUEUE}}}:leases"
        for member, _ in self.valkey.zrange(key, 0, -1, withscores=True):
            self.valkey.zadd(key, {member: 1})


def played(store: Store, leases: Leases, valkey: Any, numbers: Sequence[int]) -> World:
    """A world after one schedule. Raises Broken."""
    valkey.flushall()
    world = World(store, leases, valkey, Choices(numbers))
    world.play()
    return world
