"""``show``, ``list``, ``stats`` and ``cancel`` on rows of all kinds."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from store import identity
from store.contract import Store
from store.events import Claim, Failure, Finish, Kind
from store.job import Job
from store.operations import Item, settle
from store.policy import Policy
from tests.cli.conftest import FOREIGN, Command, woken

HOSTILE = "\x9b31m\u202e[bold red]x[/bold red]<img src=x onerror=alert(1)>"


def claimed(store: Store, id_: str) -> Job:
    job = store.claim([Claim(id_, identity.new_lease_id(), "worker", 60)])[0].job
    assert job is not None
    return job


def failed(store: Store, id_: str, code: str = "broken") -> None:
    job = claimed(store, id_)
    finish = Finish(str(job.lease_id), job.attempt, job.generation, Kind.RETRY, failure=Failure("ValueError", code))
    settle(store, [Item(id_, finish, Policy(FOREIGN), job)])


def test_show_has_the_row_and_its_history(dramaturg: Command, store: Store) -> None:
    id_ = woken(store, payload='{"n":1}')
    failed(store, id_)
    shown = dramaturg("show", id_, "--json").json
    assert shown["id"] == id_
    assert shown["payload"] == {"n": 1}
    assert shown["failure"] == {"class": "ValueError", "code": "broken"}
    assert [(line["kind"], line["code"], line["attempt"]) for line in shown["history"]] == [
        ("attempt_failed", "broken", 1)
    ]
    [told] = shown["failures"]
    assert (told["attempt"], told["code"], told["at"]) == (1, "broken", shown["history"][0]["at"])
    assert told["delay"] == shown["history"][0]["detail"]["delay"] > 0
    assert set(Job._fields) <= set(shown)
    for_people = dramaturg("show", id_)
    assert for_people.code == 0
    assert "queued: scheduled" in for_people.out
    assert "attempt_failed" in for_people.out
    assert f"delay {told['delay']}" in for_people.out


def test_an_id_may_be_spelled_in_any_way_that_uuids_have(dramaturg: Command, store: Store) -> None:
    id_ = woken(store)
    assert dramaturg("show", id_.upper(), "--json").json["id"] == id_
    assert dramaturg("show", "seven").code == 2


def test_what_rows_hold_neither_drives_the_terminal_nor_is_read_as_markup(dramaturg: Command, store: Store) -> None:
    id_ = woken(store, "[red]key[/red]", payload=json.dumps({"text": HOSTILE}, ensure_ascii=False), owner="[link=x]o")
    for words in (("show", id_), ("list",), ("stats",)):
        done = dramaturg(*words)
        assert done.code == 0
        assert all(line.isprintable() for line in done.out.splitlines()), words
    assert "[bold red]x[/bold red]<img" in dramaturg("show", id_).out
    assert "[red]key[/red]" in dramaturg("list").out
    raw = dramaturg("show", id_, "--json")
    assert raw.out.isascii()
    assert raw.json["payload"] == {"text": HOSTILE}


@pytest.fixture
def some(store: Store) -> dict[str, str]:
    ids = {
        "ready": woken(store, "ready", owner="ann"),
        "scheduled": woken(store, "scheduled", delay=3600.0, domain="other"),
        "failed once": woken(store, "failed once", queue="low"),
        "processing": woken(store, "processing"),
    }
    failed(store, ids["failed once"])
    claimed(store, ids["processing"])
    return ids


@pytest.mark.parametrize(
    ("words", "keys"),
    [
        ((), {"ready", "scheduled", "failed once", "processing"}),
        (("--state", "processing"), {"processing"}),
        (("--state", "ready"), {"ready"}),
        (("--phase", "scheduled"), {"scheduled", "failed once"}),
        (("--state", "queued", "--state", "processing", "--domain", "default"), {"ready", "failed once", "processing"}),
        (("--owner", "ann"), {"ready"}),
        (("--key", "ready"), {"ready"}),
        (("--queue", "low"), {"failed once"}),
        (("--failure", "broken"), {"failed once"}),
        (("--type", "no.such"), set()),
    ],
)
def test_list_shows_the_rows_that_match(
    dramaturg: Command, some: dict[str, str], words: tuple[str, ...], keys: set[str]
) -> None:
    assert {job["key"] for job in dramaturg("list", *words, "--json").json} == keys
    for_people = dramaturg("list", *words)
    assert all(some[key] in for_people.out for key in keys)


def test_list_keeps_to_its_limit_and_says_that_there_is_more(dramaturg: Command, some: dict[str, str]) -> None:
    assert len(dramaturg("list", "--limit", "2", "--json").json) == 2
    assert "and more" in dramaturg("list", "--limit", "2").out
    assert "and more" not in dramaturg("list", "--limit", "4").out


def test_list_orders_as_asked(dramaturg: Command, some: dict[str, str]) -> None:
    ids = [job["id"] for job in dramaturg("list", "--json").json]
    assert ids == sorted(ids)
    assert [job["id"] for job in dramaturg("list", "--desc", "--json").json] == ids[::-1]


def test_stats_counts_by_domain_queue_and_type(dramaturg: Command, some: dict[str, str]) -> None:
    told = dramaturg("stats", "--json").json
    found = {(row["domain"], row["queue"]): row for row in told if row["job_type"] == FOREIGN}
    assert {row["ready"] for row in told if row["job_type"] != FOREIGN} == {0}  # published, and nothing to do
    assert found["default", "default"]["ready"] == 1
    assert found["default", "default"]["processing"] == 1
    assert found["other", "default"]["scheduled"] == 1
    assert found["default", "low"]["scheduled"] == 1
    assert "all" in dramaturg("stats").out


def test_a_queued_job_is_cancelled_and_one_that_runs_is_asked_to_stop(
    dramaturg: Command, store: Store, some: dict[str, str]
) -> None:
    assert dramaturg("cancel", some["ready"], "--json").json["affected"] == 1
    asked = dramaturg("cancel", some["processing"], "--json")
    assert (asked.json["affected"], asked.json["state"]) == (1, "processing")
    again = dramaturg("cancel", some["processing"], "--json")
    assert (again.code, again.json["affected"]) == (0, 0)
    ready, running = store.read([some["ready"], some["processing"]])
    assert ready is not None
    assert ready.state == "cancelled"
    assert running is not None
    assert running.cancel_requested_at is not None


def test_what_has_ended_or_is_not_there_can_not_be_cancelled(dramaturg: Command, some: dict[str, str]) -> None:
    dramaturg("cancel", some["ready"])
    assert dramaturg("cancel", some["ready"]).code == 1
    assert dramaturg("cancel", identity.new_id()).code == 1


def test_a_dry_run_tells_what_the_real_one_does_and_changes_nothing(
    dramaturg: Command, some: dict[str, str], rows: Callable[[], list[Any]]
) -> None:
    before = rows()
    dry = dramaturg("cancel", "--domain", "default", "--dry-run", "--json").json
    assert rows() == before
    assert dry == {"affected": 3, "unchanged": 0, "unsettled": 0, "dry_run": True}
    assert dramaturg("cancel", some["ready"], "--dry-run").code == 0
    assert rows() == before
    assert dramaturg("cancel", "--domain", "default", "--json").json == dry | {"dry_run": False}
    assert dramaturg("cancel", "--domain", "default", "--json").json["affected"] == 0


@pytest.mark.parametrize("words", [(), ("--dry-run",), ("--domain", ""), ("--key", "")])
def test_a_cancel_that_names_nothing_touches_nothing(
    dramaturg: Command, some: dict[str, str], rows: Callable[[], list[Any]], words: tuple[str, ...]
) -> None:
    before = rows()
    assert dramaturg("cancel", *words).code == 2
    assert rows() == before


def test_an_id_and_filters_are_not_taken_together(dramaturg: Command, some: dict[str, str]) -> None:
    assert dramaturg("cancel", some["ready"], "--owner", "ann").code == 2


def test_no_phase_of_several_is_silently_dropped(dramaturg: Command) -> None:
    done = dramaturg("list", "--phase", "ready", "--phase", "parked")
    assert done.code == 2
    assert "ready and parked can't be asked for together" in done.err


def test_one_job_is_told_as_one(dramaturg: Command, store: Store) -> None:
    woken(store, "1", owner="ann")
    assert dramaturg("cancel", "--owner", "ann", "--dry-run").out.startswith("1 job would be cancelled")
    woken(store, "2", owner="ann")
    assert dramaturg("cancel", "--owner", "ann").out.startswith("2 jobs cancelled")
