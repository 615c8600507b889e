"""Each store does to random rows exactly what the pure function says, field by field, at a frozen now."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from store.contract import Change, Claimed, Store
from store.events import Claim, Event, Wake
from store.job import Job
from store.policy import Policy
from store.transitions import Answer, decide, evaluate
from tests.contract import rows
from tests.contract.acts import differences
from tests.contract.adapters import Adapter
from tests.contract.rows import NOW, TYPE

POLICY = Policy(TYPE)

PROOF = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], print_blob=True
)

Met = TypeVar("Met", bound=Event)


class Meeting(NamedTuple, Generic[Met]):
    """A row, what happens to it, and whether the row is there at all."""

    job: Job
    event: Met
    there: bool


def meetings(event_of: Callable[[rows.Dice, Job], Met], *, missing: bool) -> st.SearchStrategy[list[Meeting[Met]]]:
    """Meetings of rows that can stand in one database together."""

    def meet(dice: rows.Dice) -> Meeting[Met]:
        job = rows.job_of(dice)
        return Meeting(job, event_of(dice, job), not missing or not dice.one_in(4))

    return st.lists(rows.rolled(meet), min_size=1, max_size=25, unique_by=lambda meeting: meeting.job.id)


@PROOF
@given(meetings(rows.wake_of, missing=True))
def test_a_wake_does_what_the_function_says(store: Store, adapter: Adapter, meetings: list[Meeting[Wake]]) -> None:
    before = {job.id: job for job, _, there in meetings if there}
    adapter.plant(store, before.values())
    wakes = [event for _, event, _ in meetings]

    answers = store.wake(wakes, now=NOW)

    for event, found, woken in zip(wakes, store.read([event.id for event in wakes]), answers, strict=True):
        was = before.get(event.id)
        decision = decide(was, event, POLICY, now=NOW)
        left = evaluate(was, decision, NOW)
        assert left is not None
        assert not differences(found, left), event
        assert found is not None
        assert woken == (
            event.id,
            decision.state,
            left.generation,
            found.run_at,
            was is None,
            decision.answer is Answer.REPEATED,
            left.state == "queued" and left.run_at <= NOW,
        )


@PROOF
@given(meetings(rows.claim_of, missing=True))
def test_a_claim_does_what_the_function_says(store: Store, adapter: Adapter, meetings: list[Meeting[Claim]]) -> None:
    before = {job.id: job for job, _, there in meetings if there}
    adapter.plant(store, before.values())
    claims = [event for _, event, _ in meetings]

    answers = store.claim(claims, now=NOW)

    for event, found, claimed in zip(claims, store.read([event.id for event in claims]), answers, strict=True):
        was = before.get(event.id)
        decision = decide(was, event, POLICY, now=NOW)
        left = evaluate(was, decision, NOW)
        assert not differences(found, left), event
        if decision.answer in (Answer.APPLIED, Answer.REPEATED):
            assert not differences(claimed.job, left), event
            assert not claimed.held
        else:
            assert claimed == Claimed(None, held=False)


@PROOF
@given(meetings(rows.event_of, missing=False), rows.rolled(rows.policy_of))
def test_a_decision_that_is_swapped_in_leaves_what_the_function_says(
    store: Store, adapter: Adapter, meetings: list[Meeting[Event]], policy: Policy
) -> None:
    jobs = [job for job, _, _ in meetings]
    adapter.plant(store, jobs)
    decisions = [decide(job, event, policy) for job, event, _ in meetings]

    answers = store.swap(
        [Change(job.id, job.revision, decision) for job, decision in zip(jobs, decisions, strict=True)], now=NOW
    )

    for job, decision, answer, found in zip(
        jobs, decisions, answers, store.read([job.id for job in jobs]), strict=True
    ):
        write = decision.write
        lapsed = job.leased_until is not None and job.leased_until < NOW
        written = write is not None and (lapsed or not write.lapsed)
        assert answer == written
        assert not differences(found, evaluate(job, decision, NOW) if written else job), decision
        recorded = [tuple(entry)[2:] for entry in store.history(job.id)]
        kept = decision.history if written and found is not None else ()
        assert recorded == [(entry.kind, entry.attempt, entry.code, dict(entry.detail)) for entry in reversed(kept)]


@PROOF
@given(rows.jobs(), st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=8))
def test_events_that_come_one_after_the_other_leave_what_the_function_says(
    store: Store, adapter: Adapter, first: Job, seeds: list[int]
) -> None:
    adapter.plant(store, [first])
    job: Job | None = first

    for step, seed in enumerate(seeds):
        now, dice = rows.later(step * 7), rows.Dice(seed)
        meet = dice.choice((rows.wake_of, rows.claim_of, rows.event_of, rows.event_of))
        event: Event = meet(dice, job or first)
        decision = decide(job, event, POLICY, now=now)
        if isinstance(event, Wake):
            store.wake([event], now=now)
        elif isinstance(event, Claim):
            store.claim([event], now=now)
        elif job is not None and not store.swap([Change(job.id, job.revision, decision)], now=now)[0]:
            assert decision.write is None or (decision.write.lapsed and job.leased_until and job.leased_until >= now)
            decision = decision._replace(write=None)
        [found] = store.read([first.id])
        assert not differences(found, evaluate(job, decision, now)), event
        job = found
