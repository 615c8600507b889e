"""Lifecycle events: what is written, in which order it is read, and what becomes of it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store import clock
from store.contract import ANY_VERSION, Change, Document, Store
from store.errors import CursorTooOld, Refused
from store.events import Cancel, Claim, Event, Failure, Kind, Release, Requeue, Reschedule, Wake
from store.job import Job
from store.outbox import Event as Told
from store.outbox import Limits, Name, events_of
from store.policy import Policy
from store.transitions import Write, decide, evaluate
from tests.contract import rows
from tests.contract.acts import GivenUp, at_once, change, read, settle, take
from tests.contract.adapters import Adapter
from tests.contract.rows import NOW, TYPE, finish, row, wake
from tests.contract.test_equal_to_transitions import POLICY, PROOF

LIMITS = Limits(queue_latency=30.0, duration=100.5)


def turn(store: Store, *, on: bool = True) -> None:
    """Switch events on or off."""
    store.put(Document("outbox", "events", ANY_VERSION, {"on": on}))
    store.arm()


def limit(store: Store, job_type: str = TYPE, domain: str | None = None, **limits: Any) -> None:
    """Set an SLA."""
    key = job_type if domain is None else f"{job_type}\x1f{domain}"
    store.put(Document("sla", key, ANY_VERSION, limits))
    store.arm()


def told(store: Store, after: int | None = None, **names: Any) -> list[Told]:
    """All events behind ``after``."""
    return store.events(after, limit=100_000, **names).events


def names(store: Store, after: int | None = None) -> list[str]:
    return [event.name for event in told(store, after)]


def plain(events: Sequence[Told]) -> list[Told]:
    """Events as they can be compared: a database adds in its own arithmetic, and a deletion has its own clock."""
    compared = []
    for event in events:
        run_at = event.run_at
        if run_at != clock.PARKED:
            run_at -= timedelta(microseconds=run_at.microsecond)
        compared.append(event._replace(position=0, run_at=run_at))
    return compared


def newest(store: Store) -> int:
    return store.extent().newest


def without_time(events: Sequence[Told]) -> list[Told]:
    return [event._replace(at=NOW, seconds=None) for event in plain(events)]


def test_nothing_is_written_unless_it_was_asked_for(store: Store, jobs: list[Job]) -> None:
    store.wake([wake("new")])
    settle(store, jobs[0], finish(jobs[0]))

    assert told(store) == []
    assert store.extent() == (1, 0)


def test_switching_again_changes_nothing_and_off_is_off(store: Store, other: Store) -> None:
    turn(store)
    assert not other.arm()
    other.wake([wake("a")])
    turn(other, on=False)
    store.wake([wake("b")])
    turn(store)
    store.wake([wake("c")])

    assert [event.job_id for event in told(store)] == [wake(key).id for key in "ac"]


def test_a_life_is_told_in_order_with_ids_names_and_times_only(store: Store) -> None:
    turn(store)
    secret = "s3cr3t-word"
    asked = wake("a", payload=f'{{"token":"{secret}"}}', request_id="req-7", trace="00-abc-def-01", owner="me")
    store.wake([asked], now=NOW)
    job = take(store, asked.id, now=rows.later(4))
    failure = Failure("ValueError", "broken", secret, "jobs.py:7")
    settle(store, job, finish(job, Kind.RETRY, failure=failure), now=rows.later(6.5))
    store.wake([asked], now=rows.later(7))
    job = take(store, asked.id, now=rows.later(400))
    settle(store, job, Cancel(), now=rows.later(401))
    settle(store, read(store, job.id), finish(job, result=f'"{secret}"', progress=(50, secret)), now=rows.later(402))

    found = told(store)

    assert [event.name for event in found] == [
        "job.created", "job.claimed", "job.retry_scheduled", "job.woken", "job.claimed", "job.cancel_requested",
        "job.completed",
    ]  # fmt: skip
    assert [event.position for event in found] == list(range(1, 8))
    assert {event.job_id for event in found} == {asked.id}
    assert {(event.request_id, event.trace, event.owner, event.key) for event in found} == {
        ("req-7", "00-abc-def-01", "me", "a")
    }
    assert [event.state for event in found][-2:] == ["processing", "completed"]
    assert [event.attempt for event in found] == [0, 1, 1, 1, 2, 2, 2]
    assert [event.code for event in found] == [None, None, "broken", None, None, None, None]
    assert [event.seconds for event in found] == [None, 4.0, 2.5, None, 393.0, None, 2.0]
    assert found[-1].at == rows.later(402)
    assert secret not in repr(found)


def test_every_way_of_a_row_has_its_name(store: Store, adapter: Adapter) -> None:
    turn(store)
    adapter.plant(store, [row("processing", key=key) for key in "abcdef"] + [row("quarantined", key="g")])
    a, b, c, d, e, _, g = (read(store, row(key=key).id) for key in "abcdefg")
    start = newest(store)
    settle(store, a, finish(a, Kind.PARK))
    settle(store, b, finish(b, Kind.AGAIN, delay=5))
    settle(store, c, Release(c.lease_id or "", c.attempt))
    settle(store, d, finish(d, Kind.FAIL))
    settle(store, e, finish(e), Policy(TYPE, keep_finished=False))
    settle(store, g, Requeue())
    settle(store, read(store, g.id), Reschedule(delay=3600))
    settle(store, read(store, g.id), Cancel())
    store.swap([change(read(store, g.id), Write(delete=True))])

    assert names(store, start) == [
        "job.parked", "job.rescheduled", "job.released", "job.failed", "job.completed", "job.deleted", "job.requeued",
        "job.rescheduled", "job.cancelled", "job.deleted",
    ]  # fmt: skip


@PROOF
@given(st.lists(rows.jobs(), min_size=1, max_size=6, unique_by=lambda job: job.id), st.data())
def test_random_changes_are_told_as_the_function_says(
    store: Store, adapter: Adapter, jobs: list[Job], data: st.DataObject
) -> None:
    turn(store)
    limits = data.draw(st.sampled_from((Limits(), LIMITS, Limits(duration=1e6), Limits(queue_latency=0.5))))
    limit(store, **{name: value for name, value in limits._asdict().items() if value is not None})
    adapter.plant(store, jobs)
    start = newest(store)

    for seed in data.draw(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=6)):
        dice = rows.Dice(seed)
        first = dice.choice(jobs)
        [was] = store.read([first.id])
        meet = dice.choice((rows.wake_of, rows.claim_of, rows.event_of, rows.event_of))
        event: Event = meet(dice, was or first)
        policy = POLICY if isinstance(event, (Wake, Claim)) else rows.policy_of(dice)
        decision = decide(was, event, policy, now=NOW)
        if isinstance(event, Wake):
            store.wake([event], now=NOW)
        elif isinstance(event, Claim):
            store.claim([event], now=NOW)
        elif was is not None:
            [written] = store.swap([Change(was.id, was.revision, decision)], now=NOW)
            decision = decision if written else decision._replace(write=None)
        expected = events_of(was, evaluate(was, decision, NOW), limits) if decision.write is not None else []

        found = told(store, start)
        same = plain if store.read([first.id]) != [None] else without_time
        if same is without_time:
            # When a row is deleted is for the database's clock to say, so whether it took too long is as well.
            found, expected = (
                [event for event in events if event.name != Name.SLA_BREACHED] for events in (found, expected)
            )
        assert same(found) == same(expected), event
        start = newest(store)


def test_what_is_rolled_back_is_not_told_and_leaves_no_gap(store: Store) -> None:
    turn(store)
    store.wake([wake("a")])
    with pytest.raises(GivenUp):
        with store.transaction() as tx:
            tx.wake([wake("b")])
            raise GivenUp
    with store.transaction() as tx:
        tx.wake([wake("c"), wake("d")])

    found = told(store)
    assert [event.position for event in found] == [1, 2, 3]
    assert [event.key for event in found] == ["a", "c", "d"]


def test_a_page_goes_on_where_the_last_one_ended_and_filters_move_the_cursor(store: Store) -> None:
    turn(store)
    for number in range(6):
        store.wake([wake(str(number), domain="odd" if number % 2 else "even", queue="low")])

    page = store.events(0, limit=4)
    assert ([event.key for event in page.events], page.cursor) == (list("0123"), 4)
    page = store.events(page.cursor, limit=4)
    assert ([event.key for event in page.events], page.cursor) == (list("45"), 6)
    assert store.events(6).events == []
    odd = store.events(0, domain="odd", limit=2)
    assert ([event.key for event in odd.events], odd.cursor) == (["1", "3"], 4)
    assert store.events(0, queue="high") == ([], 6)
    assert len(told(store, 0, queue="low", job_type=TYPE)) == 6
    assert told(store, 0, job_type="other") == []
    with pytest.raises(Refused):
        store.events(7)


def test_readers_and_writers_at_once_see_each_event_once_and_in_one_order(store: Store, other: Store) -> None:
    turn(store)
    stores, seen = (store, other), []

    def write(number: int) -> None:
        for step in range(6):
            stores[number % 2].wake([wake(f"{number}", payload=f'{{"n":{step}}}'), wake("shared")])

    def follow(number: int) -> list[Told]:
        found: list[Told] = []
        deadline = clock.elapsed() + 60
        while len(found) < 48 and clock.elapsed() < deadline:
            found += stores[number % 2].events(found[-1].position if found else 0, limit=7).events
        return found

    writers = [lambda number=number: write(number) for number in range(4)]
    readers = [lambda number=number: follow(number) for number in range(3)]
    seen = [found for found in at_once([*writers, *readers]) if found is not None]

    assert len(seen) == 3
    assert seen[0] == seen[1] == seen[2]
    assert [event.position for event in seen[0]] == list(range(1, 49))
    for job_id in {event.job_id for event in seen[0]}:
        revisions = [event.revision for event in seen[0] if event.job_id == job_id]
        assert revisions == list(range(1, len(revisions) + 1))


def test_switching_while_others_work_loses_no_work(store: Store, other: Store) -> None:
    def work() -> int:
        return sum(other.wake([wake(str(number))])[0].created for number in range(30))

    def switch() -> int:
        for number in range(6):
            turn(store, on=number % 2 == 0)
        return 0

    assert at_once([work, switch]) == [30, 0]


def test_events_are_pruned_by_age_up_to_a_position_and_a_late_reader_is_told(store: Store) -> None:
    turn(store)
    for number, age in enumerate((-1000, -900, -20, -800, 0)):
        store.wake([wake(str(number))], now=rows.later(age))
    assert store.extent() == (1, 5)

    assert store.prune_events(seconds=500, through=1, now=NOW) == 1
    assert store.prune_events(seconds=500, through=5, limit=1, now=NOW) == 1
    assert store.prune_events(seconds=500, through=5, now=NOW) == 0  # the third is young, and the fourth behind it
    assert store.extent() == (3, 5)
    for cursor in (0, 1):
        with pytest.raises(CursorTooOld):
            store.events(cursor)
    assert [event.position for event in store.events(2).events] == [3, 4, 5]
    assert [event.position for event in store.events(None).events] == [3, 4, 5]

    assert store.prune_events(seconds=0, through=5, now=rows.later(1)) == 3
    assert store.extent() == (6, 5)
    assert store.events(None) == ([], 5)
    store.wake([wake("more")])
    assert [event.position for event in store.events(5).events] == [6]


# --- limits -----------------------------------------------------------------------------------------------------------


def breaches(store: Store, job: Job) -> list[Any]:
    return [(entry.code, dict(entry.detail)) for entry in store.history(job.id) if entry.kind == "sla_breached"]


@pytest.mark.parametrize("events", [True, False])
def test_a_breach_is_told_and_noted_at_the_claim_and_at_the_end(store: Store, events: bool) -> None:
    turn(store, on=events)
    limit(store, queue_latency=3, duration=2.5)
    store.wake([wake("a"), wake("b")], now=NOW)
    a, b = take(store, wake("a").id, now=rows.later(3.5)), take(store, wake("b").id, now=rows.later(3))
    settle(store, a, finish(a), now=rows.later(6))
    settle(store, b, finish(b, Kind.RETRY), now=rows.later(8))

    assert breaches(store, a) == [("queue_latency", {"seconds": 3.5, "allowed": 3.0})]
    assert breaches(store, b) == [("duration", {"seconds": 5.0, "allowed": 2.5})]
    found = [event for event in told(store) if event.name == "job.sla_breached"]
    expected = [(a.id, "queue_latency", 3.5, 3.0), (b.id, "duration", 5.0, 2.5)] if events else []
    assert [(event.job_id, event.code, event.seconds, event.allowed) for event in found] == expected


def test_a_domains_own_limits_stand_in_place_of_the_types(store: Store) -> None:
    turn(store)
    limit(store, queue_latency=3)
    limit(store, domain="slow", queue_latency=100)
    limit(store, job_type="other", queue_latency=1)
    asked = [wake("a"), wake("a", domain="slow")]
    store.wake(asked, now=NOW)
    for each in asked:
        take(store, each.id, now=rows.later(50))
    assert [event.domain for event in told(store) if event.name == "job.sla_breached"] == ["default"]

    limit(store, domain="slow", removed=True)
    store.wake([wake("b", domain="slow")], now=NOW)
    take(store, wake("b", domain="slow").id, now=rows.later(50))
    assert [event.key for event in told(store) if event.name == "job.sla_breached"] == ["a", "b"]


def test_a_run_that_deletes_its_row_can_breach_too(store: Store, adapter: Adapter) -> None:
    turn(store)
    limit(store, duration=1)
    adapter.plant(store, [row("processing", started_at=rows.later(-100))])
    job = read(store, row().id)
    start = newest(store)
    settle(store, job, finish(job), Policy(TYPE, keep_finished=False))
    assert names(store, start) == ["job.completed", "job.sla_breached", "job.deleted"]


def test_limits_that_are_removed_cost_nothing_any_more(store: Store, adapter: Adapter) -> None:
    limit(store, queue_latency=1)
    limit(store, removed=True)
    assert not store.arm()
    store.wake([wake("a")], now=NOW)
    assert breaches(store, take(store, wake("a").id, now=rows.later(50))) == []
