"""Recurring jobs fire each tick once, whoever looks, however late, and whatever became of the row."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from middleware.build import build_broker
from middleware.runtime import Runtime
from middleware.settings import WorkerSettings
from scheduler.recurring import Recurring, fire_due
from scheduler.ticks import parse
from store import clock
from store.contract import ANY_VERSION, Document
from store.errors import UsageError
from store.filters import Filter
from store.identity import job_id
from store.policy import CatchUp, Policy
from store.settings import StoreSettings

NOON = datetime(2026, 3, 3, 12, 0, tzinfo=UTC)
ROW = job_id("default", "default", "report", "report")
UTC_ZONE = ZoneInfo("UTC")


@pytest.fixture
def runtime(tmp_path: Path, valkey_url: str) -> Iterator[Runtime]:
    settings = StoreSettings.model_validate(
        {"JOBS_HOME": tmp_path, "JOBS_DB_URL": f"sqlite:///{tmp_path}/jobs.db", "JOBS_VALKEY_URL": valkey_url}
    )
    made = build_broker(settings, WorkerSettings()).runtime
    made.store.migrate()
    yield made
    made.close()


def seen_at(runtime: Runtime, moment: datetime, name: str = "report") -> None:
    runtime.store.put(Document("schedule", name, ANY_VERSION, {"last_tick": clock.micros(moment)}))


def policy(catch_up: CatchUp = "last", name: str = "report", spec: str = "*/5 * * * *") -> Policy:
    return Policy(name, periodic=spec, catch_up=catch_up)


def fire(runtime: Runtime, rule: Policy, now: datetime) -> bool:
    assert rule.periodic is not None
    return fire_due(runtime, rule, parse(rule.periodic), UTC_ZONE, now)


def tick_of(runtime: Runtime) -> str | None:
    row = runtime.store.read([ROW])[0]
    return None if row is None else json.loads(row.payload)["tick"]


def test_a_schedule_that_is_seen_for_the_first_time_starts_with_its_next_tick(runtime: Runtime) -> None:
    fire(runtime, policy(), NOON)
    assert tick_of(runtime) is None
    fire(runtime, policy(), NOON + timedelta(minutes=5))
    assert tick_of(runtime) == "2026-03-03T12:05:00+00:00"


def test_a_tick_fires_once_however_often_it_is_looked_at(runtime: Runtime) -> None:
    seen_at(runtime, NOON)
    for seconds in (300, 301, 330, 599):
        fire(runtime, policy(), NOON + timedelta(seconds=seconds))
    row = runtime.store.read([ROW])[0]
    assert row is not None
    generation = row.generation
    fire(runtime, policy(), NOON + timedelta(seconds=600))
    row = runtime.store.read([ROW])[0]
    assert row is not None
    assert row.generation == generation + 1


def test_schedulers_that_race_for_a_tick_wake_once(runtime: Runtime) -> None:
    seen_at(runtime, NOON)
    start = threading.Barrier(4)

    def race() -> None:
        start.wait()
        fire(runtime, policy(), NOON + timedelta(minutes=5))

    racers = [threading.Thread(target=race) for _ in range(4)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    row = runtime.store.read([ROW])[0]
    assert row is not None
    assert row.generation == clock.micros(row.created_at)  # woken exactly once


def test_a_late_scheduler_creates_nothing_for_a_row_that_came_and_went(runtime: Runtime) -> None:
    seen_at(runtime, NOON)
    fire(runtime, policy(), NOON + timedelta(minutes=5))
    row = runtime.store.read([ROW])[0]
    assert row is not None
    from store.contract import Change
    from store.transitions import Answer, Decision, Write

    runtime.store.swap([Change(ROW, row.revision, Decision(Answer.APPLIED, None, Write(delete=True)))])
    fire(runtime, policy(), NOON + timedelta(minutes=5, milliseconds=200))
    assert runtime.store.read([ROW]) == [None]


@pytest.mark.parametrize(("catch_up", "ticks"), [("none", []), ("last", ["12:25"]), ("all", ["12:05"])])
def test_what_was_missed_is_caught_up_as_the_type_says(runtime: Runtime, catch_up: CatchUp, ticks: list[str]) -> None:
    seen_at(runtime, NOON)
    fire(runtime, policy(catch_up), NOON + timedelta(minutes=27))
    assert [tick_of(runtime)] == ([f"2026-03-03T{tick}:00+00:00" for tick in ticks] or [None])


def test_catching_up_all_waits_for_each_run_before_the_next(runtime: Runtime) -> None:
    from store.events import Claim, Finish, Kind
    from store.operations import Item, settle

    runtime.store.put(Document("policy", "report", ANY_VERSION, policy("all").document()))
    seen_at(runtime, NOON)
    now = NOON + timedelta(minutes=17)
    served = []
    for turn in range(4):
        more = fire(runtime, policy("all"), now)
        assert fire(runtime, policy("all"), now) is (turn < 2)  # it is waiting to run: nothing is fired over it
        claim = Claim(ROW, f"00000000-0000-4000-8000-00000000000{turn}", "w", 60)
        job = runtime.store.claim([claim])[0].job
        if job is None:
            break
        served.append(json.loads(job.payload)["tick"][11:16])
        assert more is (turn < 2)
        settle(
            runtime.store, [Item(ROW, Finish(claim.lease_id, job.attempt, job.generation, Kind.DONE), policy(), job)]
        )
    assert served == ["12:05", "12:10", "12:15"]


def test_a_bad_schedule_is_told_once_and_leaves_the_others_alone(runtime: Runtime) -> None:
    for name in ("a", "b"):
        runtime.store.put(Document("policy", name, 0, policy(name=name).document()))
        seen_at(runtime, datetime(2026, 1, 1, tzinfo=UTC), name)
    bad = policy(name="x").document()
    runtime.store.put(Document("policy", "never", 0, bad | {"job_type": "never", "periodic": "0 0 31 2 *"}))
    runtime.store.put(Document("policy", "zero", 0, bad | {"job_type": "zero", "periodic": "*/0 * * * *"}))
    runtime.store.put(Document("policy", "zone", 0, bad | {"job_type": "zone", "zone": "Middle/Earth"}))
    runtime.store.put(Document("policy", "shape", 0, bad | {"job_type": "shape", "periodic": {"a": 1}}))
    runtime.store.put(Document("policy", "stored", 0, policy(name="stored").document()))
    runtime.store.put(Document("schedule", "stored", 0, {"last_tick": "yesterday"}))
    looker = Recurring(runtime)
    looker.fire()
    looker.fire()
    woken = {row.job_type for row in runtime.store.find(Filter(), limit=100)}
    assert woken == {"a", "b"}


def test_a_stored_tick_that_cannot_be_read_is_refused_in_words(runtime: Runtime) -> None:
    for body in ({"last_tick": None}, {"last_tick": "x"}, {}, {"last_tick": True}, {"last_tick": 10**18}):
        runtime.store.put(Document("schedule", "report", ANY_VERSION, body))
        with pytest.raises(UsageError, match="stored tick"):
            fire(runtime, policy(), NOON)
