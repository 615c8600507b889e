"""Declaring jobs: options are checked where they are written."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import dramatiq
import pytest
from dramatiq.brokers.stub import StubBroker
from periodiq import cron

from middleware.broker import Broker
from middleware.build import broker as broker_of_the_process
from middleware.build import build_broker
from middleware.job import JobActor, Payload, Tick, declare
from middleware.run import Run
from middleware.settings import WorkerSettings
from store.errors import PayloadInvalid, UsageError
from store.identity import job_id
from store.settings import StoreSettings


class Invoice(Payload):
    invoice_id: int
    note: str = ""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    made = build_broker(
        StoreSettings.model_validate({"JOBS_HOME": tmp_path, "JOBS_DB_URL": f"sqlite:///{tmp_path}/jobs.db"}),
        WorkerSettings(),
    )
    made.runtime.store.migrate()
    yield made
    made.close()


def handler(invoice: Any, run: Run) -> None:
    return None


def make(broker: Broker, **options: Any) -> JobActor[Any, Invoice]:
    return declare(broker, handler, "invoice.send", Invoice, options.pop("key", "{invoice_id}"), options)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"prioritty": 3}, "no option prioritty"),
        ({"priority": 0}, "priority"),
        ({"priority": 11}, "priority"),
        ({"max_retries": 101}, "max_retries"),
        ({"backoff_first": 10, "backoff_cap": 5}, "backoff_cap"),
        ({"time_limit": 0}, "time_limit"),
        ({"catch_up": "some"}, "catch_up"),
        ({"key": "{invoice}"}, "plain fields"),
        ({"key": "{invoice_id.real}"}, "plain fields"),
        ({"key": "{invoice_id"}, "template"),
        ({"periodic": cron("* * * * *"), "key": None}, "Tick"),
        ({"periodic": cron("* * * * *")}, "one row"),
        ({"queue": "a\x00b"}, "control"),
    ],
)
def test_a_wrong_option_is_refused_at_decoration(broker: Broker, options: dict[str, Any], word: str) -> None:
    with pytest.raises(UsageError, match=word):
        make(broker, **options)
    assert "invoice.send" not in broker.actors


def test_the_key_makes_the_same_id_in_every_language(broker: Broker) -> None:
    request = make(broker).request(kwargs={"invoice_id": 7})
    assert request.key == "7"
    assert request.id == job_id("default", "default", "invoice.send", "7")


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({}, PayloadInvalid),
        ({"invoice_id": "seven"}, PayloadInvalid),
        ({"invoice_id": 1, "extra": 2}, PayloadInvalid),
        ({"invoice_id": 2**70}, PayloadInvalid),
        ({"invoice_id": 1, "note": "\ud800"}, PayloadInvalid),
        ({"invoice_id": 1, "note": "a\x00b"}, PayloadInvalid),
        ({"invoice_id": 1, "note": "x" * 1_100_000}, PayloadInvalid),
    ],
)
def test_a_payload_that_does_not_fit_changes_nothing(
    broker: Broker, values: dict[str, Any], error: type[Exception]
) -> None:
    actor = make(broker)
    with pytest.raises(error) as caught:
        actor.send(**values)
    assert "seven" not in str(caught.value)
    assert broker.runtime.store.tally(_everything()) == []


@pytest.mark.parametrize(
    "options",
    [
        {"priority": 0},
        {"priority": 11},
        {"run_at": datetime(2026, 1, 1)},
        {"delay": -1},
        {"delay": timedelta(days=400 * 366)},
        {"key": ""},
        {"key": "e\u0301"},  # not NFC
        {"domain": "a\x1fb"},
        {"owner": ""},
    ],
)
def test_bad_options_of_a_wake_change_nothing(broker: Broker, options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        make(broker).send_with_options(kwargs={"invoice_id": 1}, **options)
    assert broker.runtime.store.tally(_everything()) == []


def test_a_key_that_renders_empty_is_refused(broker: Broker) -> None:
    with pytest.raises(UsageError, match="renders empty"):
        make(broker, key="{note}").request(kwargs={"invoice_id": 1})


def test_once_is_refused_for_a_type_that_keeps_no_finished_rows(broker: Broker) -> None:
    with pytest.raises(UsageError, match="once"):
        make(broker, keep_finished=False).request(kwargs={"invoice_id": 1}, once=True)


def test_a_job_is_no_message(broker: Broker) -> None:
    with pytest.raises(UsageError, match="not a message"):
        make(broker).message(invoice_id=1)


def test_calling_a_job_calls_its_handler(broker: Broker) -> None:
    seen = []
    actor = declare(broker, lambda invoice, run: seen.append(invoice), "called", Invoice, None, {})
    actor(Invoice(invoice_id=3), None)
    assert seen == [Invoice(invoice_id=3)]


def test_a_recurring_job_has_a_tick_for_a_payload(broker: Broker) -> None:
    actor = declare(broker, handler, "every.minute", Tick, None, {"periodic": cron("* * * * *")})
    assert actor.policy.periodic == "* * * * *"
    assert "periodic" in actor.options


def test_another_brokers_program_is_told_so() -> None:
    before = dramatiq.broker.global_broker
    dramatiq.set_broker(StubBroker())
    try:
        with pytest.raises(UsageError, match="StubBroker"):
            broker_of_the_process()
    finally:
        dramatiq.broker.global_broker = before


def _everything() -> Any:
    from store.filters import Filter

    return Filter()


@pytest.mark.parametrize(
    ("function", "payload", "key", "word"),
    [
        (lambda: None, Invoice, None, "two arguments"),
        (lambda a: None, Invoice, None, "two arguments"),
        (lambda a, b, c: None, Invoice, None, "two arguments"),
        (3, Invoice, None, "a function"),
        (handler, dict, None, "subclass"),
        (handler, Invoice(invoice_id=1), None, "subclass"),
        (handler, Invoice, "", "template"),
        (handler, Invoice, "a\nb{invoice_id}", "template"),
    ],
)
def test_what_can_never_run_is_refused_at_decoration(
    broker: Broker, function: Any, payload: Any, key: str | None, word: str
) -> None:
    with pytest.raises(UsageError, match=word):
        declare(broker, function, "bad", payload, key, {})
    assert "bad" not in broker.actors


def test_a_generator_is_refused_at_decoration(broker: Broker) -> None:
    def yielding(invoice: Any, run: Run) -> Any:
        yield 1

    with pytest.raises(UsageError, match="generator"):
        declare(broker, yielding, "bad", Invoice, None, {})


def test_a_type_is_declared_once(broker: Broker) -> None:
    make(broker)
    with pytest.raises(UsageError, match="already"):
        make(broker)


@pytest.mark.parametrize("queue", ["a b", "1st", "scheduler", "a/b"])
def test_a_queue_that_no_worker_can_serve_is_refused(broker: Broker, queue: str) -> None:
    with pytest.raises(UsageError, match="queue"):
        make(broker, queue=queue)
    with pytest.raises(UsageError, match="queue"):
        make(broker).request(kwargs={"invoice_id": 1}, queue=queue)


def test_a_schedule_has_one_row_whoever_wakes_it(broker: Broker) -> None:
    actor = declare(broker, handler, "every.minute", Tick, None, {"periodic": cron("* * * * *")})
    assert actor.request().id == actor.request().id == job_id("default", "default", "every.minute", "every.minute")


def test_once_wants_a_key(broker: Broker) -> None:
    with pytest.raises(UsageError, match="key"):
        make(broker, key=None).request(kwargs={"invoice_id": 1}, once=True)
