"""Sealed payloads and checkpoints run as clear ones do, and secrets stop at the door, on every store and way to run."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from middleware.broker import Broker
from middleware.build import build_broker
from middleware.inline import InlineJobs
from middleware.job import JobActor, Payload, declare
from middleware.jobs import Jobs
from middleware.rows_only import RowsOnly
from middleware.run import Run
from middleware.settings import WorkerSettings
from store.boundary import Boundary, guarded, load_boundary
from store.contract import Store
from store.errors import PayloadSealed, SecretFound
from store.filters import Filter
from store.hygiene import REDACTED, Hygiene
from store.job import Job
from store.outcome import Again, Done, Outcome, Park
from store.sealing import Key, Sealing, is_sealed
from store.settings import StoreSettings
from tests.contract.acts import read
from tests.contract.rows import TYPE, wake
from tests.jobs.conftest import MakeJobs
from tests.jobs.test_inline import url

__all__ = ["url"]

NOW = datetime(2026, 3, 1, 9, 0, tzinfo=UTC)
KEY, OTHER = (base64.b64encode(letter * 32).decode() for letter in (b"k", b"o"))
TOKEN = "ghp_" + "a" * 36


class Thing(Payload):
    """A payload with a field whose name tells that it is a secret."""

    thing: str
    password: str | None = None


@pytest.fixture
def sealed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings that seal."""
    monkeypatch.setenv("JOBS_ENCRYPT", "true")
    monkeypatch.setenv("JOBS_CRYPTO_KEY", KEY)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    made = build_broker(
        StoreSettings.model_validate(
            {"JOBS_HOME": tmp_path, "JOBS_DB_URL": "sqlite:////nowhere/jobs.db", "JOBS_VALKEY_URL": "unix:///nowhere"}
        ),
        WorkerSettings(),
    )
    yield made
    made.close()


def job(broker: Broker, function: Any, **options: Any) -> JobActor[Any, Thing]:
    return declare(broker, function, "thing.do", Thing, options.pop("key", "{thing}"), options)


def raw(kit: InlineJobs, id_: str) -> Job:
    """The row as it stands in the database."""
    found = kit.store.read([id_])[0]
    assert found is not None
    return found


@pytest.mark.usefixtures("sealed")
def test_a_job_runs_on_what_stands_sealed_in_its_row(broker: Broker, url: str) -> None:
    seen: list[Any] = []

    def handle(thing: Thing, run: Run) -> Outcome:
        seen.append((thing.thing, run.checkpoint))
        return Again(checkpoint={"page": "two"}) if run.checkpoint is None else Done({"told": "three"})

    do = job(broker, handle)
    with InlineJobs(now=NOW, url=url, broker=broker) as kit:
        with kit.store.transaction() as tx:
            id_ = do.wake(tx, thing="plain-one").id
        assert do.send(thing="plain-one").id == id_
        assert [woken.payload for woken in kit.woken(do, thing="plain-one")] == [kit.job(id_).payload]
        kit.run_due()
        row = raw(kit, id_)
        assert seen == [("plain-one", None), ("plain-one", {"page": "two"})]
        assert is_sealed(row.payload)
        assert is_sealed(row.result or "")
        assert json.loads(kit.job(id_).result or "") == {"told": "three"}
        for word in ("plain-one", "two", "three"):
            assert word not in (row._replace(key=None)).__repr__()


@pytest.mark.usefixtures("sealed")
def test_a_checkpoint_is_sealed_too(broker: Broker, url: str) -> None:
    do = job(broker, lambda thing, run: Park(checkpoint={"page": "two"}))
    with InlineJobs(now=NOW, url=url, broker=broker) as kit:
        id_ = do.send(thing="a").id
        kit.run_due()
        assert is_sealed(raw(kit, id_).checkpoint or "")
        assert json.loads(kit.job(id_).checkpoint or "") == {"page": "two"}


@pytest.mark.usefixtures("sealed")
def test_a_payload_that_somebody_woke_in_the_clear_runs_all_the_same(broker: Broker, url: str) -> None:
    do = job(broker, lambda thing, run: Done(thing.thing))
    with InlineJobs(now=NOW, url=url, broker=broker) as kit:
        wake = do.request(kwargs={"thing": "clear"})
        kit.store._real._real.wake([wake], now=NOW)  # type: ignore[attr-defined]  # below the clock and the boundary
        assert not is_sealed(raw(kit, wake.id).payload)
        [ran] = kit.run_due()
        assert ran.outcome == Done("clear")


def test_what_can_not_be_opened_waits_with_a_code_and_runs_once_the_key_is_there(
    broker: Broker, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    do = job(broker, lambda thing, run: Done(thing.thing), backoff_first=60.0, backoff_jitter=0.0)
    with InlineJobs(now=NOW, url=url, broker=broker) as kit:
        theirs = Boundary(Sealing(Key(base64.b64decode(OTHER)), everywhere=True))
        wake = theirs.admit(do.request(kwargs={"thing": "a"}))
        kit.store.wake([wake])
        kit.runtime.completion.flush(5)
        kit._run_next()
        row = raw(kit, wake.id)
        assert (row.state, row.failure_code, row.retries, row.payload) == ("queued", "payload_sealed", 1, row.payload)
        assert json.loads(row.failure or "")["class"] == "PayloadSealed"
        assert is_sealed(row.payload)
        assert kit.job(wake.id) == row
        monkeypatch.setenv("JOBS_CRYPTO_SECONDARY_KEY", OTHER)
        kit.runtime.__dict__["boundary"] = load_boundary()
        kit.travel(minutes=5)
        [ran] = kit.run_due()
        assert ran.outcome == Done("a")


def over(store: Store, tmp_path: Path, boundary: Boundary) -> Jobs:
    runtime = RowsOnly(StoreSettings.model_validate({"JOBS_HOME": tmp_path}), WorkerSettings(), store=store)
    runtime.__dict__["boundary"] = boundary
    return Jobs.over(runtime)


def test_a_program_with_its_own_loop_sees_what_it_may_and_fails_what_it_can_not_open(
    store: Store, tmp_path: Path
) -> None:
    ours, theirs = (Boundary(Sealing(Key(base64.b64decode(key)), everywhere=True)) for key in (KEY, OTHER))
    jobs = over(store, tmp_path, ours)
    guarded(store, ours).wake([wake("a")])
    lease = jobs.acquire()
    assert lease is not None
    assert lease.payload == {"n": 1}
    assert jobs.complete(lease, {"r": 2}).state == "completed"
    assert is_sealed(read(store, lease.id).result or "")
    assert ours.read(read(store, lease.id), "result") == '{"r":2}'

    guarded(store, theirs).wake([wake("b")])
    lease = jobs.acquire()
    assert lease is not None
    with pytest.raises(PayloadSealed) as caught:
        lease.payload  # noqa: B018
    assert jobs.fail(lease, caught.value).state == "queued"
    assert read(store, lease.id).failure_code == "payload_sealed"


# --- hygiene


def test_a_refused_wake_changes_nothing_whichever_way_it_comes(
    broker: Broker, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOBS_SECRET_REJECT", "true")
    do = job(broker, lambda thing, run: None, key=None)
    with InlineJobs(now=NOW, url=url, broker=broker) as kit:
        for fields in ({"thing": TOKEN}, {"thing": "a", "password": "hunter2"}):
            with pytest.raises(SecretFound) as caught:
                do.send(**fields)
            assert TOKEN not in str(caught.value)
            assert "hunter2" not in str(caught.value)
            with kit.store.transaction() as tx, pytest.raises(SecretFound):
                do.wake(tx, **fields)
        for name in ("key", "owner", "request_id", "trace"):
            with pytest.raises(SecretFound):
                do.send_with_options(kwargs={"thing": "a"}, **{name: f"user {TOKEN}"})
        assert kit.store.find(Filter()) == []


def test_secrets_are_redacted_in_payload_checkpoint_result_and_message(
    broker: Broker, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOBS_SECRET_REDACT", "true")
    seen = []

    def handle(thing: Thing, run: Run) -> Outcome:
        seen.append(thing)
        run.progress(50, f"with {TOKEN}")
        if run.checkpoint is None:
            return Again(checkpoint={"token": "hunter2", "page": 2})
        return Done({"items": [{"note": f"see {TOKEN}"}]})

    do = job(broker, handle)
    with InlineJobs(now=NOW, url=url, broker=broker) as kit:
        id_ = do.send(thing="a", password="hunter2").id
        kit._run_next()
        row = raw(kit, id_)
        assert json.loads(row.checkpoint or "") == {"token": REDACTED, "page": 2}
        assert row.progress_message == REDACTED
        kit.run_due()
        row = raw(kit, id_)
        assert json.loads(row.payload) == {"thing": "a", "password": REDACTED}
        assert json.loads(row.result or "") == {"items": [{"note": REDACTED}]}
        assert seen[0].password == REDACTED
        assert "hunter2" not in repr((row, kit.history(id_)))
        assert TOKEN not in repr((row, kit.history(id_)))


def test_a_result_with_a_secret_is_a_coded_failure_where_secrets_are_refused(
    broker: Broker, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOBS_SECRET_REJECT", "true")
    do = job(broker, lambda thing, run: Done({"note": [TOKEN]}))
    with InlineJobs(now=NOW, url=url, broker=broker) as kit:
        id_ = do.send(thing="a").id
        kit._run_next()
        row = raw(kit, id_)
        assert (row.state, row.failure_code, row.result) == ("queued", "secret_found", None)
        assert "result.note[0]" in (row.failure or "")
        assert TOKEN not in repr((row, kit.history(id_)))


def test_what_is_redacted_is_sealed_as_well(store: Store) -> None:
    both = Boundary(Sealing(Key(b"k" * 32), everywhere=True), Hygiene(redact=True))
    [woken] = guarded(store, both).wake([wake("a", payload='{"password":"hunter2"}')])
    row = read(store, woken.id)
    assert is_sealed(row.payload)
    assert both.read(row, "payload") == f'{{"password":"{REDACTED}"}}'


def test_a_message_of_a_program_with_its_own_loop_is_looked_at(
    store: Store, make_jobs: MakeJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOBS_SECRET_REDACT", "true")
    jobs = make_jobs(store)
    store.wake([wake("a")])
    lease = jobs.acquire(types=[TYPE])
    assert lease is not None
    assert jobs.renew(lease, percent=5, message=f"with {TOKEN}").held
    assert read(store, lease.id).progress_message == REDACTED


def test_a_line_that_a_run_puts_on_its_job_is_looked_at(
    broker: Broker, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOBS_SECRET_REDACT", "true")
    do = job(broker, lambda thing, run: (run.log(f"with {TOKEN}"), run.log("plain"))[0])
    with InlineJobs(now=NOW, url=url, broker=broker) as kit:
        id_ = do.send(thing="a").id
        kit.run_due()
        lines = [kit.store.attachment(id_, one.number) for one in kit.store.attachments(id_)]
        assert [line for line in lines if TOKEN in repr(line)] == []
        assert len(lines) == 2
        assert REDACTED in repr(lines)
