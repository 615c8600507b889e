"""What ``proposal.repository`` does in a run: a page of comparisons, no more reading than is needed, nothing lost."""

from __future__ import annotations

import json
import shutil
from datetime import timedelta
from pathlib import Path

import pytest

from actors.proposals.book import FIRST
from actors.proposals.job import request
from actors.proposals.model import State
from actors.proposals.statements import PROPOSALS_OF_NAME, REFERENCES, REGISTRATIONS_WITH_WORK
from actors.proposals.surql import HAS_WORK, OF_REPOSITORY
from actors.proposals.tracking import RepositoryRef, Tracker
from middleware.run import Run
from store.contract import Store
from store.events import Cancel, Kind
from store.filters import Filter
from store.operations import apply
from tests.proposals.desk import INTERVAL, NAME, Desk
from tests.proposals.repositories import git

# --- comparing --------------------------------------------------------------------------------------------------------


def test_a_run_finds_out_how_a_proposal_compares(desk: Desk) -> None:
    desk.workshop.commit("main", {"c.txt": "three\n"})
    proposal = desk.open()
    assert proposal.compared is None
    desk.track(proposal.repository)
    found = desk.now(proposal).compared
    assert found is not None
    assert (found.base_commit, found.head_commit) == (desk.tip("main"), desk.tip("feature"))
    assert found.merge_base == git(desk.workshop.path, "merge-base", "main", "feature")
    assert (found.ahead, found.behind, found.files_changed, found.conflicts) == (1, 1, 1, 0)


def test_a_conflict_is_found(desk: Desk) -> None:
    desk.workshop.commit("main", {"b.txt": "something else\n"})
    proposal = desk.open()
    desk.track(proposal.repository)
    found = desk.now(proposal).compared
    assert found is not None
    assert found.conflicts == 1


def test_a_commit_on_either_branch_is_noticed_by_the_next_pass(desk: Desk) -> None:
    proposal = desk.open()
    desk.track(proposal.repository)
    for branch, figures in (("feature", (2, 0)), ("main", (2, 1))):
        desk.workshop.commit(branch, {f"more-{branch}.txt": "more\n"})
        desk.track(proposal.repository)
        found = desk.now(proposal).compared
        assert found is not None
        assert (found.ahead, found.behind) == figures


def test_all_proposals_of_one_repository_share_one_job(desk: Desk) -> None:
    proposals = desk.open_many(3)
    assert {desk.job(proposal.repository) for proposal in proposals} == {desk.there(proposals[0].repository)}
    desk.track(proposals[0].repository)
    assert all(desk.now(proposal).compared for proposal in proposals)


def test_drafts_are_tracked_as_open_ones_are(desk: Desk) -> None:
    proposal = desk.open(draft=True)
    desk.track(proposal.repository)
    assert desk.now(proposal).compared is not None


# --- reading no more than is needed -----------------------------------------------------------------------------------


def test_branch_heads_are_read_once_a_batch_and_each_branch_once(desk: Desk) -> None:
    proposals = desk.open_many(5)
    desk.track(proposals[0].repository)
    assert desk.reads.heads == [["main", *(f"topic-{number:03d}" for number in range(5))]]
    assert len(desk.reads.compared) == 5


def test_only_stale_comparisons_are_recalculated(desk: Desk) -> None:
    proposals = desk.open_many(3)
    desk.track(proposals[0].repository)
    before = [desk.now(proposal) for proposal in proposals]
    desk.reads.forget()
    moved = desk.workshop.commit("topic-001", {"more.txt": "more\n"})
    ran = desk.track(proposals[0].repository)
    assert desk.reads.compared == [(desk.tip("main"), moved)]
    assert dict(ran.finish.counts) == {"compared": 1}
    after = [desk.now(proposal) for proposal in proposals]
    assert [old == new for old, new in zip(before, after, strict=True)] == [True, False, True]


def test_nothing_but_heads_is_read_and_nothing_is_written_when_heads_are_unchanged(desk: Desk) -> None:
    proposal = desk.open()
    desk.track(proposal.repository)
    before, feed = desk.now(proposal), desk.proposals.feed(proposal.id)
    desk.reads.forget()
    shutil.rmtree(desk.workshop.path / "objects")  # no commit, tree or file could be read any more
    (desk.workshop.path / "objects").mkdir()
    ran = desk.track(proposal.repository)
    assert len(desk.reads.heads) == 1
    assert desk.reads.compared == []
    assert ran.finish.kind is Kind.AGAIN
    assert desk.now(proposal) == before
    assert desk.proposals.feed(proposal.id) == feed


def test_idle_runs_leave_no_history(desk: Desk, store: Store) -> None:
    proposal = desk.open()
    first = desk.track(proposal.repository)
    assert [(entry.kind, dict(entry.detail)) for entry in store.history(first.left.id)] == [
        ("counted", {"compared": 1})
    ]
    for _ in range(3):
        desk.track(proposal.repository)
    assert len(store.history(first.left.id)) == 1


# --- pages and passes -------------------------------------------------------------------------------------------------


def test_a_completed_pass_comes_back_after_the_interval_and_a_little_jitter(desk: Desk) -> None:
    proposal = desk.open()
    ran = desk.track(proposal.repository)
    assert (ran.finish.kind, ran.finish.checkpoint, ran.finish.sets_checkpoint) == (Kind.AGAIN, None, True)
    assert ran.finish.delay == INTERVAL * 1.05
    waits = ran.left.run_at - desk.store.ping()
    assert timedelta(seconds=INTERVAL) < waits <= timedelta(seconds=INTERVAL * 1.1)


def test_a_run_reads_at_most_fifty_references_and_goes_on_at_once_with_the_next_page(desk: Desk) -> None:
    proposals = desk.open_many(51)
    ran = desk.track(proposals[0].repository)
    assert len(desk.reads.compared) == 50
    assert (ran.finish.kind, ran.finish.delay) == (Kind.AGAIN, 0)
    assert ran.left.run_at <= desk.store.ping()
    assert json.loads(ran.left.checkpoint or "")["after"] == proposals[49].id
    ran = desk.track(proposals[0].repository)
    assert len(desk.reads.compared) == 51
    assert (ran.finish.delay, ran.left.checkpoint) == (INTERVAL * 1.05, None)
    assert all(desk.now(proposal).compared for proposal in proposals)


def test_a_pass_that_ends_with_a_full_page_ends_all_the_same(desk: Desk) -> None:
    proposals = desk.open_many(4)
    assert [ran.finish.delay for ran in desk.pass_through(proposals[0].repository, page=2)] == [0, 0, INTERVAL * 1.05]


def test_pages_and_lists_walk_their_indexes(desk: Desk) -> None:
    proposals = desk.open_many(1)
    desk.fill(100, 100)
    values = {"repository_id": proposals[0].repository.id, "after": FIRST, "limit": 50}
    if desk.surreal:  # shows no plan of what stands inside another statement: those are asked for by themselves
        assert "proposal_tracked" in desk.plan(REFERENCES, **values)
        assert "proposal_tracked" in desk.plan(HAS_WORK.format("$id"), id=proposals[0].repository.id)
        assert "proposal_repository" in desk.plan(OF_REPOSITORY.format("$id"), id=proposals[0].repository.id)
        return
    for statement in (REFERENCES, REGISTRATIONS_WITH_WORK):
        assert "proposal_tracked" in desk.plan(statement, **values)
    listing = {"name": NAME, "domain": None, "state": None, "after": FIRST, "limit": 100}
    assert "proposal_repository" in desk.plan(PROPOSALS_OF_NAME, **listing)


# --- wakes ------------------------------------------------------------------------------------------------------------


def test_a_wake_between_two_passes_starts_one_at_once(desk: Desk) -> None:
    first = desk.open()
    desk.track(first.repository)
    assert desk.there(first.repository).run_at > desk.store.ping()
    desk.workshop.branch("second", desk.tip("feature"))
    second = desk.open("second")
    assert desk.there(first.repository).run_at <= desk.store.ping()
    desk.track(first.repository)
    assert desk.now(second).compared is not None


def test_a_wake_in_mid_pass_lets_the_pass_end_and_begins_another_at_once(desk: Desk) -> None:
    proposals = desk.open_many(4)
    repository = proposals[0].repository
    desk.track(repository, page=2)
    desk.proposals.update(proposals[0].id, base="feature")  # behind the pass already
    desk.workshop.commit("topic-003", {"more.txt": "more\n"})
    second = desk.track(repository, page=2)
    assert json.loads(second.left.checkpoint or "")["after"] == proposals[3].id
    third = desk.track(repository, page=2)
    assert (third.finish.delay, third.left.checkpoint) == (0, None)
    desk.pass_through(repository, page=2)
    found = desk.now(proposals[0]).compared
    assert found is not None
    assert found.base_commit == desk.tip("feature")


def test_a_wake_during_the_last_run_of_a_pass_leads_to_another_pass(desk: Desk) -> None:
    proposal = desk.open()
    desk.workshop.branch("second", desk.tip("feature"))
    late = []
    desk.track(proposal.repository, after=lambda: late.append(desk.open("second")))
    assert desk.there(proposal.repository).run_at <= desk.store.ping()
    desk.track(proposal.repository)
    assert desk.now(late[0]).compared is not None


# --- compare-and-set --------------------------------------------------------------------------------------------------


def test_what_was_found_out_is_not_written_over_a_newer_change(desk: Desk) -> None:
    proposal = desk.open()
    desk.reads.meanwhile = lambda: desk.proposals.update(proposal.id, title="newer") and None
    ran = desk.track(proposal.repository)
    now = desk.now(proposal)
    assert (now.title, now.compared) == ("newer", None)
    assert ran.finish.counts == ()
    assert ran.left.run_at <= desk.store.ping()  # whoever was faster has woken the job
    desk.reads.meanwhile = lambda: None
    desk.track(proposal.repository)
    assert desk.now(proposal).compared is not None


def test_a_run_that_was_frozen_writes_nothing_over_what_a_later_one_found(desk: Desk) -> None:
    proposal = desk.open()
    ref = RepositoryRef(repository=NAME, incarnation=proposal.repository.incarnation)
    frozen = desk.tip("feature")
    runs: list[Run] = []

    def while_frozen() -> None:
        desk.reads.meanwhile = lambda: None
        desk.workshop.commit("feature", {"more.txt": "more\n"})
        Tracker(desk.store, INTERVAL).work(ref, runs[0])  # another worker's run

    desk.reads.meanwhile = while_frozen
    desk.track(proposal.repository, before=runs.append)
    assert desk.reads.compared == [(desk.tip("main"), frozen)]
    found = desk.now(proposal).compared
    assert found is not None
    assert (found.head_commit, found.ahead) == (desk.tip("feature"), 2)


# --- failures ---------------------------------------------------------------------------------------------------------


def test_a_failing_proposal_does_not_stop_the_others_and_the_pass_is_retried_after_its_end(desk: Desk) -> None:
    proposals = desk.open_many(5)
    repository = proposals[0].repository
    desk.delete_branch("topic-001")
    ran = desk.pass_through(repository, page=2)
    assert [one.finish.kind for one in ran] == [Kind.AGAIN, Kind.AGAIN, Kind.RETRY]
    assert [bool(desk.now(proposal).compared) for proposal in proposals] == [True, False, True, True, True]
    trouble = desk.now(proposals[1]).trouble
    assert trouble is not None
    assert (trouble.kind, trouble.code) == ("BranchMissing", "branch_missing")
    row = ran[-1].left
    assert (row.failure_code, row.retries, row.checkpoint) == ("branch_missing", 1, None)
    assert row.run_at > desk.store.ping()


def test_progress_over_the_batches_is_kept_by_a_failing_pass(desk: Desk) -> None:
    proposals = desk.open_many(3)
    desk.delete_branch("topic-000")
    desk.pass_through(proposals[0].repository, page=2)
    desk.reads.forget()
    desk.pass_through(proposals[0].repository, page=2)
    assert desk.reads.compared == []  # what was found out is not found out again


def test_a_success_clears_what_had_failed(desk: Desk) -> None:
    proposal = desk.open()
    away = desk.tip("feature")
    desk.delete_branch("feature")
    assert desk.track(proposal.repository).left.retries == 1
    assert desk.track(proposal.repository).left.retries == 2
    desk.workshop.branch("feature", away)
    row = desk.track(proposal.repository).left
    assert (row.retries, row.failure, row.failure_code) == (0, None, None)
    now = desk.now(proposal)
    assert now.trouble is None
    assert now.compared is not None


def test_a_branch_that_comes_back_as_it_was_clears_the_failure_too(desk: Desk) -> None:
    proposal = desk.open()
    desk.track(proposal.repository)
    known, away = desk.now(proposal).compared, desk.tip("feature")
    desk.delete_branch("feature")
    desk.track(proposal.repository)
    assert desk.now(proposal).compared == known  # what was known last stays visible beside the failure
    desk.workshop.branch("feature", away)
    desk.track(proposal.repository)
    assert desk.now(proposal).trouble is None


def test_a_failure_that_stands_is_neither_written_nor_counted_again(desk: Desk, store: Store) -> None:
    proposal = desk.open()
    desk.delete_branch("feature")
    first = desk.track(proposal.repository)
    assert dict(first.finish.counts) == {"failed": 1}
    before = desk.now(proposal)
    again = desk.track(proposal.repository)
    assert (again.finish.counts, desk.now(proposal)) == ((), before)
    kinds = [(entry.kind, entry.code) for entry in store.history(again.left.id)]
    assert kinds == [("retry_asked", "branch_missing"), ("retry_asked", "branch_missing"), ("counted", None)]


def test_an_unreadable_object_fails_one_proposal_by_class_and_code(desk: Desk) -> None:
    bad, good = desk.open(), desk.open_many(1)[0]
    tip = desk.tip("feature")
    loose = desk.workshop.path / "objects" / tip[:2] / tip[2:]
    whole = loose.read_bytes()
    loose.chmod(0o644)
    loose.write_bytes(b"hunter2")
    ran = desk.track(bad.repository)
    trouble = desk.now(bad).trouble
    assert trouble is not None
    assert trouble.code in ("repository_unreadable", "commit_missing")
    assert ran.left.failure_code == trouble.code
    assert desk.now(good).compared is not None
    assert "hunter2" not in repr(desk.everything())
    loose.write_bytes(whole)
    desk.track(bad.repository)
    assert desk.now(bad).trouble is None


def test_an_error_that_nobody_foresaw_fails_one_proposal_and_its_text_is_kept_nowhere(desk: Desk) -> None:
    bad, good = desk.open(), desk.open_many(1)[0]

    def once() -> None:
        desk.reads.meanwhile = lambda: None
        raise ZeroDivisionError("hunter2")

    desk.reads.meanwhile = once
    desk.track(bad.repository)
    trouble = desk.now(bad).trouble
    assert trouble is not None
    assert (trouble.kind, trouble.code) == ("ZeroDivisionError", "ZeroDivisionError")
    assert desk.now(good).compared is not None
    assert "hunter2" not in repr(desk.everything())


def test_a_retry_never_comes_later_than_the_next_pass_would(desk: Desk) -> None:
    proposal = desk.open()
    desk.delete_branch("feature")
    for _ in range(5):
        row = desk.track(proposal.repository).left
    assert row.retries == 5
    assert row.run_at - desk.store.ping() <= timedelta(seconds=INTERVAL)


def test_a_repository_that_is_not_there_is_hidden_from_the_worker_and_nothing_is_forgotten(
    desk: Desk, tmp_path: Path
) -> None:
    proposal = desk.open()
    desk.track(proposal.repository)
    known = desk.now(proposal)
    desk.workshop.path.rename(tmp_path / "unmounted.git")
    row = desk.track(proposal.repository).left
    failure = json.loads(row.failure or "")
    assert (failure["class"], failure["code"]) == ("RepositoryHidden", "worker_repository_hidden")
    assert NAME in failure["message"]
    assert (row.state, row.retries) == ("queued", 1)
    assert desk.now(proposal) == known
    (tmp_path / "unmounted.git").rename(desk.workshop.path)
    assert desk.track(proposal.repository).left.failure_code is None


# --- stopping ---------------------------------------------------------------------------------------------------------


def test_a_cancel_is_seen_between_two_proposals(desk: Desk, store: Store) -> None:
    proposals = desk.open_many(3)
    repository = proposals[0].repository
    runs: list[Run] = []

    def cancel() -> None:
        assert apply(store, Filter(ids=(runs[0].id,)), Cancel()).affected == 1
        runs[0]._holding.tell(cancelled=True)

    desk.reads.meanwhile = cancel
    ran = desk.track(repository, before=runs.append)
    assert ran.left.state == "cancelled"
    assert [bool(desk.now(proposal).compared) for proposal in proposals] == [True, False, False]


def test_a_stopping_worker_goes_no_further_and_another_goes_on_from_there(desk: Desk) -> None:
    proposals = desk.open_many(3)
    runs: list[Run] = []
    desk.reads.meanwhile = lambda: runs[0]._holding.tell(stopped=True)
    ran = desk.track(proposals[0].repository, before=runs.append)
    assert (ran.finish.kind, ran.finish.delay) == (Kind.AGAIN, 0)
    desk.reads.meanwhile = lambda: None
    desk.track(proposals[0].repository)
    assert len(desk.reads.compared) == 3
    assert all(desk.now(proposal).compared for proposal in proposals)


# --- what is not tracked ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [State.CLOSED, State.ARCHIVED, State.MERGED])
def test_closed_archived_and_merged_proposals_stay_pinned(desk: Desk, state: State) -> None:
    pinned, other = desk.open(), desk.open_many(1)[0]
    desk.track(pinned.repository)
    act = {
        State.CLOSED: desk.proposals.close,
        State.ARCHIVED: desk.proposals.archive,
        State.MERGED: desk.proposals.merge,
    }
    act[state](pinned.id)
    before = desk.now(pinned)
    assert before.state is state
    desk.workshop.commit("feature", {"more.txt": "more\n"})
    desk.workshop.commit("main", {"more-main.txt": "more\n"})
    desk.track(pinned.repository)
    assert desk.now(pinned) == before
    found = desk.now(other).compared
    assert found is not None
    assert found.base_commit == desk.tip("main")


def test_the_job_retires_when_nothing_is_tracked_and_opens_no_repository_for_that(desk: Desk) -> None:
    proposal = desk.open()
    desk.track(proposal.repository)
    desk.proposals.close(proposal.id)
    desk.reads.forget()
    ran = desk.track(proposal.repository)
    assert (ran.finish.kind, ran.left.state) == (Kind.DONE, "completed")
    assert desk.reads.opened == 0


def test_reopening_wakes_tracking(desk: Desk) -> None:
    proposal = desk.open()
    desk.track(proposal.repository)
    desk.proposals.close(proposal.id)
    desk.track(proposal.repository)
    desk.workshop.commit("feature", {"more.txt": "more\n"})
    desk.proposals.reopen(proposal.id)
    row = desk.there(proposal.repository)
    assert (row.state, row.run_at <= desk.store.ping()) == ("queued", True)
    desk.track(proposal.repository)
    found = desk.now(proposal).compared
    assert found is not None
    assert found.ahead == 2


def test_a_proposal_opened_while_the_job_retires_is_tracked(desk: Desk) -> None:
    proposal = desk.open()
    desk.proposals.close(proposal.id)
    late = []
    ran = desk.track(proposal.repository, after=lambda: late.append(desk.open()))
    assert (ran.finish.kind, ran.left.state) == (Kind.DONE, "queued")
    desk.track(proposal.repository)
    assert desk.now(late[0]).compared is not None


# --- incarnations -----------------------------------------------------------------------------------------------------


def test_a_repository_made_anew_under_its_name_retires_the_old_job_and_pins_what_it_tracked(desk: Desk) -> None:
    old = desk.open()
    desk.track(old.repository)
    known = desk.now(old)
    desk.make_anew()
    ran = desk.track(old.repository)
    assert (ran.finish.kind, ran.left.state) == (Kind.DONE, "completed")
    now = desk.now(old)
    assert (now.state, now.compared) == (State.ARCHIVED, known.compared)
    assert [(event.kind, event.code) for event in desk.proposals.feed(old.id)][-1] == (
        "archived",
        "repository_replaced",
    )


def test_registering_the_new_incarnation_retires_the_old_job_at_once_and_starts_another(desk: Desk) -> None:
    old = desk.open()
    desk.track(old.repository)
    desk.make_anew()
    new = desk.open()
    assert new.repository.incarnation != old.repository.incarnation
    assert desk.there(old.repository).run_at <= desk.store.ping()
    assert desk.track(old.repository).left.state == "completed"
    desk.track(new.repository)
    assert desk.now(new).compared is not None
    assert desk.now(old).state is State.ARCHIVED


def test_many_proposals_of_an_old_incarnation_are_archived_in_batches(desk: Desk) -> None:
    proposals = desk.open_many(5)
    old = proposals[0].repository
    desk.make_anew()
    ran = desk.pass_through(old, page=2)
    assert [one.finish.kind for one in ran] == [Kind.AGAIN, Kind.AGAIN, Kind.DONE]
    assert {desk.now(proposal).state for proposal in proposals} == {State.ARCHIVED}


def test_a_removed_repository_retires_its_job(desk: Desk) -> None:
    proposal = desk.open()
    desk.proposals.remove_repository(NAME)
    desk.track(proposal.repository)
    assert desk.there(proposal.repository).state == "completed"
    assert desk.proposals.feed(proposal.id)[-1].code == "repository_removed"


def test_a_job_of_a_repository_that_nobody_registered_is_done(desk: Desk) -> None:
    proposal = desk.open()
    stranger = proposal.repository._replace(name="stranger")
    desk.store.wake([request(stranger)])
    assert desk.track(stranger).left.state == "completed"


def test_a_repository_that_moved_is_tracked_at_its_new_place(desk: Desk, tmp_path: Path) -> None:
    registration = desk.register()
    pinned = registration.incarnation
    proposal = desk.open()
    desk.workshop.path.rename(tmp_path / "elsewhere.git")
    moved = desk.proposals.add_repository(NAME, tmp_path / "elsewhere.git", pinned)
    assert moved.id == registration.id
    desk.track(proposal.repository)
    assert desk.now(proposal).compared is not None
