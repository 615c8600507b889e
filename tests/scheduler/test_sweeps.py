"""The sweeps as jobs: scheduled where the settings say so, bounded a run, and again while there is more."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import dramatiq
import pytest

from middleware.broker import Broker
from middleware.build import build_broker
from middleware.settings import WorkerSettings
from scheduler import sweeps
from scheduler.settings import INTERVALS, SweepSettings
from scheduler.sweeps import EVENTS, INTEGRITY, RETENTION, TTL, declare_sweeps
from scheduler.ticks import parse
from store import following
from store.contract import Store
from store.errors import SettingsInvalid
from store.events import Cancel
from store.filters import Filter
from store.job import Job
from store.operations import apply
from store.settings import StoreSettings, load
from store.sweeps import TERM
from tests.contract.rows import TYPE, wake

Build = Callable[..., Broker]


@pytest.fixture
def build(tmp_path: Path, valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Build]:
    """Makes a broker on SQLite whose sweeps have these settings and no others."""
    made: list[Broker] = []
    for name in [name for name in os.environ if name.startswith("JOBS_")]:
        monkeypatch.delenv(name)

    def build(**settings: str) -> Broker:
        for name, value in settings.items():
            monkeypatch.setenv(name, value)
        broker = build_broker(
            StoreSettings.model_validate(
                {"JOBS_HOME": tmp_path, "JOBS_DB_URL": f"sqlite:///{tmp_path}/jobs.db", "JOBS_VALKEY_URL": valkey_url}
            ),
            WorkerSettings.model_validate({"JOBS_LEASE_SECONDS": 5}),
        )
        made.append(broker)
        declare_sweeps(broker)
        return broker

    yield build
    for broker in made:
        broker.close()


def served(broker: Broker, job_type: str) -> Job:
    """The row of a sweep that was woken, once a worker is done with it: completed, or put off."""
    id_ = broker.actors[job_type].send().id  # type: ignore[attr-defined]
    worker = dramatiq.Worker(broker, worker_timeout=100)
    worker.start()
    try:
        deadline = time.monotonic() + 30
        while True:
            job = broker.runtime.store.read([id_])[0]
            assert job is not None
            put_off = job.state == "queued" and job.run_at > broker.runtime.store.ping() + timedelta(seconds=1)
            if job.state == "completed" or put_off:
                return job
            assert time.monotonic() < deadline, job
            time.sleep(0.02)
    finally:
        worker.stop()


def ended_long_ago(store: Store, count: int) -> None:
    """Jobs that were cancelled a hundred days ago."""
    then = store.ping() - timedelta(days=100)
    store.wake([wake(str(number)) for number in range(count)], now=then)
    apply(store, Filter(job_type=TYPE), Cancel(), now=then)


def test_nothing_is_scheduled_unless_it_is_switched_on(build: Build) -> None:
    policies = build().runtime.policies
    assert {policies[name].periodic for name in (RETENTION, TTL, INTEGRITY)} == {None}


def test_what_is_switched_on_is_scheduled_at_its_interval(build: Build) -> None:
    policies = build(
        JOBS_PRUNE_ENFORCE="true",
        JOBS_TTL_ENFORCE="true",
        JOBS_TTL_AGE_SECONDS="60",
        JOBS_TTL_INTERVAL_SEC="300",
        JOBS_INTEGRITY_SWEEP_ENABLED="true",
    ).runtime.policies
    assert policies[RETENTION].periodic == INTERVALS[86_400]
    assert policies[TTL].periodic == "*/5 * * * *"
    assert policies[INTEGRITY].periodic == "* * * * *"


def test_every_interval_is_what_its_crontab_says() -> None:
    for seconds, spec in INTERVALS.items():
        cron = parse(spec)
        assert cron is not None
        minutes, hours, *rest = spec.split()
        assert rest == ["*", "*", "*"]
        per_hour = 60 if minutes == "*" else 60 // int(minutes[2:]) if minutes.startswith("*/") else 1
        per_day = 24 if hours == "*" else 24 // int(hours[2:]) if hours.startswith("*/") else 1
        assert per_hour * per_day * seconds == 86_400


def test_declaring_twice_is_declaring_once(build: Build) -> None:
    broker = build()
    declare_sweeps(broker)
    assert [name for name in broker.actors if name == RETENTION] == [RETENTION]


def test_a_run_goes_on_until_nothing_is_left(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = build(JOBS_ARCHIVE_BEFORE_DELETE="true")
    monkeypatch.setattr(sweeps, "MOST", 3)
    broker.runtime.store.migrate()
    ended_long_ago(broker.runtime.store, 7)

    job = served(broker, RETENTION)

    assert job.attempt == 3
    assert json.loads(job.result or "")["affected"] == 1, "the last of them"
    assert broker.runtime.store.find(Filter(job_type=TYPE)) == []
    assert len(broker.runtime.store.archived(wake("0").id)) == 1


def test_a_dry_run_only_counts_and_ends(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = build(JOBS_PRUNE_DRY_RUN="true")
    monkeypatch.setattr(sweeps, "MOST", 3)
    broker.runtime.store.migrate()
    ended_long_ago(broker.runtime.store, 7)

    job = served(broker, RETENTION)

    assert (job.attempt, json.loads(job.result or "")["affected"]) == (1, 3)
    assert len(broker.runtime.store.find(Filter(job_type=TYPE))) == 7


def test_a_job_that_waited_too_long_is_ended_by_the_ttl_sweep(build: Build) -> None:
    broker = build(JOBS_TTL_AGE_SECONDS="60", JOBS_TTL_ACTION="fail")
    store = broker.runtime.store
    store.migrate()
    store.wake([wake("old")], now=store.ping() - timedelta(seconds=61))
    store.wake([wake("new")])

    job = served(broker, TTL)

    assert json.loads(job.result or "")["affected"] == 1
    states = {row.key: (row.state, row.failure_code) for row in store.find(Filter(job_type=TYPE))}
    assert states == {"old": ("failed", "ttl_age"), "new": ("queued", None)}


def test_the_integrity_sweep_tells_what_it_found(build: Build) -> None:
    broker = build()
    broker.runtime.store.migrate()
    assert json.loads(served(broker, INTEGRITY).result or "")["processing_expired"] == 0


def test_a_sweep_that_somebody_else_is_at_does_nothing_and_comes_again_when_that_term_has_run_out(
    build: Build,
) -> None:
    broker = build()
    store = broker.runtime.store
    store.migrate()
    ended_long_ago(store, 1)
    assert store.lead("sweep.retention", "somebody", 60).held

    job = served(broker, RETENTION)

    assert (job.state, job.retries) == ("queued", 0)
    assert timedelta(seconds=50) < job.run_at - store.ping() <= timedelta(seconds=TERM)
    assert len(store.find(Filter(job_type=TYPE))) == 1


@pytest.mark.parametrize(
    ("settings", "days"),
    [
        ({}, [30, 60, 60, 90]),
        ({"JOBS_RETENTION_DAYS_TERMINAL": "7"}, [7, 7, 7, 7]),
        ({"JOBS_RETENTION_DAYS_COMPLETED": "0", "JOBS_RETENTION_DAYS_QUARANTINED": "1.5"}, [0, 60, 60, 1.5]),
    ],
)
def test_days_of_each_state(build: Build, settings: dict[str, str], days: list[float]) -> None:
    build(**settings)
    assert list(load(SweepSettings).days.values()) == days


def test_scopes_are_names_parted_by_commas(build: Build) -> None:
    build(JOBS_PRUNE_DOMAIN="one, two,one", JOBS_PRUNE_QUEUE="high")
    assert load(SweepSettings).scope == (("one", "two"), ("high",), ())


def test_a_worker_with_settings_that_can_not_be_does_not_start(build: Build) -> None:
    with pytest.raises(SettingsInvalid, match="JOBS_TTL_AGE_SECONDS"):
        build(JOBS_TTL_ENFORCE="true")


def test_old_events_go_but_for_those_that_a_consumer_has_yet_to_see(build: Build) -> None:
    broker = build(JOBS_EVENTS_OUTBOX="true")
    assert broker.actors[EVENTS].options["job"].periodic == INTERVALS[3600]
    store = broker.runtime.store
    store.migrate()
    following.switch_events(store, on=True)
    store.wake([wake("a"), wake("b")], now=store.ping() - timedelta(days=30))
    mailer = following.enlist(store, "mailer")

    assert json.loads(served(broker, EVENTS).result or "") == {"removed": 0, "held_by": ["mailer"]}
    following.advance(store, mailer, 1)
    assert json.loads(served(broker, EVENTS).result or "")["removed"] == 1


def test_no_allow_list_keeps_our_own_maintenance_out(build: Build) -> None:
    broker = build(JOBS_ALLOWED_JOB_TYPES="invoice.send")
    broker.runtime.store.migrate()
    assert served(broker, RETENTION).state == "completed"
