"""Files and log lines on a job: who may write them, how many, and that they go with their job."""

from __future__ import annotations

import pytest

from store import attachments
from store.attachments import Caps, Fence
from store.contract import Store
from store.errors import Refused
from store.job import Job
from store.transitions import Write
from tests.contract.acts import at_once, change, read, settle
from tests.contract.rows import LEASE, NOW, OTHER_LEASE, finish, later, wake

RAW = bytes(range(256)) * 3
REPORT = attachments.file("report.bin", RAW, "application/x-report")


def test_what_is_attached_comes_back_as_it_was(store: Store, jobs: list[Job]) -> None:
    id_ = jobs[0].id
    assert store.attach(id_, [REPORT, attachments.log_line("größer 🎭")], now=NOW) == [1, 2]
    assert store.attach(id_, [attachments.file("empty", b"")], now=later(1)) == [3]

    assert [tuple(each) for each in store.attachments(id_)] == [
        (id_, 1, "file", "report.bin", "application/x-report", 768, NOW),
        (id_, 2, "log", "log", "text/plain", 13, NOW),
        (id_, 3, "file", "empty", "application/octet-stream", 0, later(1)),
    ]
    found = store.attachment(id_, 1)
    assert found is not None
    assert found[1] == RAW
    logged = store.attachment(id_, 2)
    assert logged is not None
    assert logged[1].decode() == "größer 🎭"
    assert store.attachment(id_, 4) is None
    assert store.attachment(jobs[1].id, 1) is None
    assert store.attachments(jobs[1].id) == []


def test_nothing_is_attached_to_a_row_that_is_not_there(store: Store) -> None:
    assert store.attach(wake("nobody").id, [REPORT]) is None
    assert store.attachments(wake("nobody").id) == []


def test_only_the_run_that_holds_the_row_writes(store: Store, jobs: list[Job]) -> None:
    job = jobs[0]
    assert store.attach(job.id, [REPORT], fence=Fence(OTHER_LEASE, job.attempt)) is None
    assert store.attach(job.id, [REPORT], fence=Fence(LEASE, job.attempt - 1)) is None
    assert store.attach(job.id, [REPORT], fence=Fence(LEASE, job.attempt)) == [1]
    settle(store, job, finish(job))
    assert store.attach(job.id, [REPORT], fence=Fence(LEASE, job.attempt)) is None
    assert len(store.attachments(job.id)) == 1


def test_attaching_changes_nothing_of_the_row(store: Store, jobs: list[Job]) -> None:
    store.attach(jobs[0].id, [REPORT])
    assert read(store, jobs[0].id) == jobs[0]


def test_files_beyond_the_caps_are_refused_all_of_the_call(store: Store, jobs: list[Job]) -> None:
    id_, few, small = jobs[0].id, Caps(files=2), Caps(bytes=1000)
    assert store.attach(id_, [REPORT], caps=few) == [1]
    with pytest.raises(Refused):
        store.attach(id_, [REPORT, REPORT], caps=few)
    with pytest.raises(Refused):
        store.attach(id_, [REPORT], caps=small)
    assert store.attach(id_, [attachments.log_line("a line")], caps=small) == [2]  # lines push nobody out
    assert [each.number for each in store.attachments(id_)] == [1, 2]


def test_the_newest_log_lines_are_kept(store: Store, jobs: list[Job]) -> None:
    id_, caps = jobs[0].id, Caps(logs=3)
    store.attach(id_, [REPORT], caps=caps)
    for number in range(5):
        store.attach(id_, [attachments.log_line(f"line {number}")], caps=caps)
    store.attach(jobs[1].id, [attachments.log_line("another's")], caps=caps)

    assert [(each.number, each.kind) for each in store.attachments(id_)] == [
        (1, "file"), (4, "log"), (5, "log"), (6, "log"),
    ]  # fmt: skip
    assert len(store.attachments(jobs[1].id)) == 1


def test_attachments_go_with_their_job(store: Store, jobs: list[Job]) -> None:
    for job in jobs[:2]:
        store.attach(job.id, [REPORT, attachments.log_line("a line")])
    store.swap([change(jobs[0], Write(delete=True))])

    assert store.attachments(jobs[0].id) == []
    assert len(store.attachments(jobs[1].id)) == 2
    store.wake([wake("a")])
    assert store.attach(jobs[0].id, [REPORT]) == [1]


def test_many_who_attach_at_once_get_numbers_of_their_own(store: Store, other: Store, jobs: list[Job]) -> None:
    def attach(store: Store) -> list[int]:
        found: list[int] = []
        for _ in range(4):
            found += store.attach(jobs[0].id, [attachments.log_line("a line")]) or []
        return found

    given = at_once([lambda each=each: attach(each) for each in (store, other, store, other)])

    assert sorted(number for numbers in given for number in numbers) == list(range(1, 17))
