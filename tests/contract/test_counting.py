"""Counts of groups, those included that are empty and still named."""

from __future__ import annotations

from store.clock import PARKED
from store.contract import ANY_VERSION, Document, Store
from store.counting import counts
from store.filters import Filter
from store.policy import Policy
from tests.contract.acts import pause
from tests.contract.adapters import Adapter
from tests.contract.rows import NOW, TYPE, later, row, wake

EVERYTHING = Filter()


def groups(store: Store, filter: Filter = EVERYTHING) -> list[tuple[str, str, str, int]]:
    return [(each.domain, each.queue, each.job_type, sum(each[3:-1])) for each in counts(store, filter, now=NOW)]


def test_every_state_and_phase_is_counted_with_the_oldest_age(store: Store, adapter: Adapter) -> None:
    states = ("processing", "completed", "failed", "cancelled", "quarantined")
    adapter.plant(
        store,
        [row(state, key=f"{state}{n}") for number, state in enumerate(states, 1) for n in range(number)]
        + [row(key="ready", run_at=later(-90)), row(key="ready2"), row(key="scheduled", run_at=later(9))]
        + [row(key="parked", run_at=PARKED)],
    )
    assert counts(store, Filter(), now=NOW) == [("default", "default", TYPE, 2, 1, 1, 1, 2, 3, 4, 5, later(-90))]


def test_a_type_without_jobs_counts_zero_in_its_queue(store: Store) -> None:
    store.put(Document("policy", "mail", ANY_VERSION, Policy("mail", queue="high").document()))
    assert groups(store) == [("default", "default", TYPE, 0), ("default", "high", "mail", 0)]

    store.wake([wake("a", domain="eu")])
    assert groups(store) == [("default", "high", "mail", 0), ("eu", "default", TYPE, 1)]
    assert groups(store, Filter(queue="high")) == [("default", "high", "mail", 0)]
    assert groups(store, Filter(domain="us")) == []
    assert groups(store, Filter(states=("failed",))) == []


def test_a_domain_whose_queue_is_paused_stays_in_sight(store: Store) -> None:
    store.wake([wake("a")])
    pause(store, "default", "eu")
    pause(store, "default", "us", paused=False)
    pause(store, "default")
    assert groups(store) == [("default", "default", TYPE, 1), ("eu", "default", TYPE, 0)]
