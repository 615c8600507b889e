"""What is written beside a row when it is swapped, and what becomes of it."""

from __future__ import annotations

from structlog.testing import capture_logs

from store.contract import Change, Store
from store.events import Failure, Kind
from store.job import HISTORY_KEPT, Entry, Job
from store.policy import Policy
from store.transitions import Write, decide
from tests.contract import rows
from tests.contract.acts import change, noted, read, settle
from tests.contract.adapters import Adapter
from tests.contract.rows import NOW, TYPE, later, wake


def test_history_is_read_back_newest_first(store: Store, jobs: list[Job]) -> None:
    first = Entry("counted", 2, None, {"files": 3, "share": 0.5, "done": True, "place": None, "größe": "🎭"})
    assert store.swap([noted(jobs[0], first, Entry("recovered", 2))], now=NOW) == [True]
    assert store.swap([noted(read(store, jobs[0].id), Entry("attempt_failed", 3, "broken"))], now=later(5)) == [True]

    assert store.history(jobs[0].id) == [
        (jobs[0].id, later(5), "attempt_failed", 3, "broken", {}),
        (jobs[0].id, NOW, "recovered", 2, None, {}),
        (jobs[0].id, NOW, "counted", 2, None, dict(first.detail)),
    ]
    assert [entry.kind for entry in store.history(jobs[0].id, limit=2)] == ["attempt_failed", "recovered"]
    assert store.history(jobs[1].id) == []


def test_the_newest_fifty_are_kept_of_each_job(store: Store, jobs: list[Job]) -> None:
    for number in range(HISTORY_KEPT + 15):
        changes = [noted(read(store, job.id), Entry("counted", number)) for job in jobs[: 2 if number < 10 else 1]]
        assert all(store.swap(changes, now=later(number)))

    kept = store.history(jobs[0].id, limit=1000)
    assert [entry.attempt for entry in kept] == list(range(HISTORY_KEPT + 14, 14, -1))
    assert len(store.history(jobs[1].id)) == 10


def test_more_than_fifty_at_once_leave_the_newest_fifty(store: Store, jobs: list[Job]) -> None:
    assert store.swap([noted(jobs[0], *(Entry("counted", number) for number in range(70)))], now=NOW) == [True]

    assert [entry.attempt for entry in store.history(jobs[0].id, limit=100)] == list(range(69, 19, -1))


def test_what_is_not_written_leaves_no_history(store: Store, jobs: list[Job]) -> None:
    stale = jobs[1]._replace(revision=jobs[1].revision - 1)

    written = store.swap([noted(jobs[0], Entry("counted", 1)), noted(stale, Entry("counted", 2))], now=NOW)

    assert written == [True, False]
    assert len(store.history(jobs[0].id)) == 1
    assert store.history(jobs[1].id) == []


def test_a_deleted_row_takes_its_history_with_it(store: Store, jobs: list[Job]) -> None:
    assert store.swap([noted(job, Entry("counted", 1)) for job in jobs], now=NOW) == [True] * 3
    a, b, c = (read(store, job.id) for job in jobs)
    failed_before = a._replace(retries=2)
    leaving = decide(failed_before, rows.finish(a), Policy(TYPE, keep_finished=False))
    assert leaving.history

    assert store.swap([Change(a.id, a.revision, leaving), noted(c, Entry("counted", 2))], now=NOW) == [True, True]

    assert store.read([a.id]) == [None]
    assert store.history(a.id) == []
    assert (len(store.history(b.id)), len(store.history(c.id))) == (1, 2)


def test_a_deletion_is_guarded_like_any_write(store: Store, jobs: list[Job]) -> None:
    store.wake([wake("a")], now=NOW)

    assert store.swap([change(jobs[0], Write(delete=True)), change(jobs[1], Write(delete=True))], now=NOW) == [
        False,
        True,
    ]

    assert read(store, jobs[0].id)
    assert store.read([jobs[1].id]) == [None]


def test_a_history_that_can_not_be_written_harms_nobody(store: Store, adapter: Adapter, jobs: list[Job]) -> None:
    with store.transaction() as tx:
        tx.execute(adapter.say("spoil history"))

    with capture_logs() as logs:
        failed = rows.finish(jobs[0], Kind.RETRY, failure=Failure.of_code("broken"))
        assert settle(store, jobs[0], failed, now=NOW)
        assert settle(store, jobs[1], rows.finish(jobs[1]), now=NOW)

    assert [read(store, job.id).state for job in jobs[:2]] == ["queued", "completed"]
    [line] = [entry for entry in logs if entry["event"] == "job_history_failed"]
    assert list(map(str, line["job_ids"])) == [jobs[0].id]
    assert line["log_level"] == "warning"
    assert "somewhere_else" not in str(line)
    assert " " not in line["error"]


def test_a_history_that_fails_in_a_transaction_spoils_nothing_of_it(
    store: Store, adapter: Adapter, jobs: list[Job]
) -> None:
    with store.transaction() as tx:
        tx.execute(adapter.say("spoil history"))

    with store.transaction() as tx:
        tx.wake([wake("beside")], now=NOW)
        assert tx.swap([noted(jobs[0], Entry("counted", 1), retries=5)], now=NOW) == [True]
        tx.wake([wake("after")], now=NOW)

    assert read(store, jobs[0].id).retries == 5
    assert all(store.read([wake("beside").id, wake("after").id]))


def test_one_entry_that_the_schema_forbids_keeps_no_row_from_being_written(store: Store, jobs: list[Job]) -> None:
    bad = noted(jobs[0], Entry("counted", 1, "a\x00b"), retries=1)

    assert store.swap([bad, noted(jobs[1], Entry("counted", 1), retries=1)], now=NOW) == [True, True]

    assert [read(store, job.id).retries for job in jobs] == [1, 1, 0]
