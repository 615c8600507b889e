"""Errors full of secrets, markup, U+0000 and megabytes go through every path, and none of it comes out anywhere."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from store.errors import Unavailable
from store.events import Wake
from store.filters import Filter
from store.following import switch_events
from store.identity import job_id
from store.valkey.address import parse
from store.valkey.client import Client
from tests.endtoend.house import ROOT, House, eventually

SECRET = "hunter2-of-the-customer"

TYPES = (
    "sync", "coroutine", "group", "base", "class", "answer", "result", "verbs", "wake", "logged", "hook", "store",
)  # fmt: skip


def told(house: House, *words: str) -> str:
    """All that a command prints."""
    done = subprocess.run(
        [sys.executable, "-m", "ops.cli.main", *words],
        cwd=ROOT,
        env=house.environment | {"JOBS_LOG_FORMAT": "json"},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return (done.stdout + done.stderr).decode()


@pytest.mark.parametrize("style", ["json", "console"])
def test_nothing_of_an_errors_text_comes_out_anywhere(make_house: Callable[..., House], style: str) -> None:
    house = make_house(SECRET=SECRET, JOBS_LOG_FORMAT=style, JOBS_SECRET_REDACT="true")
    switch_events(house.store, on=True)
    worker = house.worker("tests.endtoend.leaky", JOBS_LOG_LEVEL="debug")
    ids = {}
    for name in TYPES:
        type_ = f"leak.{name}"
        ids[type_] = job_id("default", "default", type_, name)
        house.store.wake([Wake(ids[type_], "default", "default", type_, name, "{}")])
    for type_, id_ in ids.items():
        if type_ != "leak.hook":
            eventually(lambda id_=id_: house.row(id_).retries, 60, f"{type_} to fail")  # type: ignore[misc]
    house.wait_state(ids["leak.hook"], "completed")  # another's hook that fails is logged, and keeps no job
    worker.terminate()
    worker.wait(60)

    codes = {type_: house.row(id_).failure_code for type_, id_ in ids.items() if type_ != "leak.hook"}
    assert codes == {
        "leak.sync": "Leak", "leak.coroutine": "Leak", "leak.group": "ExceptionGroup", "leak.base": "SystemExit",
        "leak.class": "Odd__b_", "leak.answer": "outcome_unknown", "leak.result": "payload_invalid",
        "leak.verbs": "usage", "leak.wake": "payload_invalid", "leak.logged": "RuntimeError",
        "leak.store": codes["leak.store"],
    }  # fmt: skip
    rows = repr(house.store.find(Filter(), limit=1000))
    history = repr([house.store.history(id_) for id_ in ids.values()])
    events = repr(house.store.events(None, limit=1000))
    assert "attempt_failed" in history
    printed = [told(house, "list"), told(house, "list", "--json"), told(house, "events", "tail", "--json")]
    for id_ in ids.values():
        printed += [told(house, "show", id_), told(house, "show", id_, "--json")]
    logs = house.logs()
    assert "job_retry" in logs
    assert "thread_died" in logs
    assert "a log line of app could not be written (Leak)" in logs
    assert len(logs) < 300_000
    for place, text in {"rows": rows, "history": history, "events": events, "printed": "\n".join(printed)}.items():
        assert SECRET not in text, f"{place}: {around(text)}"
        assert "onerror" not in text, place
    assert SECRET not in logs, around(logs)
    assert "onerror" not in logs
    assert "\x00" not in logs
    assert "\x1b[31m" not in logs


def around(text: str) -> str:
    place = text.index(SECRET)
    return text[max(0, place - 300) : place + 60]


def test_a_valkey_whose_address_holds_a_secret_is_not_told() -> None:
    with pytest.raises(Unavailable) as caught:
        Client(parse(f"redis://user:{SECRET}@127.0.0.1:1/0")).ping()
    assert SECRET not in str(caught.value)
