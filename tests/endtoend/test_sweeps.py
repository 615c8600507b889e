"""A sweep as a job of real worker processes."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta

from store.events import Cancel, Wake
from store.filters import Filter
from store.identity import job_id
from store.operations import apply
from tests.endtoend.house import House


def test_what_has_ended_long_ago_is_removed_by_whoever_serves_the_sweep(make_house: Callable[..., House]) -> None:
    house = make_house(JOBS_PRUNE_ENFORCE="true", JOBS_ARCHIVE_BEFORE_DELETE="true")
    then = house.store.ping() - timedelta(days=61)
    id_ = job_id("default", "default", "test.keyed", "old")
    house.store.wake([Wake(id_, "default", "default", "test.keyed", "old", "{}")], now=then)
    apply(house.store, Filter(ids=(id_,)), Cancel(), now=then)
    sweep = job_id("default", "default", "dramaturg.retention", "dramaturg.retention")
    house.worker()
    house.worker()
    policy = house.store.get("policy", "dramaturg.retention")
    assert policy is not None
    assert policy.body["periodic"]

    house.store.wake([Wake(sweep, "default", "default", "dramaturg.retention", "dramaturg.retention", "{}")])

    assert json.loads(house.wait_state(sweep, "completed").result or "")["affected"] == 1
    assert house.store.read([id_]) == [None]
    assert len(house.store.archived(id_)) == 1
