"""Which rows: filters, order, pages and counts, against the same asked of plain Python."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from store import identity
from store.clock import PARKED
from store.contract import Store
from store.filters import Filter, Order, Tally
from store.identity import job_id
from store.job import TERMINAL, Job
from tests.contract import rows
from tests.contract.acts import read
from tests.contract.adapters import Adapter
from tests.contract.rows import NOW, TYPE, later, row, wake

DOMAINS = ("default", "Default", "ä")
QUEUES = ("default", "high")
TYPES = (TYPE, "test.other")
KEYS = ("k1", "k2", "k3", "%", "_")


def phase_of(job: Job, now: datetime) -> str:
    """The state, with ``queued`` told apart."""
    if job.state != "queued":
        return job.state
    return "parked" if job.run_at == PARKED else "ready" if job.run_at <= now else "scheduled"


def matches(job: Job, asked: Filter, now: datetime) -> bool:
    """What the words of Filter say."""
    plain = ("domain", "queue", "job_type", "key", "owner", "failure_code")
    return (
        all(getattr(asked, name) in (None, getattr(job, name)) for name in plain)
        and (asked.ids is None or job.id in asked.ids)
        and (asked.states is None or job.state in asked.states)
        and asked.phase in (None, phase_of(job, now))
        and (asked.lapsed is None or asked.lapsed == (job.leased_until is not None and job.leased_until < now))
        and (asked.created_before is None or job.created_at < asked.created_before)
        and (asked.run_before is None or job.run_at < asked.run_before)
        and (asked.finished_before is None or (job.finished_at is not None and job.finished_at < asked.finished_before))
        and (asked.after_id is None or job.id > asked.after_id)
        and (asked.waiting_over is None or (job.state == "queued" and is_over(job.run_at, asked.waiting_over, now)))
        and (
            asked.running_over is None
            or (job.state == "processing" and is_over(job.started_at, asked.running_over, now))
        )
        and (
            asked.lapsed_over is None
            or (job.state == "processing" and is_over(job.leased_until, asked.lapsed_over, now))
        )
        and (asked.ended_over is None or is_over(job.finished_at or job.held_at, asked.ended_over, now))
    )


def is_over(moment: datetime | None, seconds: float, now: datetime) -> bool:
    """Whether ``moment`` lies at least so many seconds back."""
    return moment is not None and moment <= now - timedelta(seconds=seconds)


def crowded(dice: rows.Dice) -> Job:
    """A row of few names, so that filters find some of them."""
    changes: dict[str, Any] = {
        "domain": dice.choice(DOMAINS),
        "queue": dice.choice(QUEUES),
        "job_type": dice.choice(TYPES),
        "key": dice.choice(KEYS),
        "owner": dice.maybe(("o1", "o2")),
        "priority": dice.randint(1, 3),
        "created_at": dice.moment(),
        "updated_at": dice.moment(),
        "failure_code": dice.maybe(("broken", "worker_lost")),
    }
    state = dice.choice(rows.STATES)
    if state == "queued":
        changes["run_at"] = dice.run_at()
    if state == "processing":
        changes["leased_until"] = dice.moment(future=True)
        changes["started_at"] = dice.maybe((dice.moment(), NOW))
    if state == "quarantined":
        changes["held_at"] = dice.moment()
    if state in TERMINAL:
        changes["finished_at"] = dice.moment()
    return row(state, **changes)


def asked_of(dice: rows.Dice) -> Filter:
    """A filter of one, two or three fields, mostly about rows that are there."""
    some = [job_id(*map(dice.choice, (DOMAINS, QUEUES, TYPES, KEYS))) for _ in range(8)]
    fields: dict[str, Any] = {
        "ids": some[: dice.randrange(8)],
        "domain": dice.choice(DOMAINS),
        "queue": dice.choice(QUEUES),
        "job_type": dice.choice(TYPES),
        "key": dice.choice(KEYS),
        "owner": dice.choice(("o1", "o2", "o3")),
        "states": dice.sample(rows.STATES, dice.randrange(4)),
        "phase": dice.choice(("ready", "scheduled", "parked")),
        "lapsed": dice.one_in(2),
        "failure_code": dice.choice(("broken", "worker_lost")),
        "created_before": dice.moment(future=True),
        "run_before": dice.run_at(),
        "finished_before": dice.moment(future=True),
        "waiting_over": dice.choice(SECONDS),
        "running_over": dice.choice(SECONDS),
        "lapsed_over": dice.choice(SECONDS),
        "ended_over": dice.choice(SECONDS),
        "after_id": some[0],
    }
    asked = dice.sample(sorted(fields), dice.choice((0, 1, 1, 2, 3)))
    return Filter(**{name: fields[name] for name in asked})


#: Lengths of time around those that moments of a crowd lie back.
SECONDS = (0, 0.000001, 0.001, 60, 10_000.5, 50_000, 1e8)

CROWDS = st.lists(rows.rolled(crowded), max_size=40, unique_by=lambda job: job.id)


def counted(jobs: list[Job], now: datetime) -> list[Tally]:
    """The counts of these rows."""
    groups = defaultdict(list)
    for job in jobs:
        groups[job.domain, job.queue, job.job_type].append(job)
    phases = ("ready", "scheduled", "parked", "processing", "completed", "failed", "cancelled", "quarantined")
    return [
        Tally._make(
            (
                *names,
                *(sum(phase_of(job, now) == phase for job in group) for phase in phases),
                min((job.run_at for job in group if phase_of(job, now) == "ready"), default=None),
            )
        )
        for names, group in sorted(groups.items())
    ]


ANY = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], print_blob=True
)


@ANY
@given(CROWDS, st.lists(rows.rolled(asked_of), min_size=1, max_size=30))
def test_find_and_tally_answer_what_the_filter_says(
    store: Store, adapter: Adapter, jobs: list[Job], filters: list[Filter]
) -> None:
    adapter.plant(store, jobs)

    for asked in filters:
        expected = sorted((job for job in jobs if matches(job, asked, NOW)), key=lambda job: job.id)
        assert store.find(asked, now=NOW) == expected, asked
        assert store.tally(asked, now=NOW) == counted(expected, NOW), asked


@ANY
@given(jobs=CROWDS, size=st.integers(1, 4), descending=st.booleans())
def test_pages_by_id_name_every_row_once_in_either_direction(
    store: Store, adapter: Adapter, jobs: list[Job], size: int, descending: bool
) -> None:
    adapter.plant(store, jobs)
    page = partial(store.find, descending=descending, limit=size, now=NOW)

    found: list[Job] = []
    while more := page(Filter(queue="high", after_id=found[-1].id if found else None)):
        found += more

    assert [job.id for job in found] == sorted((job.id for job in jobs if job.queue == "high"), reverse=descending)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("order", ["id", "claim", "created", "updated"])
def test_rows_come_in_the_order_asked(store: Store, adapter: Adapter, order: Order, descending: bool) -> None:
    jobs = [
        row(
            key=str(number),
            priority=1 + number % 3,
            run_at=PARKED if number % 5 == 4 else later(number * 7 % 4),
            created_at=later(-1000 - number * 11 % 30),
            updated_at=later(-number * 17 % 30),
        )
        for number in range(30)
    ]
    adapter.plant(store, jobs)
    keys = {
        "id": lambda job: job.id,
        "claim": lambda job: (job.priority, job.run_at, job.id),
        "created": lambda job: job.created_at,
        "updated": lambda job: job.updated_at,
    }

    found = store.find(Filter(domain="default"), order=order, descending=descending, limit=12, now=NOW)

    assert found == sorted(jobs, key=keys[order], reverse=descending)[:12]


def test_an_empty_list_matches_nothing(store: Store) -> None:
    store.wake([wake()], now=NOW)

    for asked in (Filter(ids=[]), Filter(states=()), Filter(ids=[], domain="default")):
        assert store.find(asked, now=NOW) == []
        assert store.tally(asked, now=NOW) == []


def test_every_row_is_found_where_nothing_is_asked(store: Store) -> None:
    store.wake([wake(str(number)) for number in range(5)], now=NOW)

    assert len(store.find(Filter(), now=NOW)) == 5
    assert len(store.find(Filter(), limit=3, now=NOW)) == 3


@pytest.mark.parametrize("field", ["created_before", "run_before", "finished_before"])
def test_before_a_moment_does_not_mean_at_it(store: Store, adapter: Adapter, field: str) -> None:
    adapter.plant(store, [row("failed", created_at=NOW, run_at=NOW, finished_at=NOW)])
    at: dict[str, Any] = {field: NOW}
    after: dict[str, Any] = {field: later(0.000001)}

    assert store.find(Filter(**at)) == []
    assert len(store.find(Filter(**after))) == 1


@pytest.mark.parametrize("lapsed", [True, False])
def test_running_rows_are_told_apart_by_whether_their_lease_has_lapsed(
    store: Store, adapter: Adapter, lapsed: bool
) -> None:
    ends = (-5, -0.000001, 0, 0.000001, 5)
    adapter.plant(store, [row("processing", key=str(end), leased_until=later(end)) for end in ends])

    found = store.find(Filter(states=["processing"], lapsed=lapsed), now=NOW)

    assert sorted(float(job.key or "") for job in found) == [end for end in ends if (end < 0) == lapsed]


def test_phases_and_lapses_are_seen_by_the_databases_clock(store: Store) -> None:
    store.wake([wake("ready"), wake("scheduled", delay=3600), wake("parked", run_at=PARKED)])

    for phase in ("ready", "scheduled", "parked"):
        assert [job.key for job in store.find(Filter(phase=phase))] == [phase]
    [tally] = store.tally(Filter())
    assert (tally.ready, tally.scheduled, tally.parked) == (1, 1, 1)
    assert tally.oldest_ready == read(store, wake("ready").id).run_at
    assert store.find(Filter(lapsed=True)) == []


@pytest.mark.parametrize("text", ["%", "_", "a'b", 'a"b', "\\", "K", "k ", "'; --", "%(x)s", ":x", "?"])
@pytest.mark.parametrize("field", ["domain", "queue", "job_type", "key", "owner", "failure_code"])
def test_a_text_is_compared_as_it_is_and_never_read_as_a_pattern(
    store: Store, adapter: Adapter, field: str, text: str
) -> None:
    adapter.plant(store, [row(key="k", domain="k", queue="k", job_type="k", owner="k", failure_code="k")])

    asked: dict[str, Any] = {field: text}
    there: dict[str, Any] = {field: "k"}

    assert store.find(Filter(**asked), now=NOW) == []
    assert len(store.find(Filter(**there), now=NOW)) == 1


def test_rows_are_read_in_the_order_asked_with_none_for_what_is_not_there(store: Store) -> None:
    ids = [woken.id for woken in store.wake([wake(str(number)) for number in range(200)], now=NOW)]
    asked = [*ids[::-1], identity.new_id(), ids[5], ids[5]]

    found = store.read(asked)

    assert [job.id if job else None for job in found] == [*ids[::-1], None, ids[5], ids[5]]
    assert store.read([]) == []


def test_ten_thousand_ids_can_be_asked_for(store: Store) -> None:
    store.wake([wake()], now=NOW)
    ids = [identity.new_id() for _ in range(10_000)]

    assert [job for job in store.read([*ids, wake().id]) if job] == [read(store, wake().id)]
    assert store.find(Filter(ids=[*ids, wake().id]), now=NOW) == [read(store, wake().id)]
