"""Errors full of secrets, markup, U+0000 and megabytes go through every path, and none of it comes out anywhere."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable

import pytest

from store.contract import Store
from store.errors import Unavailable
from store.events import Wake
from store.following import switch_events
from store.identity import job_id
from store.valkey.address import parse
from store.valkey.client import Client
from tests.endtoend.house import ROOT, House, eventually
from tests.middleware.test_fence import everything_in

SECRET = "hunter2-of-the-customer"

TYPES = (
    "sync", "coroutine", "group", "base", "class", "answer", "result", "verbs", "wake", "logged", "hook", "store",
)  # fmt: skip


#: Runs commands one after the other, as JSON on standard input has them.
COMMANDS = """
import json, sys
from ops.cli.main import main
sys.exit(max(main(words) for words in json.load(sys.stdin)))
"""


def told(house: House, *commands: list[str]) -> str:
    """All that these commands print."""
    done = subprocess.run(
        [sys.executable, "-c", COMMANDS],
        cwd=ROOT,
        env=house.environment,
        input=json.dumps(commands).encode(),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return (done.stdout + done.stderr).decode()


def everything_in_the_database(store: Store) -> str:
    """Every table that there is, whole."""
    if store.dialect == "surreal":
        tables = "SELECT VALUE [t] FROM array::map(object::keys((INFO FOR DB).tables), |$t| { t: $t })"
        whole = "SELECT VALUE [type::string($this)] FROM {}"
    elif store.dialect == "sqlite":
        tables = "SELECT name FROM sqlite_master WHERE type = 'table'"
        whole = 'SELECT * FROM "{}"'
    else:
        ours = "relkind = 'r' AND relnamespace = 'dramaturg'::regnamespace"
        tables = f"SELECT oid::regclass::text FROM pg_class WHERE {ours}"
        whole = "SELECT t::text FROM {} AS t"
    with store.transaction() as tx:
        names = [name for (name,) in tx.execute(tables)]
        assert len(names) > 5
        return repr([(name, tx.execute(whole.format(name))) for name in names])


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
    database = everything_in_the_database(house.store)
    for word in ("attempt_failed", "job.retry_scheduled", "leak.hook", "Odd__b_"):
        assert word in database
    shown = [["show", id_, *form] for id_ in ids.values() for form in ([], ["--json"])]
    printed = told(house, ["list"], ["list", "--json"], ["events"], ["events", "--json"], ["stats"], *shown)
    assert printed.count("leak.verbs") > 4
    logs = house.logs()
    assert "job_retry" in logs
    assert "thread_died" in logs
    assert "a log line of app could not be written (Leak)" in logs
    assert len(logs) < 300_000
    valkey = everything_in(house.settings["JOBS_VALKEY_URL"]).decode("utf-8", "replace")
    assert "scheduler.reconcile" in valkey
    for place, text in {"database": database, "valkey": valkey, "printed": printed}.items():
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
