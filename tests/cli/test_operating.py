"""What an operator does to jobs: another time, a fresh start, deletion, sweeps, and what the archive kept."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from store import identity
from store.clock import PARKED
from store.contract import Store
from store.events import Cancel, Claim, Event, Failure, Finish, Kind
from store.filters import Filter
from store.job import Job
from store.operations import Item, apply, settle
from store.policy import Policy
from tests.cli.conftest import FOREIGN, Command, woken

LEASE = "11111111-1111-4111-8111-111111111111"
Rows = Callable[[], list[Any]]


def job_of(store: Store, id_: str) -> Job:
    [job] = store.read([id_])
    assert job is not None
    return job


def ran(store: Store, key: str, kind: Kind = Kind.DONE, policy: Policy | None = None, **fields: Any) -> str:
    """A job whose only run has ended so; its id."""
    id_ = woken(store, key, **fields)
    [claimed] = store.claim([Claim(id_, str(identity.new_id()), "worker", 60)])
    job = claimed.job
    assert job is not None
    event: Event = Finish(
        job.lease_id or "", job.attempt, job.generation, kind, result='{"lines":3}', failure=Failure.of_code("broken")
    )
    assert settle(store, [Item(id_, event, policy or Policy(FOREIGN), job)])[0].answer == "applied"
    return id_


@pytest.fixture
def some(store: Store) -> dict[str, str]:
    """A job in each state, by its state."""
    made = {
        "queued": woken(store, "queued", run_at=PARKED),
        "completed": ran(store, "completed", payload='{"n":1}'),
        "failed": ran(store, "failed", Kind.FAIL),
        "quarantined": ran(store, "quarantined", Kind.RETRY, Policy(FOREIGN, quarantine_after=1)),
        "cancelled": woken(store, "cancelled"),
    }
    apply(store, Filter(ids=(made["cancelled"],)), Cancel())
    made["processing"] = woken(store, "processing")
    assert store.claim([Claim(made["processing"], LEASE, "worker", 60)])[0].job is not None
    assert {name: job_of(store, id_).state for name, id_ in made.items()} == {name: name for name in made}
    return made


# --- reschedule and requeue -------------------------------------------------------------------------------------------


def test_a_queued_job_gets_another_time(dramaturg: Command, store: Store, some: dict[str, str]) -> None:
    assert dramaturg("reschedule", some["queued"], "--at", "2040-01-01T09:00Z", "--json").json == {
        "affected": 1,
        "dry_run": False,
        "id": some["queued"],
        "state": "queued",
    }
    assert job_of(store, some["queued"]).run_at == datetime(2040, 1, 1, 9, tzinfo=UTC)
    assert dramaturg("reschedule", "--key", "queued", "--now").out.strip() == "1 job rescheduled"
    assert [due.id for due in store.due()] == [some["queued"]]
    assert dramaturg("reschedule", "--key", "queued", "--in", "1h").code == 0
    assert store.due() == []


@pytest.mark.parametrize("state", ["processing", "completed", "failed", "quarantined", "cancelled"])
def test_only_what_is_queued_is_rescheduled(dramaturg: Command, some: dict[str, str], rows: Rows, state: str) -> None:
    before = rows()
    done = dramaturg("reschedule", some[state], "--now")
    assert done.code == 1
    assert f"is {state}" in done.err
    assert rows() == before


@pytest.mark.parametrize("state", ["failed", "quarantined", "cancelled"])
def test_what_is_held_or_ended_without_success_is_queued_again(
    dramaturg: Command, store: Store, some: dict[str, str], state: str
) -> None:
    assert dramaturg("requeue", some[state], "--json").json["state"] == "queued"
    assert some[state] in [due.id for due in store.due()]
    assert (job_of(store, some[state]).retries, job_of(store, some[state]).failure_code) == (0, None)


@pytest.mark.parametrize("state", ["queued", "processing", "completed"])
def test_nothing_else_is_requeued(dramaturg: Command, some: dict[str, str], rows: Rows, state: str) -> None:
    before = rows()
    done = dramaturg("requeue", some[state])
    assert (done.code, f"is {state}" in done.err) == (1, True)
    assert rows() == before


# --- of all actions ---------------------------------------------------------------------------------------------------

BULK = [("reschedule", "--now"), ("requeue",), ("prune",), ("cancel",)]


@pytest.mark.parametrize("command", BULK, ids=lambda words: words[0])
def test_a_dry_run_of_many_counts_what_the_real_one_does_and_changes_nothing(
    dramaturg: Command, some: dict[str, str], rows: Rows, command: tuple[str, ...]
) -> None:
    before = rows()
    dry = dramaturg(*command, "--type", FOREIGN, "--dry-run", "--json").json
    assert rows() == before
    assert dry["affected"] > 0
    assert dramaturg(*command, "--type", FOREIGN, "--json").json == dry | {"dry_run": False}
    assert rows() != before


@pytest.mark.parametrize("command", BULK, ids=lambda words: words[0])
@pytest.mark.parametrize("scope", [(), ("--domain", ""), ("--key", ""), ("--owner", " "), ("--dry-run",)])
def test_a_scope_that_names_nothing_touches_nothing(
    dramaturg: Command, some: dict[str, str], rows: Rows, command: tuple[str, ...], scope: tuple[str, ...]
) -> None:
    before = rows()
    assert dramaturg(*command, *scope).code == 2
    assert rows() == before


@pytest.mark.parametrize("command", BULK, ids=lambda words: words[0])
def test_a_job_that_is_not_there_is_told(dramaturg: Command, command: tuple[str, ...]) -> None:
    assert dramaturg(*command, str(identity.new_id())).code == 1
    assert dramaturg(*command, "no-id").code == 2


@pytest.mark.parametrize("words", [(), ("--in", "5m", "--now"), ("--in", "soon"), ("--at", "later")])
def test_a_reschedule_wants_one_time(dramaturg: Command, some: dict[str, str], rows: Rows, words: list[str]) -> None:
    before = rows()
    assert dramaturg("reschedule", some["queued"], *words).code == 2
    assert rows() == before


# --- prune and the archive --------------------------------------------------------------------------------------------


def test_what_has_ended_is_deleted_and_what_is_held_stays_unless_it_is_named(
    dramaturg: Command, store: Store, some: dict[str, str]
) -> None:
    assert dramaturg("prune", "--older-than", "1d", "--json").json["affected"] == 0
    done = dramaturg("prune", "--older-than", "0s", "--json").json
    assert done["affected"] == 3
    assert {group["state"] for group in done["groups"]} == {"completed", "failed", "cancelled"}
    assert {job.state for job in store.find(Filter())} == {"queued", "processing", "quarantined"}
    assert dramaturg("prune", "--state", "quarantined", "--json").json["affected"] == 1
    assert dramaturg("prune", some["processing"]).code == 1
    assert dramaturg("prune", "--state", "queued").code == 2
    assert dramaturg("prune", "--state", "ready").code == 2


def test_a_preview_shows_the_largest_groups(dramaturg: Command, store: Store) -> None:
    for number in range(3):
        ran(store, f"a{number}", domain="one")
    ran(store, "b", domain="two")

    dry = dramaturg("prune", "--older-than", "0s", "--dry-run", "--top", "1", "--json").json

    assert dry["affected"] == 4
    assert dry["groups"] == [
        {"domain": "one", "queue": "default", "job_type": FOREIGN, "state": "completed", "count": 3}
    ]
    for_people = dramaturg("prune", "--older-than", "0s", "--dry-run").out
    assert for_people.startswith("4 jobs would be deleted")
    assert "two" in for_people


def test_what_is_pruned_is_kept_where_the_settings_say_so(dramaturg: Command, some: dict[str, str]) -> None:
    kept = some["completed"]
    settings = {"JOBS_ARCHIVE_BEFORE_DELETE": "true", "JOBS_ARCHIVE_COMPRESS": "true"}
    assert dramaturg("archive", "meta", kept).code == 1
    assert dramaturg("prune", some["failed"]).code == 0
    assert dramaturg("prune", kept, **settings, JOBS_ARCHIVE_COMPRESS_DROP_JSON="true").code == 0

    [meta] = dramaturg("archive", "meta", kept, "--json").json
    assert [meta[part] for part in ("payload_json", "result_json", "payload_compressed", "result_compressed")] == [
        False,
        False,
        True,
        True,
    ]
    shown = dramaturg("archive", "show", kept, "--json").json
    assert (shown["id"], shown["payload"], shown["result"]) == (kept, {"n": 1}, {"lines": 3})
    assert kept in dramaturg("archive", "show", kept).out
    assert "True" in dramaturg("archive", "meta", kept).out
    assert dramaturg("archive", "meta", some["failed"]).code == 1


# --- sweeps -----------------------------------------------------------------------------------------------------------


def test_retention_is_swept_by_hand(dramaturg: Command, store: Store, some: dict[str, str]) -> None:
    assert dramaturg("sweep", "retention", "--json").json["affected"] == 0
    at_once = {"JOBS_RETENTION_DAYS_COMPLETED": "0.00000000001"}
    dry = dramaturg("sweep", "retention", "--dry-run", "--json", **at_once).json
    assert dry["affected"] == 1
    assert dramaturg("sweep", "retention", "--domain", "elsewhere", "--json", **at_once).json["affected"] == 0
    assert dramaturg("sweep", "retention", "--json", **at_once).json == dry | {"dry_run": False}
    assert store.read([some["completed"]]) == [None]


def test_the_time_to_live_is_swept_by_hand(dramaturg: Command, store: Store, some: dict[str, str]) -> None:
    assert dramaturg("sweep", "ttl").code == 2
    assert dramaturg("sweep", "ttl", "--runtime", "1h", "--json").json["affected"] == 0
    words = ("sweep", "ttl", "--runtime", "0s", "--age", "0s", "--action", "fail")
    assert dramaturg(*words, "--dry-run").out.startswith("1 job would be failed")
    assert dramaturg(*words).code == 0
    assert job_of(store, some["processing"]).failure_code == "ttl_runtime"
    assert job_of(store, some["queued"]).state == "queued", "a parked job has no age"


def test_integrity_is_looked_at_by_hand(dramaturg: Command, store: Store, some: dict[str, str]) -> None:
    assert dramaturg("sweep", "integrity", "--fix", "--json").json == {
        "processing_expired": 0,
        "history_without_job": 0,
        "documents_unreadable": 0,
        "fixed": 0,
        "fix": True,
        "documents": [],
    }
    assert "processing_expired" in dramaturg("sweep", "integrity").out


@pytest.mark.parametrize(
    ("name", "words"), [("retention", ()), ("ttl", ("--age", "1h")), ("integrity", ())], ids=lambda value: str(value)
)
def test_a_second_sweep_is_refused(dramaturg: Command, store: Store, name: str, words: tuple[str, ...]) -> None:
    assert store.lead(f"sweep.{name}", "somebody", 60).held
    done = dramaturg("sweep", name, *words)
    assert done.code == 1
    assert f"another {name} sweep is going on" in done.err


@pytest.mark.parametrize(
    "wrong",
    [
        {"JOBS_PRUNE_INTERVAL_SEC": "61"},
        {"JOBS_TTL_ENFORCE": "true"},
        {"JOBS_TTL_ACTION": "forget"},
        {"JOBS_ARCHIVE_COMPRESS_DROP_JSON": "true"},
        {"JOBS_RETENTION_DAYS_FAILED": "-1"},
        {"JOBS_PRUNE_DOMAIN": " , "},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_settings_that_can_not_be_are_told(dramaturg: Command, rows: Rows, wrong: dict[str, str]) -> None:
    done = dramaturg("sweep", "retention", **wrong)
    assert done.code == 2
    assert next(iter(wrong)) in done.err


def test_every_command_prints_one_json_value(dramaturg: Command, some: dict[str, str]) -> None:
    for words in (
        ("reschedule", some["queued"], "--now"),
        ("requeue", some["failed"]),
        ("prune", some["completed"]),
        ("prune", "--key", "nothing"),
        ("prune",),
        ("archive", "meta", some["completed"]),
        ("sweep", "retention"),
        ("sweep", "ttl", "--age", "1h"),
    ):
        assert isinstance(json.loads(dramaturg(*words, "--json").out), dict)
