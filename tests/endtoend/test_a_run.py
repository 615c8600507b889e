"""A wake becomes a fenced run, in real worker processes."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from store.contract import Change, Document
from store.events import Cancel
from store.filters import Filter
from store.operations import apply
from store.policy import Policy
from store.transitions import Answer, Decision, Write
from tests.endtoend.house import House, eventually


def test_a_wake_becomes_one_run_and_a_completed_row(house: House) -> None:
    house.worker()
    id_ = house.wake("test.keyed", "a", 7)
    row = house.wait_state(id_, "completed")
    assert json.loads(row.result or "") == {"value": 7}
    assert (row.attempt, row.retries, row.lease_id) == (1, 0, None)
    assert house.lines("keyed") == [["keyed", "a", "7", "1"]]
    assert house.store.history(id_) == []  # an uneventful run leaves nothing


def test_a_wake_that_nobody_rings_for_starts_all_the_same(house: House) -> None:
    house.worker()
    house.wait_state(house.wake("test.keyed", "quiet", ring=False), "completed")


def test_a_wake_from_before_any_worker_starts_when_there_is_one(house: House) -> None:
    id_ = house.wake("test.keyed", "early", ring=False)
    house.worker()
    house.wait_state(id_, "completed")


def test_wakes_during_a_run_lead_to_exactly_one_more_run_with_the_newest_payload(house: House) -> None:
    house.worker()
    id_ = house.wake("test.gated", "g", 1)
    house.wait_lines(1, "begin", "g")
    for value in (2, 3, 4):
        house.wake("test.gated", "g", value)
    house.open_gate("g")
    house.wait_state(id_, "completed")
    house.wait_lines(2, "end", "g")
    assert house.lines("begin") == [["begin", "g", "1", "1"], ["begin", "g", "4", "2"]]
    assert house.row(id_).retries == 0


def test_a_job_deleted_and_woken_again_in_mid_run_is_not_touched_by_the_old_run(house: House) -> None:
    house.worker()
    id_ = house.wake("test.deaf", "d", 1)
    house.wait_lines(1, "begin", "d", 1)
    old = house.row(id_)
    assert house.store.swap([Change(id_, old.revision, Decision(Answer.APPLIED, None, Write(delete=True)))]) == [True]
    house.wake("test.deaf", "d", 2)
    house.wait_lines(1, "begin", "d", 2)  # on the second slot: the first still runs the old row
    assert house.row(id_).lease_id != old.lease_id
    assert house.row(id_).generation > old.generation
    house.open_gate("d")
    house.wait_lines(2, "end", "d")
    eventually(lambda: house.store.read([id_]) == [None], what="the new run to retire its row")
    eventually(lambda: len(house.logged("job_stale")) == 1, what="the old finish to be refused")


def test_a_failed_attempt_is_recorded_by_code_and_place_and_retried(house: House) -> None:
    house.worker()
    id_ = house.wake("test.failing", "f", 2)
    row = house.wait_state(id_, "completed")
    assert (row.attempt, row.retries, row.failure, row.failure_code, row.last_error) == (3, 0, None, None, None)
    entries = house.store.history(id_)[::-1]
    assert [(entry.kind, entry.attempt, entry.code) for entry in entries] == [
        ("attempt_failed", 1, "ValueError"),
        ("attempt_failed", 2, "ValueError"),
        ("recovered", 3, None),
    ]
    assert str(entries[0].detail["place"]).startswith("tests/endtoend/jobs.py:")
    assert "hunter2" not in house.logs()
    assert "onerror" not in house.logs()
    assert len(house.logged("job_retry")) == 2


@pytest.mark.parametrize(
    ("thing", "state", "code"),
    [
        ("again", "completed", None),
        ("park", "queued", None),
        ("fail", "failed", "no_such_thing"),
        ("retry", "failed", "not_yet"),
        ("nan", "failed", "payload_invalid"),
        ("deep", "failed", "payload_invalid"),
        ("nonsense", "failed", "outcome_unknown"),
    ],
)
def test_every_outcome_leaves_its_row_where_it_says(house: House, thing: str, state: str, code: str | None) -> None:
    house.worker()
    id_ = house.wake("test.outcomes", thing, max_retries=0)
    house.wait_lines(3 if thing == "again" else 1, "outcome", thing)
    row = eventually(lambda: (row := house.row(id_)).state == state and row.lease_id is None and row)
    assert row.failure_code == code
    if thing == "park":
        assert (row.run_at.year, row.checkpoint and json.loads(row.checkpoint)) == (9999, {"parked": True})
    if thing == "again":
        assert [line[3] for line in house.lines("outcome", "again")] == ["None", "1", "2"]


def test_a_payload_that_does_not_fit_waits_coded_and_is_not_lost(house: House) -> None:
    house.worker()
    id_ = house.wake("test.failing", "p")
    house.wait_state(id_, "completed")
    from store.events import Wake
    from store.identity import job_id

    bad = Wake(job_id("default", "default", "test.keyed", "bad"), "default", "default", "test.keyed", "bad", '{"x":1}')
    house.store.wake([bad])
    row = eventually(lambda: (row := house.row(bad.id)).retries >= 1 and row)
    assert (row.state, row.failure_code) == ("queued", "payload_invalid")


def test_an_async_handler_runs(house: House) -> None:
    house.worker()
    id_ = house.wake("test.async", "a")
    assert house.wait_state(id_, "completed").result == '"async"'


def test_a_cancel_reaches_a_run_at_its_next_check(house: House) -> None:
    house.worker()
    id_ = house.wake("test.gated", "c")
    house.wait_lines(1, "begin", "c")
    assert apply(house.store, Filter(ids=(id_,)), Cancel()).affected == 1
    house.wait_state(id_, "cancelled")
    assert house.lines("end") == []


def test_a_cancel_interrupts_a_type_that_asked_for_it(house: House) -> None:
    house.worker()
    id_ = house.wake("test.interrupted", "i")
    house.wait_lines(1, "begin", "i")
    apply(house.store, Filter(ids=(id_,)), Cancel())
    house.wait_state(id_, "cancelled")
    assert house.lines("stopped") == [["stopped", "i", "Cancelled"]]


def test_progress_is_written_about_once_a_second_and_not_ten_thousand_times(house: House) -> None:
    house.worker()
    id_ = house.wake("test.progress", "p")
    house.wait_lines(1, "progressed")
    row = eventually(lambda: (row := house.row(id_)).progress_percent == 49 and row, what="the last report")
    assert row.progress_message is not None
    house.open_gate("p")
    house.wait_state(id_, "completed")


def test_a_type_that_this_worker_does_not_know_is_given_back_and_not_counted(house: House) -> None:
    house.store.put(Document("policy", "test.newer", 0, Policy("test.newer").document()))
    house.worker()
    id_ = house.wake("test.newer", "n")
    entry = eventually(lambda: next(iter(house.store.history(id_)), None), what="a note")
    assert (entry.kind, entry.code) == ("given_back", "type_unknown_here")
    assert (house.row(id_).state, house.row(id_).retries) == ("queued", 0)


def test_urgent_jobs_run_first(make_house: Callable[..., House]) -> None:
    house = make_house(WORKER_CONCURRENCY="1")
    for number in range(6):
        house.wake("test.keyed", f"p{number}", priority=10 - number, ring=False)
    house.worker()
    house.wait_lines(6, "keyed")
    assert [line[1] for line in house.lines("keyed")] == ["p5", "p4", "p3", "p2", "p1", "p0"]


def make_effects(house: House) -> None:
    surreal = house.store.dialect == "surreal"
    with house.store.transaction() as tx:
        tx.execute("DEFINE TABLE effect" if surreal else "CREATE TABLE effect (name TEXT)")


def effects(house: House) -> list[str]:
    value = "VALUE " if house.store.dialect == "surreal" else ""
    with house.store.transaction() as tx:
        return [row[0] for row in tx.execute(f"SELECT {value}name FROM effect")]


def test_a_runs_own_transaction_commits_effect_and_finish_together(house: House) -> None:
    make_effects(house)
    house.worker()
    id_ = house.wake("test.atomic", "e")
    row = house.wait_state(id_, "completed")
    assert (row.result, row.attempt, row.retries) == ('"once"', 1, 0)
    assert effects(house) == ["e"]
    eventually(lambda: house.logged("job_failed_after_its_end"), what="the error that counts for nothing")
    assert "hunter2" not in house.logs()


def test_the_transaction_of_a_run_that_lost_its_row_leaves_no_effect(house: House) -> None:
    make_effects(house)
    house.worker()
    id_ = house.wake("test.atomic", "l", 1)
    house.wait_lines(1, "begin", "l")
    old = house.row(id_)
    assert house.store.swap([Change(id_, old.revision, Decision(Answer.APPLIED, None, Write(delete=True)))]) == [True]
    house.open_gate("l")
    eventually(lambda: house.logged("job_stale"), what="the loss to be told")
    assert effects(house) == []


def test_a_recurring_job_that_was_missed_is_caught_up_once(house: House) -> None:
    house.store.put(Document("schedule", "test.ticking", 0, {"last_tick": 1_700_000_000_000_000}))
    house.worker()
    house.wait_lines(1, "tick")
    ticked = house.store.get("schedule", "test.ticking")
    assert ticked is not None
    assert ticked.body["last_tick"] % 60_000_000 == 0
    assert len({line[1] for line in house.lines("tick")}) == len(house.lines("tick"))
