"""What a run leaves beside its outcome: attachments under its lease, and wakes on behalf of whoever woke it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from middleware import lineage
from middleware.broker import Broker
from middleware.interrupts import LeaseLost
from middleware.job import Payload
from middleware.run import Run
from store.errors import PayloadInvalid, UsageError
from store.filters import Filter
from tests.endtoend.house import eventually
from tests.middleware.test_fence import SECRET, Hands, job

REQUEST, TRACE = "req-7", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.fixture
def broker(working_broker: Broker) -> Iterator[Broker]:
    yield working_broker
    working_broker.runtime.completion.close(5)


def test_a_run_attaches_files_and_lines_and_no_log_of_the_process_has_them(broker: Broker) -> None:
    def handler(payload: Payload, run: Run) -> None:
        assert run.attach("report.txt", f"of {SECRET}", "text/plain") == 1
        run.log(f"read the file of {SECRET}")
        with pytest.raises(UsageError):
            run.log("")

    id_ = job(broker, handler).send().id
    hands = Hands(broker)
    with capture_logs() as logs:
        hands.run()
        row = hands.row(id_)
    assert row is not None
    assert row.state == "completed"
    store = broker.runtime.store
    assert [(each.number, each.kind, each.name) for each in store.attachments(id_)] == [
        (1, "file", "report.txt"),
        (2, "log", "log"),
    ]
    found = store.attachment(id_, 1)
    assert found is not None
    assert found[1] == f"of {SECRET}".encode()
    assert SECRET not in repr(logs)


def test_a_run_that_lost_its_row_attaches_nothing(broker: Broker) -> None:
    heard: list[type[BaseException]] = []

    def handler(payload: Payload, run: Run) -> None:
        with broker.runtime.store.transaction() as tx:
            tx.execute("UPDATE dramaturg_job SET attempt = attempt + 1, revision = revision + 1")
        for write in (lambda: run.attach("late", b"x"), lambda: run.log("late")):
            with pytest.raises(LeaseLost):
                write()
            heard.append(LeaseLost)

    id_ = job(broker, handler).send().id
    hands = Hands(broker)
    hands.run()
    assert len(heard) == 2
    assert broker.runtime.store.attachments(id_) == []


@pytest.mark.parametrize("is_async", [False, True])
def test_a_wake_inside_a_run_passes_request_and_trace_on_unless_told_otherwise(
    broker: Broker, start_worker: Callable[[], Any], is_async: bool
) -> None:
    def children() -> None:
        child.send_with_options(key="sent", delay=3_600_000)
        with broker.runtime.store.transaction() as tx:
            child.wake_with_options(tx, key="woken", delay=3_600_000)
        child.send_with_options(key="own", request_id="mine", trace="t", delay=3_600_000)
        child.send_with_options(key="none", request_id=None, trace=None, delay=3_600_000)

    def handler(payload: Payload, run: Run) -> None:
        children()

    async def handler_async(payload: Payload, run: Run) -> None:
        children()

    child = job(broker, lambda payload, run: None, "test.child")
    parent = job(broker, handler_async if is_async else handler)
    id_ = parent.send_with_options(request_id=REQUEST, trace=TRACE).id
    start_worker()

    def completed() -> bool:
        row = broker.runtime.store.read([id_])[0]
        return row is not None and row.state == "completed"

    eventually(completed, 20, "the run to end")
    child.send_with_options(key="outside", delay=3_600_000)

    found: dict[Any, Any] = {
        row.key: (row.request_id, row.trace)
        for row in broker.runtime.store.find(Filter(job_type="test.child"), limit=10)
    }
    assert found == {
        "sent": (REQUEST, TRACE),
        "woken": (REQUEST, TRACE),
        "own": ("mine", "t"),
        "none": (None, None),
        "outside": (None, None),
    }
    assert lineage.current() == (None, None)


def test_a_trace_is_one_line_of_bounded_length(broker: Broker) -> None:
    known = job(broker, lambda payload, run: None)
    for trace in ("a\nb", "x" * 513, ""):
        with pytest.raises((UsageError, PayloadInvalid)):
            known.send_with_options(trace=trace)


def test_events_are_switched_by_the_setting_when_policies_are_published(broker: Broker) -> None:
    runtime = broker.runtime
    runtime.publish()
    assert runtime.store.get("outbox", "events") is None
    runtime._events_wanted = True
    runtime.publish()
    job(broker, lambda payload, run: None).send()
    assert [event.name for event in runtime.store.events(None).events] == ["job.created"]
