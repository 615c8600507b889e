"""Random walks: a store and the pure function live the same lives, and hold the same rows after every step.

Beyond that equality each step asserts what must hold of rows whatever happened before: no wake is forgotten, nothing
runs after a cancel that nobody has withdrawn, no new life of a row looks like an older one.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

import pytest
from hypothesis import note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from store.clock import PARKED
from store.contract import Change, Renewal, Renewed, Store
from store.events import (
    Cancel,
    Claim,
    Event,
    Expire,
    Finish,
    GiveBack,
    Kind,
    Prune,
    Reclaim,
    Release,
    Requeue,
    Reschedule,
    Wake,
)
from store.job import Entry, Job
from store.policy import Policy
from store.transitions import Answer, Decision, decide, evaluate
from tests.contract import rows
from tests.contract.acts import differences
from tests.contract.adapters import Adapter
from tests.contract.rows import NOW, TYPE, wake

IDS = {wake(key).id: key for key in ("a", "b")}

#: What happens, each as often as it stands here.
ACTS = (
    *("wake", "wake", "wake", "claim", "claim", "claim", "claim", "claim", "claim_again"),
    *("finish", "finish", "finish", "finish", "finish", "return_unfinished", "return_unfinished"),
    *("renew", "renew", "sweep_reads", "sweep_reads", "sweep_writes", "sweep_writes", "sweep_writes"),
    *(
        "cancel",
        "operate",
        "operate",
        "prune",
        "expire",
        "expire",
        "time_passes",
        "time_passes",
        "time_passes",
        "time_passes",
    ),
)

#: Ends that mean that the run did what it was for.
SERVED = (Kind.DONE, Kind.AGAIN, Kind.PARK)


class Run(NamedTuple):
    """What a worker holds after its claim: the row as it was then, and how many wakes it has seen."""

    claim: Claim
    job: Job
    wakes: int


class Life:
    """What a row can't tell of itself: what was wanted of it, and what has been done about that."""

    def __init__(self) -> None:
        self.wakes = 0  # committed ones that coalesce, counted
        self.timed = 0  # the last of them that was not for no time at all
        self.served = 0  # the last of them that a full run has seen at its claim
        self.cancelled = 0  # the last of them that came before a cancel
        self.failed = 0  # the last of them that came before the job failed for good
        self.history: list[tuple[datetime, Entry]] = []  # newest first


class Walk(RuleBasedStateMachine):
    """One store, its rows by the pure function, and workers that may be late with anything."""

    store: Store
    policy: Policy

    def __init__(self) -> None:
        super().__init__()
        self.now = NOW
        self.rows: dict[str, Job | None] = dict.fromkeys(IDS)
        self.lives = {id_: Life() for id_ in IDS}
        self.oldest = dict.fromkeys(IDS, 0)  # the generation that a new life must exceed
        self.claims = 0
        self.runs: list[Run] = []
        self.sweeps: list[tuple[str, Decision, int]] = []  # read, decided, not yet written

    # --- steps

    @initialize()
    def work_is_wanted(self) -> None:
        for id_ in IDS:
            self._wake(wake(IDS[id_]))

    @rule(act=st.sampled_from(ACTS), id_=st.sampled_from(sorted(IDS)), seed=st.integers(0, 2**32 - 1))
    def step(self, act: str, id_: str, seed: int) -> None:
        getattr(self, act)(id_, rows.Dice(seed))

    def wake(self, id_: str, dice: rows.Dice) -> None:
        event = wake(
            IDS[id_],
            payload=f'{{"n":{dice.randrange(1000)}}}',
            priority=dice.randint(1, 10),
            run_at=dice.choice((None, None, None, PARKED, rows.later(dice.randrange(3600)))),
            delay=dice.choice((0, 0, 0, 5, 100)),
            once=dice.one_in(5),
            max_retries=dice.choice((None, None, None, 1, 3)),
        )
        self._wake(event)

    def claim(self, id_: str, dice: rows.Dice) -> None:
        self.claims += 1
        self._claim(Claim(id_, str(UUID(int=self.claims, version=4)), "worker", dice.choice((5, 120))))

    def claim_again(self, id_: str, dice: rows.Dice) -> None:
        if self.runs:
            self._claim(dice.choice(self.runs).claim)

    def finish(self, id_: str, dice: rows.Dice) -> None:
        if not self.runs:
            return
        run = self._run(dice)
        kind = dice.choice((*Kind, Kind.AGAIN, Kind.RETRY, Kind.RETRY, Kind.RETRY))
        if kind is Kind.CANCELLED and self.lives[run.job.id].cancelled < run.wakes:
            kind = Kind.DONE  # no cancel has come for it to see
        event = rows.finish_of(dice, run.job)._replace(
            lease_id=run.claim.lease_id,
            attempt=run.job.attempt,
            generation=run.job.generation,
            kind=kind,
            run_at=None,
            delay=dice.choice((0.0, 3.5)),
        )
        self._settle(run.job.id, event)

    def return_unfinished(self, id_: str, dice: rows.Dice) -> None:
        if self.runs:
            run = self._run(dice)
            fence = (run.claim.lease_id, run.job.attempt)
            given_back = GiveBack(*fence, dice.choice((0.5, 60.0)), "type_unknown")
            self._settle(run.job.id, Release(*fence) if dice.one_in(2) else given_back)

    def renew(self, id_: str, dice: rows.Dice) -> None:
        if not self.runs:
            return
        run = self._run(dice)
        id_, lease, attempt = run.job.id, run.claim.lease_id, run.job.attempt
        row, percent = self.rows[id_], dice.randrange(101)
        held = row is not None and (row.state, row.lease_id, row.attempt) == ("processing", lease, attempt)
        stopping = dice.one_in(2) and row is not None and not row.stopping
        asked = Renewal(id_, lease, attempt, dice.choice((None, 1.0, 60.0)), (percent, "so far"), stopping)
        if asked.seconds is None:
            asked = asked._replace(progress=None)
        note(f"renew {asked}")

        answer = self.store.renew([asked], now=self.now)

        cancelled = held and row is not None and row.cancel_requested_at is not None
        assert answer == [Renewed(held, cancelled)]
        if not held or row is None:
            return
        assert row.leased_until is not None
        until = row.leased_until
        if asked.seconds is not None:
            until = max(until, self.now + timedelta(seconds=asked.seconds))
        if asked.progress is not None and percent >= (row.progress_percent or 0):
            row = row._replace(progress_percent=percent, progress_message="so far")
        [found] = self.store.read([id_])
        assert found is not None
        self.rows[id_] = row._replace(
            leased_until=until,
            stopping=row.stopping or stopping,
            revision=row.revision + stopping,
            updated_at=found.updated_at,
        )

    def sweep_reads(self, id_: str, dice: rows.Dice) -> None:
        row = self.rows[id_]
        if row is not None and row.lease_id is not None:
            self.sweeps.append((id_, decide(row, Reclaim(row.lease_id), self.policy), row.revision))

    def sweep_writes(self, id_: str, dice: rows.Dice) -> None:
        if self.sweeps:
            self._write(*self.sweeps.pop(dice.randrange(len(self.sweeps))))

    def cancel(self, id_: str, dice: rows.Dice) -> None:
        if self._settle(id_, Cancel()).answer in (Answer.APPLIED, Answer.REPEATED):
            self.lives[id_].cancelled = self.lives[id_].wakes

    def operate(self, id_: str, dice: rows.Dice) -> None:
        self._settle(id_, dice.choice((Requeue(), Requeue(), Reschedule(delay=0), Reschedule(delay=50))))

    def prune(self, id_: str, dice: rows.Dice) -> None:
        row = self.rows[id_]
        generation = 0 if row is None else row.generation - dice.one_in(3)
        if self._settle(id_, Prune(generation)).answer is Answer.APPLIED:
            assert row is not None
            assert row.finished_at is not None or row.held_at is not None
            assert row.generation == generation
            self.lives[id_].served = self.lives[id_].wakes  # whoever prunes has seen what the row says

    def expire(self, id_: str, dice: rows.Dice) -> None:
        row = self.rows[id_]
        if row is None:
            return
        lease = row.lease_id if dice.one_in(2) else None
        event = Expire(row.generation - dice.one_in(4), row.attempt - dice.one_in(4), lease, dice.one_in(2))
        answer, life = self._settle(id_, event).answer, self.lives[id_]
        if answer in (Answer.APPLIED, Answer.REPEATED) and not event.fail:
            life.cancelled = life.wakes
        elif answer is Answer.APPLIED and lease is not None:
            life.failed = max(life.failed, [run.wakes for run in self.runs if run.claim.lease_id == lease][-1])

    def time_passes(self, id_: str, dice: rows.Dice) -> None:
        self.now += timedelta(seconds=dice.choice((1, 10, 130, 400)))

    # --- what holds after each

    @invariant()
    def rows_are_the_same(self) -> None:
        self.now += timedelta(milliseconds=1)
        for (id_, expected), found in zip(self.rows.items(), self.store.read(list(self.rows)), strict=True):
            assert not differences(found, expected), IDS[id_]
            assert expected is None or rows.impossible(expected) == []

    @invariant()
    def due_are_those_whose_time_has_come(self) -> None:
        runnable = {row.id for row in self.rows.values() if row and row.state == "queued" and row.run_at <= self.now}
        assert {due.id for due in self.store.due(now=self.now)} == runnable

    @invariant()
    def no_wake_is_forgotten(self) -> None:
        for id_, life in self.lives.items():
            row = self.rows[id_]
            if row is None or row.state == "completed":
                assert life.served == life.wakes, "a wake is lost: the row is done"
            elif row.state == "cancelled":
                assert life.wakes <= max(life.served, life.cancelled), "a cancel swallowed a wake that came after it"
            elif row.state == "queued" and row.run_at == PARKED:
                ended = max(life.served, life.cancelled, life.failed)
                assert life.timed <= ended, "a wake is lost: the row is parked"

    def teardown(self) -> None:
        for id_, life in self.lives.items():
            found = [(entry.at, *entry[2:]) for entry in self.store.history(id_)]
            assert found == [(at, *entry[:3], dict(entry.detail)) for at, entry in life.history[:50]]

    # --- how

    def _run(self, dice: rows.Dice) -> Run:
        return dice.choice(self.runs if dice.one_in(3) else self.runs[-1:])

    def _wake(self, event: Wake) -> None:
        note(f"wake {event}")
        row = self.rows[event.id]
        [woken] = self.store.wake([event], now=self.now)
        decision = self._decided(event.id, event)
        assert (woken.created, woken.repeated) == (row is None, decision.answer is Answer.REPEATED)
        if decision.answer is Answer.APPLIED:
            life = self.lives[event.id]
            life.wakes += 1
            if event.run_at != PARKED:
                life.timed = life.wakes

    def _claim(self, event: Claim) -> None:
        note(f"claim {event}")
        life, row = self.lives[event.id], self.rows[event.id]
        [claimed] = self.store.claim([event], now=self.now)
        decision = self._decided(event.id, event)
        taken = decision.answer in (Answer.APPLIED, Answer.REPEATED)
        assert not differences(claimed.job, self.rows[event.id] if taken else None)
        if decision.answer is Answer.APPLIED and claimed.job is not None:
            assert row is not None
            assert life.wakes > life.cancelled or "requeued" in [entry.kind for _, entry in life.history]
            self.runs.append(Run(event, claimed.job, life.wakes))

    def _settle(self, id_: str, event: Event) -> Decision:
        row = self.rows[id_]
        decision = decide(row, event, self.policy)
        note(f"{event}: {decision.answer}, {decision.state}")
        if row is None or not self._write(id_, decision, row.revision):
            return decision
        if isinstance(event, Finish):
            life, fence = self.lives[id_], (event.lease_id, event.attempt)
            wakes = [run.wakes for run in self.runs if (run.claim.lease_id, run.job.attempt) == fence][-1]
            if event.kind in SERVED:
                life.served = max(life.served, wakes)
            elif decision.write is not None and decision.write.run_in is None:
                life.failed = max(life.failed, wakes)  # for good, though a newer wake keeps the row
        return decision

    def _write(self, id_: str, decision: Decision, revision: int) -> bool:
        row, write = self.rows[id_], decision.write
        note(f"write {write} at {self.now}")
        lapsed = row is not None and row.leased_until is not None and row.leased_until < self.now
        written = write is not None and row is not None and row.revision == revision and (lapsed or not write.lapsed)
        assert self.store.swap([Change(id_, revision, decision)], now=self.now) == [written]
        if written:
            life = self.lives[id_]
            life.history = [(self.now, entry) for entry in reversed(decision.history)] + life.history
            self._become(id_, evaluate(row, decision, self.now))
        return written

    def _decided(self, id_: str, event: Wake | Claim) -> Decision:
        row = self.rows[id_]
        decision = decide(row, event, self.policy, now=self.now)
        if decision.write is not None:
            self._become(id_, evaluate(row, decision, self.now))
        return decision

    def _become(self, id_: str, row: Job | None) -> None:
        was = self.rows[id_]
        if row is None:
            assert was is not None
            self.oldest[id_], self.lives[id_].history = was.generation, []
        elif was is None:
            assert row.generation > self.oldest[id_]
        else:
            assert row.generation >= was.generation
            assert row.attempt >= was.attempt
            if row.state == "failed":
                self.lives[id_].failed = self.lives[id_].wakes
        self.rows[id_] = row


@pytest.mark.timeout(400)  # a walk that fails is made as short as can be, which takes its time
@pytest.mark.parametrize("keep_finished", [True, False])
def test_a_store_and_the_pure_function_live_the_same_lives(store: Store, adapter: Adapter, keep_finished: bool) -> None:
    class Here(Walk):
        def __init__(self) -> None:
            adapter.plant(store, [])
            self.store, self.policy = store, Policy(TYPE, keep_finished=keep_finished, quarantine_after=2)
            super().__init__()

    run_state_machine_as_test(
        Here,
        settings=settings(
            max_examples=20, stateful_step_count=50, deadline=None, print_blob=True, report_multiple_bugs=False
        ),
    )
