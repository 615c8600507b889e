"""Credentials: a run opens those that its type declares, from files that are looked at each time, and no others."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from middleware.broker import Broker
from middleware.credentials import Credentials, CredentialSettings, check_declared, parse
from middleware.health import Health, judge
from middleware.inline import InlineJobs
from middleware.job import Payload, declare
from middleware.run import Run
from middleware.unit_run import make_run
from store.errors import CredentialMissing, CredentialNotGranted, CredentialUnusable, UsageError
from store.events import Wake
from store.outcome import Done, Outcome
from store.settings import load
from tests.endtoend.house import eventually
from tests.middleware.credential_files import content, issue

NAME = "storage.reader"
NOW = datetime.now(UTC)


def reading(path: Path, name: str = NAME) -> Credentials:
    return Credentials(CredentialSettings.model_validate({"JOBS_CREDENTIAL_FILE_*": {name.replace(".", "_"): path}}))


# --- files


def test_a_file_is_found_by_its_credentials_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = issue(tmp_path / "reader.credential")
    monkeypatch.setenv("JOBS_CREDENTIAL_FILE_STORAGE_READER", str(path))
    credential = Credentials(load(CredentialSettings)).open(NAME)
    assert (credential.name, credential.write, credential["key"]) == (NAME, False, "hunter2")
    assert "key" in credential
    assert "hunter2" not in repr(credential)
    monkeypatch.delenv("JOBS_CREDENTIAL_FILE_STORAGE_READER")
    monkeypatch.setenv("SCRIBE_READER_CREDENTIAL_FILE", str(path))
    assert Credentials(load(CredentialSettings)).open(NAME)["key"] == "hunter2"
    with pytest.raises(CredentialMissing, match="JOBS_CREDENTIAL_FILE_MAIL_SENDER"):
        Credentials(load(CredentialSettings)).open("mail.sender")


def test_a_file_is_read_anew_each_time(tmp_path: Path) -> None:
    path = issue(tmp_path / "file")
    credentials = reading(path)
    assert credentials.open(NAME)["key"] == "hunter2"
    issue(path, values={"key": "hunter3"})
    assert credentials.open(NAME)["key"] == "hunter3"
    path.unlink()
    assert not credentials.present(NAME)
    with pytest.raises(CredentialMissing, match="ENOENT"):
        credentials.open(NAME)


@pytest.mark.parametrize("mode", [0o404, 0o440 | 0o020, 0o602, 0o777, 0o410 | 0o001])
def test_a_file_that_others_may_read_or_change_is_not_used(tmp_path: Path, mode: int) -> None:
    with pytest.raises(CredentialUnusable, match="chmod 0400") as caught:
        reading(issue(tmp_path / "file", mode=mode)).open(NAME)
    assert "hunter2" not in str(caught.value)


def test_a_file_of_another_user_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = issue(tmp_path / "file")
    if os.geteuid() == 0:
        os.chown(path, 12345, -1)
    else:  # who may not give a file away is another user to it
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(CredentialUnusable, match="another user"):
        reading(path).open(NAME)


def test_what_is_no_file_hangs_nobody(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o400)
    for path in (tmp_path / "pipe", tmp_path):
        with pytest.raises((CredentialUnusable, CredentialMissing)):
            reading(path).open(NAME)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"expires_at": (NOW - timedelta(seconds=1)).isoformat(), "issued_at": "2026-01-01T00:00:00Z"}, "has expired"),
        ({"issued_at": (NOW - timedelta(days=300)).isoformat()}, "longer than 365 days"),
        ({"expires_at": "2020-01-01T00:00:00Z", "issued_at": "2026-01-01T00:00:00Z"}, "longer than 365 days"),
        ({"expires_at": "2026-12-24T00:00:00"}, "can't be read"),
        ({"expires_at": 1796000000}, "can't be read"),
        ({"credential": "mail.sender"}, "another's"),
        ({"values": {"key": 7}}, "can't be read"),
        ({"hunter2": "hunter2"}, "can't be read"),
        ({"write": "hunter2"}, "can't be read"),
    ],
)
def test_a_file_that_is_out_of_order_is_refused_without_its_text(
    tmp_path: Path, changes: dict[str, Any], match: str
) -> None:
    with pytest.raises(CredentialUnusable, match=match) as caught:
        reading(issue(tmp_path / "file", **changes)).open(NAME)
    assert "hunter2" not in str(caught.value)


def test_too_large_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CredentialUnusable, match="65536"):
        reading(issue(tmp_path / "file", values={"key": "x" * 70_000})).open(NAME)


def outcome_of(raw: bytes) -> str | None:
    """Why a file is refused; None: it is a credential."""
    try:
        found = parse(NAME, raw, NOW)
    except CredentialUnusable as error:
        return str(error).removeprefix(f"the file of credential {NAME} ")
    return None if found.expires_at - found.issued_at <= timedelta(days=365) else "lives too long"


@given(st.binary() | st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.dictionaries(st.sampled_from(["credential", "issued_at", "expires_at", "write", "values"]), inner),
).map(lambda value: json.dumps(value).encode()))  # fmt: skip
def test_whatever_a_file_holds_is_a_credential_or_refused(raw: bytes) -> None:
    assert outcome_of(raw) in (None, "can't be read: see docs/how-to/credentials.md")


@given(st.data())
def test_a_damaged_file_is_refused_or_says_the_same(data: st.DataObject) -> None:
    raw = bytearray(json.dumps(content()).encode())
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    assert "hunter" not in (outcome_of(bytes(raw)) or "")


def test_what_was_issued_for_reading_does_not_write(tmp_path: Path) -> None:
    with pytest.raises(CredentialUnusable, match="for reading"):
        reading(issue(tmp_path / "file")).open(NAME, write=True)
    assert reading(issue(tmp_path / "file", write=True)).open(NAME, write=True).write


def test_its_end_is_told_in_time_and_once(tmp_path: Path) -> None:
    credentials = reading(issue(tmp_path / "file", days=5.5))
    with structlog.testing.capture_logs() as logs:
        for _ in range(3):
            credentials.open(NAME)
    assert [(line["event"], line["days"]) for line in logs] == [("credential_ends_soon", 5)]
    assert credentials.standings([NAME])[NAME] == (None, 5)
    with structlog.testing.capture_logs() as logs:
        reading(issue(tmp_path / "file", days=90)).open(NAME)
    assert logs == []


def test_health_tells_of_credentials(tmp_path: Path) -> None:
    credentials = reading(issue(tmp_path / "file", days=5.5))
    health = Health(tmp_path, "worker", lambda: credentials.standings([NAME]))
    for loop in ("consumer default", "store"):
        health.sign(loop)
    health.write()
    verdict = judge(tmp_path)
    assert verdict.healthy
    assert "storage.reader ends in 5 days" in verdict.notes[0]
    assert verdict.workers[0]["credentials"] == {NAME: {"code": None, "days": 5}}
    (tmp_path / "file").chmod(0o444)
    health = Health(tmp_path, "worker", lambda: credentials.standings([NAME]))
    for loop in ("consumer default", "store"):
        health.sign(loop)
    health.write()
    assert not judge(tmp_path).healthy
    assert "credential_unusable" in judge(tmp_path).reasons[0]


# --- declarations


@pytest.mark.parametrize(
    "names", ["storage.reader", ["Storage"], [""], ["a b"], ["a.b", "a_b"], ["a", "a"], [7], ["a" * 65]]
)
def test_a_declaration_that_can_not_be_is_refused(names: Any) -> None:
    with pytest.raises(UsageError):
        check_declared(names)


def test_declared_names_are_published(working_broker: Broker) -> None:
    actor = declare(working_broker, lambda payload, run: None, "a", Payload, None, {"credentials": [NAME]})
    assert actor.policy.credentials == (NAME,)
    working_broker.runtime.publish()
    document = working_broker.runtime.store.get("policy", "a")
    assert document is not None
    assert type(actor.policy).from_document(dict(document.body)) == actor.policy


# --- runs


class Kit:
    """Runs one type inline, with a file for its credential."""

    def __init__(self, broker: Broker, path: Path, handler: Callable[[Payload, Run], Outcome | None]) -> None:
        self.broker = broker
        declared = {"credentials": (NAME,), "backoff_first": 5.0, "backoff_jitter": 0.0}
        self.actor = declare(broker, handler, "reads", Payload, "k", declared)
        self.other = declare(broker, handler, "other", Payload, "k", {})
        self.path = path

    def run(self, actor: Any = None) -> Any:
        with InlineJobs(broker=self.broker) as kit:
            kit.runtime.__dict__["credentials"] = reading(self.path)
            id_ = (actor or self.actor).send().id
            kit._run_next()
            return kit.job(id_)


def test_a_run_opens_what_its_type_declares_and_nothing_else(working_broker: Broker, tmp_path: Path) -> None:
    seen: list[Any] = []

    def handle(payload: Payload, run: Run) -> Outcome | None:
        with pytest.raises(CredentialNotGranted):
            run.credential("mail.sender")
        seen.extend((run, run.credential(NAME)))
        return Done(seen[1]["key"] == "hunter2")

    kit = Kit(working_broker, issue(tmp_path / "file"), handle)
    assert kit.run().result == "true"
    run, credential = seen
    with pytest.raises(UsageError, match="closed"):
        credential["key"]
    assert "key" not in credential
    with pytest.raises(UsageError, match="over"):
        run.credential(NAME)

    other = kit.run(kit.other)
    assert (other.state, other.failure_code) == ("queued", "credential_not_granted")


def test_a_job_whose_credential_is_not_there_waits_uncounted(working_broker: Broker, tmp_path: Path) -> None:
    ran: list[str] = []
    kit = Kit(working_broker, tmp_path / "file", lambda payload, run: ran.append(run.credential(NAME)["key"]))
    row = kit.run()
    assert (row.state, row.retries, row.last_error) == ("queued", 0, "given back: credential_missing")
    assert ran == []
    issue(tmp_path / "file")
    assert kit.run().state == "completed"
    assert ran == ["hunter2"]


def test_a_credential_that_is_out_of_order_is_an_ordinary_failure(working_broker: Broker, tmp_path: Path) -> None:
    kit = Kit(working_broker, issue(tmp_path / "file", mode=0o444), lambda payload, run: run.credential(NAME) and None)
    row = kit.run()
    assert (row.state, row.retries, row.failure_code) == ("queued", 1, "credential_unusable")


def test_a_worker_uses_the_file_of_the_moment(
    working_broker: Broker, tmp_path: Path, start_worker: Callable[[], Any]
) -> None:
    seen: list[str] = []
    path = tmp_path / "file"
    actor = declare(
        working_broker, lambda payload, run: seen.append(run.credential(NAME)["key"]), "reads", Payload, None,
        {"credentials": (NAME,)},
    )  # fmt: skip
    working_broker.runtime.__dict__["credentials"] = reading(path)
    working_broker.runtime.publish()
    start_worker()
    first = actor.send()
    runtime = working_broker.runtime
    eventually(lambda: (row := runtime.store.read([first.id])[0]) and row.last_error, 20, "the job to be given back")
    issue(path)
    actor.send()
    eventually(lambda: seen == ["hunter2"], 20, "a run with the file")
    issue(path, values={"key": "hunter3"})
    actor.send()
    eventually(lambda: seen == ["hunter2", "hunter3"], 20, "a run with the next file")
    assert isinstance(actor.request(), Wake)


def test_a_handler_is_tested_with_values_of_the_test() -> None:
    run = make_run(credentials={NAME: {"key": "x"}})
    assert run.credential(NAME)["key"] == "x"
    with pytest.raises(CredentialNotGranted):
        run.credential("mail.sender")
