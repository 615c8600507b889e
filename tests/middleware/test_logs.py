"""No foreign text, payload or secret reaches a log line."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import dramatiq
import pytest

from middleware import logs
from middleware.logs import Throttle
from store.errors import StoreUnavailable


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    before = root.handlers[:], root.level
    stream = io.StringIO()
    root.handlers = [logging.StreamHandler(stream)]
    logs.configure("debug", "json")
    yield stream
    root.handlers, level = before
    root.setLevel(level)


def message() -> Any:
    return dramatiq.Message("default", "pay", ("hunter2",), {"card": "hunter2"}, {}, message_id="m-1")


def test_what_dramatiq_says_of_a_message_holds_its_name_and_id_only(lines: io.StringIO) -> None:
    try:
        raise ValueError("hunter2\n\x1b[31m <script>")
    except ValueError as error:
        dramatiq.get_logger("dramatiq.worker", "WorkerThread").error(
            "Failed to process message %s with unhandled exception %s.", message(), error, exc_info=True
        )
    text = lines.getvalue()
    assert "hunter2" not in text
    assert "script" not in text
    assert "pay[m-1]" in text
    assert "ValueError" in text
    assert "test_logs.py" in text


def test_a_line_with_a_percent_sign_is_no_trap(lines: io.StringIO) -> None:
    try:
        raise ValueError("100%s")
    except ValueError:
        logging.getLogger("redis").exception("at 100%")
    assert "at 100%" in json.loads(lines.getvalue())["event"]


def test_control_characters_do_not_forge_lines(lines: io.StringIO) -> None:
    logs.log.info("job_started", job_type="a\nb\x1b[31m")
    assert len(lines.getvalue().splitlines()) == 1
    assert "\x1b" not in lines.getvalue()


def test_an_error_of_ours_is_told_with_its_text(lines: io.StringIO) -> None:
    logs.trouble("queue_unavailable_in_a_test", StoreUnavailable("the database did not answer"))
    assert "the database did not answer" in lines.getvalue()


def test_the_same_trouble_is_told_once_a_minute_with_a_count(monkeypatch: pytest.MonkeyPatch) -> None:
    moment = [1000.0]
    monkeypatch.setattr("store.clock.elapsed", lambda: moment[0])
    throttle = Throttle()
    assert [throttle.due("valkey_error") for _ in range(5)] == [1, 0, 0, 0, 0]
    assert throttle.due("other") == 1
    moment[0] += 61
    assert throttle.due("valkey_error") == 5
    assert throttle.due("valkey_error") == 0


def test_what_asyncio_tells_of_its_tasks_ends_before_what_they_hold(lines: io.StringIO) -> None:
    logging.getLogger("asyncio").warning(
        "Executing %s took 0.2 seconds", "<Task finished coro=<pay()> result='hunter2'>"
    )
    logging.getLogger("asyncio").error("Task exception was never retrieved\nfuture: <Task exception=E('hunter2')>")
    events = [json.loads(line)["event"] for line in lines.getvalue().splitlines()]
    assert events == ["Executing", "Task exception was never retrieved"]


@pytest.mark.parametrize("driver", logs.DRIVERS)
def test_fine_lines_of_drivers_are_not_written_at_any_level(lines: io.StringIO, driver: str) -> None:
    logging.getLogger(f"{driver}.client").debug("> TEXT 'INSERT hunter2'")
    logging.getLogger(driver).info("connection failed: hunter2")
    assert lines.getvalue() == ""
    logging.getLogger(f"{driver}.client").warning("it is away")
    assert "it is away" in lines.getvalue()


def test_an_errors_words_in_a_line_of_somebody_elses_are_taken_out(lines: io.StringIO) -> None:
    try:
        raise KeyError("hunter2")
    except KeyError as error:
        logging.getLogger("app").exception(f"it failed: {error}, that is {error!r}")
    assert "hunter2" not in lines.getvalue()
    assert "it failed" in lines.getvalue()
    assert "KeyError" in lines.getvalue()


def test_a_value_that_can_not_be_told_is_no_way_out(lines: io.StringIO, capsys: pytest.CaptureFixture[str]) -> None:
    class Unsayable:
        def __str__(self) -> str:
            raise ValueError("hunter2")

        __repr__ = __str__

    root = logging.getLogger()
    root.handlers = root.handlers[:1]  # without what the test runner listens by
    logging.getLogger("app").warning("here is %s", Unsayable())
    logs.log.warning("here", value=Unsayable())
    told = lines.getvalue() + capsys.readouterr().err
    assert "hunter2" not in told
    assert told.count("could not be written (ValueError)") == 2
