"""Knows only what must hold, sees only what was asked and answered, and judges the whole history."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from store.clock import PARKED
from store.contract import Woken
from store.events import Finish, Kind
from store.job import TERMINAL, Job, State
from store.operations import Settled
from store.transitions import Answer

#: States in which wanted work rests where an operator sees it and can release it.
HELD = frozenset({State.QUARANTINED, State.FAILED, State.CANCELLED})

SUCCESS = frozenset({Kind.DONE, Kind.AGAIN, Kind.PARK})


class Broken(AssertionError):
    """Something that must always hold did not."""


class Case:
    """What is known of one job."""

    def __init__(self) -> None:
        self.wakes = 0  # committed
        self.served = 0  # of these, how many came before the start of a full run that was believed
        self.generation = 0
        self.attempt = 0
        self.born: datetime | None = None
        self.holder: str | None = None  # the lease under which it runs, as far as the database has said
        self.until = PARKED  # how long that lease was said to last
        self.wanted = PARKED  # the earliest time that was asked for since the last claim
        self.seen: dict[str, int] = {}  # by lease: wakes committed when it began
        self.ended: set[str] = set()  # leases that are over


class Auditor:
    """Each ``told`` method takes what a step did; any of them may raise Broken."""

    def __init__(self) -> None:
        self.cases: dict[str, Case] = {}
        self.finishes = self.stale = self.runs = 0

    def case(self, id_: str) -> Case:
        """The job of ``id_``."""
        return self.cases.setdefault(id_, Case())

    def woken(self, told: Iterable[Woken], *, once: bool = False) -> None:
        """Wakes were committed."""
        for row in told:
            case = self.case(row.id)
            if row.repeated:
                _must(once and not row.created, f"{row.id}: a wake that coalesces was told to be a replay")
                continue
            case.wakes += 1
            _must(row.generation > case.generation, f"{row.id}: a wake made no new generation")
            case.generation = row.generation
            case.wanted = min(case.wanted, row.run_at)

    def claimed(self, job: Job, *, again: bool = False, copy: bool = False) -> None:
        """The database gave the row to a lease; ``again``: to whoever asked anew, since the answer was lost, and begins
        only now; ``copy``: to a message that the network had kept, and nobody begins."""
        case, lease = self.case(job.id), job.lease_id or ""
        if copy and lease == case.holder:
            return
        if again and lease == case.holder:
            case.seen[lease], case.wanted = case.wakes, PARKED
            return
        # A copy may outlive the row that it was meant for: the next one under this id knows nothing of it.
        fresh = job.created_at != case.born
        _must(fresh or lease not in case.ended, f"{job.id}: a lease that had ended got the row")
        _must(case.holder is None, f"{job.id}: two leases hold the row")
        if not fresh:
            _must(job.attempt > case.attempt, f"{job.id}: an attempt was counted twice")
        case.born, case.attempt, case.holder = job.created_at, job.attempt, lease
        case.seen[lease] = case.wakes
        case.until, case.wanted = job.leased_until or PARKED, PARKED
        self.runs += 1

    def renewed(self, job: Job, held: bool, until: datetime) -> None:
        """A run asked for time until then."""
        if held:
            self.case(job.id).until = max(self.case(job.id).until, until)
        ours = self.case(job.id).holder == job.lease_id and self.case(job.id).born == job.created_at
        _must(held == ours, f"{job.id}: a renewal was {'granted to a lost' if held else 'refused to a standing'} lease")

    def finished(self, job: Job, finish: Finish, settled: Settled, after: Job | None) -> None:
        """A run said how it ended, for the first time or again; ``after`` is the row a moment later."""
        case, answer = self.case(job.id), settled.answer
        ours = case.holder == finish.lease_id and job.created_at == case.born
        self.finishes += 1
        if answer is None:
            return
        if answer is not Answer.APPLIED:
            self.stale += answer is Answer.STALE
            _must(not ours, f"{job.id}: the finish of a standing lease was answered {answer}")
            seen_row = settled.job  # as it was when that was decided
            known = seen_row is not None and seen_row.finish_token == finish.lease_id
            _must(known == (answer is Answer.REPEATED), f"{job.id}: a finish sent again was answered {answer}")
            return
        _must(ours, f"{job.id}: the finish of a lost lease was believed")
        seen = case.seen[finish.lease_id]
        self._free(case, finish.lease_id)
        if finish.kind in SUCCESS:
            case.served = max(case.served, seen)
        if case.wakes > seen:
            _must(after is not None, f"{job.id}: a finish deleted a row that had been woken meanwhile")
            assert after is not None
            asked = after.state == State.QUEUED and after.run_at != PARKED
            _must(asked or after.state in HELD, f"{job.id}: a finish ended a job that had been woken meanwhile")
            late = after.state == State.QUEUED and after.run_at > case.wanted
            _must(not late, f"{job.id}: a finish put off a wake that had come meanwhile")

    def left(self, id_: str, lease: str, settled: Settled, *, lapsed_at: datetime | None = None) -> None:
        """A lease was given back, or (``lapsed_at``) taken back at that moment."""
        case = self.case(id_)
        if settled.answer is Answer.APPLIED:
            _must(lapsed_at is None or case.until < lapsed_at, f"{id_}: a lease was taken back that had not run out")
            _must(case.holder == lease, f"{id_}: a lease was ended that did not stand")
            self._free(case, lease)

    def deleted(self, job: Job) -> None:
        """An operator removed a row that he saw at rest: what was wanted of it is his to know."""
        case = self.case(job.id)
        _must(job.state in TERMINAL | {State.QUARANTINED}, f"{job.id}: a row was removed while it was {job.state}")
        case.served = case.wakes
        case.born = None

    def moved(self, job: Job) -> None:
        """An operator's word about the time of a row is the newest."""
        self.case(job.id).wanted = job.run_at

    def rows(self, rows: Iterable[Job]) -> None:
        """All rows, at any moment."""
        found = {job.id: job for job in rows}
        for id_, case in self.cases.items():
            job = found.get(id_)
            lease = None if job is None else job.lease_id
            _must(lease == case.holder, f"{id_}: the row is under another lease than the one it was given to")
        for job in found.values():
            running, ended = job.state == State.PROCESSING, job.state in TERMINAL
            _must((job.lease_id is not None) == running, f"{job.id}: a lease on a row that is {job.state}")
            _must((job.finished_at is not None) == ended, f"{job.id}: finished_at on a row that is {job.state}")
            _must(1 <= job.priority <= 10 and job.retries >= 0, f"{job.id}: an impossible figure")

    def at_rest(self, rows: Iterable[Job]) -> None:
        """The faults are over and everything has come to rest: nothing wanted is lost."""
        found = {job.id: job for job in rows}
        for id_, case in self.cases.items():
            job = found.get(id_)
            if job is not None and job.state in HELD:
                continue
            state = "gone" if job is None else f"{job.state} (parked: {job.run_at == PARKED})"
            _must(
                case.served >= case.wakes, f"{id_}: {case.wakes - case.served} wakes were never served; it is {state}"
            )
            _must(case.holder is None, f"{id_}: still running")
            resting = job is None or job.state in TERMINAL or job.run_at == PARKED
            _must(resting, f"{id_}: stuck: it is {state}")

    @staticmethod
    def _free(case: Case, lease: str) -> None:
        case.ended.add(lease)
        case.holder = None


def _must(holds: bool, otherwise: str) -> None:
    if not holds:
        raise Broken(otherwise)
