"""``wake``: what it writes, what it refuses, and that a refusal changes nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from store.contract import ANY_VERSION, Document, Store
from store.engines.valkey import Valkey
from store.identity import job_id
from store.policy import Policy
from store.valkey.address import parse
from store.valkey.client import Client
from store.valkey.leases import Leases
from tests.cli.conftest import FOREIGN, Command

KNOWN = "proposal.repository"
FITS = '{"repository":"r","incarnation":"i"}'

Rows = Callable[[], list[Any]]


def test_a_wake_takes_its_defaults_from_the_published_policy(dramaturg: Command, rows: Rows) -> None:
    answer = dramaturg("wake", FOREIGN, "--key", "7", "--payload", '{"n": 1}', "--json").json
    (row,) = rows()
    assert row.id == answer["id"] == job_id("default", "high", FOREIGN, "7")
    assert (row.queue, row.priority, row.payload) == ("high", 3, '{"n":1}')
    assert answer["state"] == "queued"
    assert answer["generation"] == row.generation
    assert answer["created"] is True


def test_a_known_type_has_its_key_made_from_the_payload(dramaturg: Command, rows: Rows) -> None:
    answer = dramaturg(
        "wake", KNOWN, "--payload", FITS, "--owner", "ann", "--priority", "2", "--in", "5m", "--json"
    ).json
    (row,) = rows()
    assert answer["key"] == row.key == "r@i"
    assert (row.owner, row.priority) == ("ann", 2)
    assert (row.run_at - row.created_at).total_seconds() == pytest.approx(300)


def test_the_options_reach_the_row(dramaturg: Command, rows: Rows) -> None:
    at = "2040-12-01 09:00 Europe/Berlin"
    done = dramaturg("wake", FOREIGN, "--key", "k", "--at", at, "--queue", "low", "--domain", "d", "--json")
    assert done.json["run_at"] == "2040-12-01T08:00:00.000000Z"
    (row,) = rows()
    assert (row.queue, row.domain, row.key) == ("low", "d", "k")


def test_once_leaves_the_original_and_says_so(dramaturg: Command, rows: Rows) -> None:
    first = dramaturg("wake", FOREIGN, "--key", "k", "--payload", '{"n":1}', "--json").json
    before = rows()
    again = dramaturg("wake", FOREIGN, "--key", "k", "--payload", '{"n":2}', "--once", "--json").json
    assert rows() == before
    assert (again["repeated"], again["id"], again["generation"]) == (True, first["id"], first["generation"])
    assert "left as it is" in dramaturg("wake", FOREIGN, "--key", "k", "--once").out


@pytest.mark.parametrize("from_file", [True, False])
def test_a_payload_may_come_from_a_file_or_from_standard_input(
    dramaturg: Command, rows: Rows, tmp_path: Path, from_file: bool
) -> None:
    text = json.dumps({"text": "x" * 300_000})  # more than one argument may hold
    (tmp_path / "payload").write_text(text)
    words = ("--payload", f"@{tmp_path}/payload") if from_file else ("--payload", "-")
    assert dramaturg("wake", FOREIGN, "--key", "k", *words, stdin=text.encode()).code == 0
    assert json.loads(rows()[0].payload) == json.loads(text)


def test_a_wake_rings_the_valkey_that_is_named(dramaturg: Command, valkey_url: str) -> None:
    assert dramaturg("wake", FOREIGN, "--key", "k", JOBS_VALKEY_URL=valkey_url).code == 0
    assert dramaturg("wake", FOREIGN, "--key", "later", "--in", "1h", JOBS_VALKEY_URL=valkey_url).code == 0
    client = Client(parse(valkey_url))
    assert Leases(client).sizes("high").ready == 1
    client.close()


def test_a_wake_rings_the_embedded_valkey_of_the_home(dramaturg: Command, home: Path) -> None:
    with Valkey(home) as server:
        assert dramaturg("wake", FOREIGN, "--key", "k").code == 0
        client = Client(parse(server.url))
        assert Leases(client).sizes("high").ready == 1
        client.close()


def test_a_wake_starts_no_valkey_and_needs_none(dramaturg: Command, home: Path, rows: Rows) -> None:
    done = dramaturg("wake", FOREIGN, "--key", "k")
    assert (done.code, done.err) == (0, "")
    assert not [path for path in home.iterdir() if "valkey" in path.name]
    unreachable = dramaturg("wake", FOREIGN, "--key", "other", "--json", JOBS_VALKEY_URL="redis://:hunter2@127.0.0.1:1")
    assert unreachable.code == 0
    assert "Valkey was not reached" in unreachable.err
    assert "hunter2" not in unreachable.err
    assert len(rows()) == 2


# --- bad input: a clear error each, and nothing changed


def deep(levels: int) -> str:
    return '{"a":' + "[" * levels + "]" * levels + "}"


BAD: dict[str, tuple[tuple[str, ...], str]] = {
    "unknown type": (("wake", "no.such"), "no.such"),
    "misspelled type": (("wake", "invoice.sned"), "did you mean invoice.send"),
    "type with a control character": (("wake", "a\x1b[31m"), "control character"),
    "empty type": (("wake", ""), "job type is empty"),
    "priority 0": (("wake", FOREIGN, "--priority", "0"), "--priority"),
    "priority 11": (("wake", FOREIGN, "--priority", "11"), "--priority"),
    "unknown zone": (("wake", FOREIGN, "--at", "2040-01-01 09:00 Mars/Base"), "Mars/Base"),
    "no zone": (("wake", FOREIGN, "--at", "2040-01-01 09:00"), "no time zone"),
    "in and at": (("wake", FOREIGN, "--in", "5m", "--at", "2040-01-01T09:00Z"), "exclude"),
    "in nonsense": (("wake", FOREIGN, "--in", "soon"), "--in"),
    "NaN": (("wake", FOREIGN, "--payload", '{"a":NaN}'), "NaN"),
    "Infinity": (("wake", FOREIGN, "--payload", '{"a":-Infinity}'), "not JSON"),
    "lone surrogate": (("wake", FOREIGN, "--payload", '{"a":"\\ud800"}'), "surrogate"),
    "bytes that are not UTF-8": (("wake", FOREIGN, "--payload", '{"a":"\udcff"}'), "surrogate"),
    "U+0000": (("wake", FOREIGN, "--payload", '{"a":"\\u0000"}'), "U+0000"),
    "10,000 nested lists": (("wake", FOREIGN, "--payload", deep(10_000)), "nested"),
    "not JSON": (("wake", FOREIGN, "--payload", "{'a': 1}"), "not JSON"),
    "not an object": (("wake", FOREIGN, "--payload", "[1]"), "not a JSON object"),
    "a file that is not there": (("wake", FOREIGN, "--payload", "@/no/such/file"), "can't be read"),
    "empty key": (("wake", FOREIGN, "--key", ""), "key is empty"),
    "key with a control character": (("wake", FOREIGN, "--key", "a\x00"), "control character"),
    "key that is not NFC": (("wake", FOREIGN, "--key", "e\u0301"), "NFC"),
    "empty domain": (("wake", FOREIGN, "--domain", " "), "domain is empty"),
    "the scheduler's queue": (("wake", FOREIGN, "--queue", "scheduler"), "scheduler"),
    "queue that no worker can serve": (("wake", FOREIGN, "--queue", "a b"), "queue"),
    "once without a key": (("wake", FOREIGN, "--once"), "--key"),
    "queue too long": (("wake", FOREIGN, "--queue", "q" * 129), "queue"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_told_and_changes_nothing(dramaturg: Command, rows: Rows, case: str) -> None:
    words, why = BAD[case]
    done = dramaturg(*words, "--json")
    assert done.code == 2
    assert why in done.err
    assert done.json["error"]["code"] in ("usage", "payload_invalid", "type_unknown")
    assert all(line.isprintable() for line in done.err.splitlines())
    assert rows() == []


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--payload", '{"repository":"r"}'), "incarnation: missing"),
        (("--payload", '{"repository":"r","incarnation":"i","hunter2":1}'), "extra_forbidden"),
        (("--payload", '{"repository":["hunter2!"],"incarnation":"i"}'), "string_type"),
        (("--payload", '{"repository":"","incarnation":"i"}'), "renders empty"),
    ],
)
def test_a_payload_that_does_not_fit_its_type_changes_nothing(
    dramaturg: Command, rows: Rows, words: tuple[str, ...], why: str
) -> None:
    done = dramaturg("wake", KNOWN, *words, "--json")
    assert done.code == 2
    assert why in done.json["error"]["message"]
    assert "hunter2!" not in done.err
    assert rows() == []


@pytest.mark.parametrize("raw", [b'{"a":"' + b"x" * 1_048_576 + b'"}', b'{"a":"\xff"}', b"", b"\xef\xbb\xbf{}"])
def test_standard_input_that_is_no_payload_changes_nothing(dramaturg: Command, rows: Rows, raw: bytes) -> None:
    done = dramaturg("wake", FOREIGN, "--payload", "-", stdin=raw)
    assert done.code == 2
    assert "payload" in done.err
    assert len(done.err) < 1000
    assert rows() == []


def test_once_needs_a_type_that_keeps_its_finished_rows(dramaturg: Command, rows: Rows) -> None:
    done = dramaturg("wake", "proposal.scan", "--once")
    assert done.code == 2
    assert "keeps no finished rows" in done.err
    assert rows() == []


# --- the key of a type that is declared elsewhere


def publish(store: Store, **fields: Any) -> None:
    store.put(Document("policy", FOREIGN, ANY_VERSION, Policy(FOREIGN, **fields).document()))


@pytest.mark.parametrize(
    ("template", "payload", "key"),
    [
        ("{invoice_id}", '{"invoice_id":7,"n":1}', "7"),
        ("{area}/{{{invoice_id}}}", '{"area":"x","invoice_id":"7"}', "x/{7}"),
        ("{flag}", '{"flag":true}', "True"),
        ("fixed", "{}", "fixed"),
    ],
)
def test_a_published_key_is_made_from_the_payload(
    dramaturg: Command, store: Store, rows: Rows, template: str, payload: str, key: str
) -> None:
    publish(store, key=template)
    for _ in range(2):
        assert dramaturg("wake", FOREIGN, "--payload", payload, "--json").json["key"] == key
    assert [row.id for row in rows()] == [job_id("default", "default", FOREIGN, key)]
    assert dramaturg("wake", FOREIGN, "--payload", payload, "--once").code == 0
    assert dramaturg("wake", FOREIGN, "--key", "mine", "--json").json["key"] == "mine"


@pytest.mark.parametrize("payload", ["{}", '{"id":""}', '{"id":null}', '{"id":["hunter2"]}', '{"id":"a\\n"}'])
def test_a_payload_without_what_the_published_key_names_changes_nothing(
    dramaturg: Command, store: Store, rows: Rows, payload: str
) -> None:
    publish(store, key="{id}")
    done = dramaturg("wake", FOREIGN, "--payload", payload)
    assert done.code == 2
    assert "key" in done.err
    assert "hunter2" not in done.err
    assert rows() == []


@pytest.mark.parametrize("template", ["{a.b}", "{a[0]}", "{}", "{a!r}", "{a:>9}", "{a"])
def test_a_published_key_that_can_not_be_read_is_refused(
    dramaturg: Command, store: Store, rows: Rows, template: str
) -> None:
    publish(store, key=template)
    done = dramaturg("wake", FOREIGN, "--payload", '{"a":1}')
    assert done.code == 1
    assert "--key" in done.err
    assert rows() == []


def test_a_schedule_is_one_job_whoever_wakes_it(dramaturg: Command, store: Store) -> None:
    publish(store, periodic="0 9 * * *")
    assert dramaturg("wake", FOREIGN, "--json").json["key"] == FOREIGN
