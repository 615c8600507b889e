"""What is due: the same predicate as a claim's, in the order of the offer, page by page."""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from store.contract import Due, Store
from store.job import Job
from tests.contract import rows
from tests.contract.acts import pause, publish
from tests.contract.adapters import Adapter
from tests.contract.rows import NOW, TYPE, later, row, wake


def due_of(job: Job) -> Due:
    """What ``due`` tells of a row."""
    return Due(job.id, job.queue, job.priority, job.run_at)


def in_order(jobs: list[Job]) -> list[Due]:
    """Rows of one queue as they are to be offered."""
    return [due_of(job) for job in sorted(jobs, key=lambda job: (job.priority, job.run_at, job.id))]


def test_the_more_urgent_then_the_longer_due_then_the_smaller_id_comes_first(store: Store, adapter: Adapter) -> None:
    jobs = [
        row(key=f"{priority}-{seconds}-{twin}", priority=priority, run_at=later(-seconds))
        for priority in (10, 1, 5)
        for seconds in (0, 10, 0.000001)
        for twin in range(3)
    ]
    adapter.plant(store, jobs)

    assert store.due(now=NOW) == in_order(jobs)


def test_each_queue_has_its_own_limit(store: Store, adapter: Adapter) -> None:
    jobs = [row(key=str(number), queue=queue) for queue in ("default", "high", "a b") for number in range(7)]
    adapter.plant(store, jobs)

    found = store.due(limit=4, now=NOW)

    for queue in ("default", "high", "a b"):
        expected = in_order([job for job in jobs if job.queue == queue])
        assert [due for due in found if due.queue == queue] == expected[:4]
    assert len(found) == 12


def test_pages_go_on_where_the_last_one_ended_and_only_for_the_queues_that_are_named(
    store: Store, adapter: Adapter
) -> None:
    jobs = [
        row(key=str(number), queue=queue, priority=1 + number % 3, run_at=later(-(number % 4)))
        for queue in ("default", "high", "low")
        for number in range(20)
    ]
    adapter.plant(store, jobs)
    expected = {queue: in_order([job for job in jobs if job.queue == queue]) for queue in ("default", "high", "low")}

    first = store.due(limit=6, now=NOW)
    last = {due.queue: due for due in first}
    low = last.pop("low")
    second = store.due(limit=50, after=last, now=NOW)

    assert {due.queue for due in second} == {"default", "high"}
    for queue in ("default", "high"):
        assert [due for due in first + second if due.queue == queue] == expected[queue]
    assert store.due(limit=6, after={"low": low}, now=NOW) == expected["low"][6:12]


def test_a_page_after_the_last_row_is_empty_and_after_nothing_too(store: Store, adapter: Adapter) -> None:
    adapter.plant(store, [row()])
    [only] = store.due(now=NOW)

    assert store.due(after={"default": only}, now=NOW) == []
    assert store.due(after={"elsewhere": only._replace(queue="elsewhere")}, now=NOW) == []
    assert store.due(after={}, now=NOW) == []


@pytest.mark.parametrize("why", ["paused for its domain", "of an unknown type", "both"])
def test_a_healthy_row_is_not_hidden_behind_many_that_may_not_run(store: Store, adapter: Adapter, why: str) -> None:
    domain = "elsewhere" if why != "of an unknown type" else "default"
    job_type = "test.unknown" if why != "paused for its domain" else TYPE
    pause(store, "default", "elsewhere")
    stuck = [
        row(key=f"stuck-{number}", domain=domain, job_type=job_type, priority=1, run_at=later(-1000))
        for number in range(150)
    ]
    healthy = row(key="healthy", priority=10)
    adapter.plant(store, [*stuck, healthy])

    assert store.due(limit=100, now=NOW) == [due_of(healthy)]
    assert store.due(limit=1, now=NOW) == [due_of(healthy)]


def test_what_is_due_is_seen_by_the_databases_clock(store: Store) -> None:
    store.wake([wake("now"), wake("soon", delay=3600), wake("past", run_at=later(-(10**8)))])

    assert [due.id for due in store.due()] == [wake("past").id, wake("now").id]


def test_nothing_is_due_where_there_is_nothing(store: Store) -> None:
    assert store.due() == []
    assert store.due(now=NOW) == []


QUEUES = ("default", "high", "low")
DOMAINS = ("default", "elsewhere")
TYPES = (TYPE, "test.other", "test.unknown")


def crowded(dice: rows.Dice) -> Job:
    """A plain row in few queues, domains and types, so that rows crowd each other."""
    state = dice.choice(("queued", "queued", "queued", *rows.STATES))
    job = row(
        state,
        key=str(dice.randrange(1000)),
        domain=dice.choice(DOMAINS),
        queue=dice.choice(QUEUES),
        job_type=dice.choice(TYPES),
        priority=dice.randint(1, 3),
    )
    return job._replace(run_at=dice.run_at()) if state == "queued" else job


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], print_blob=True)
@given(
    jobs=st.lists(rows.rolled(crowded), max_size=40, unique_by=lambda job: job.id),
    paused=st.sets(st.tuples(st.sampled_from(QUEUES), st.sampled_from([None, *DOMAINS])), max_size=3),
    limit=st.sampled_from([1, 2, 7]),
)
def test_pages_of_any_size_name_every_runnable_row_once(
    store: Store, adapter: Adapter, jobs: list[Job], paused: set[tuple[str, str | None]], limit: int
) -> None:
    publish(store, "test.other")
    for queue, domain in paused:
        pause(store, queue, domain)
    adapter.plant(store, jobs)
    runnable = defaultdict(list)
    for job in jobs:
        stopped = {(job.queue, None), (job.queue, job.domain)} & paused
        if job.state == "queued" and job.run_at <= NOW and job.job_type != "test.unknown" and not stopped:
            runnable[job.queue].append(job)

    found = page = store.due(limit=limit, now=NOW)
    while page:
        page = store.due(limit=limit, after={due.queue: due for due in page}, now=NOW)
        found = found + page

    for queue, domain in paused:
        pause(store, queue, domain, paused=False)
    for queue in QUEUES:
        assert [due for due in found if due.queue == queue] == in_order(runnable[queue])
    assert len(found) == sum(map(len, runnable.values()))
