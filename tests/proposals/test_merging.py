"""Merging in two steps: whatever happens between them is settled by looking at git, and nothing is merged twice."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path

import pytest

from actors.proposals.errors import (
    BranchMissing,
    BranchMoved,
    BranchRefused,
    MergeRefused,
    RepositoryUnreadable,
)
from actors.proposals.ledger import Proposals
from actors.proposals.model import Ended, Proposal, State
from actors.proposals.refusals import MergeUncertain, ProposalRefused, RepositoryReplaced
from actors.proposals.view import GitView, OpenView
from store.errors import DramaturgError, StoreUnavailable
from tests.contract.acts import at_once
from tests.proposals.desk import NAME, Desk
from tests.proposals.repositories import Workshop, git


class Crash(BaseException):
    """The process is gone: nothing catches this."""


def crashing(before_git: bool) -> OpenView:
    """A process that ends in mid-merge, before git did anything or right after it."""

    class View(GitView):
        def merge(self, branch: str, *, base_commit: str, head_commit: str, message: str, at: datetime) -> str:
            if not before_git:
                super().merge(branch, base_commit=base_commit, head_commit=head_commit, message=message, at=at)
            raise Crash

    return View


def crash(desk: Desk, proposal: Proposal, *, before_git: bool) -> Proposal:
    """Leave an uncertain merge behind."""
    with pytest.raises(Crash):
        Proposals(desk.store, view=crashing(before_git)).merge(proposal.id)
    return desk.now(proposal)


def told(desk: Desk, proposal: Proposal) -> list[tuple[str, str | None]]:
    return [(event.kind.value, event.code) for event in desk.proposals.feed(proposal.id)]


def merges(desk: Desk) -> list[str]:
    return git(desk.workshop.path, "rev-list", "--merges", "main").split()


# --- merging ----------------------------------------------------------------------------------------------------------


def test_a_merge_moves_the_base_branch_and_is_recorded_and_wakes_the_job(desk: Desk) -> None:
    desk.workshop.commit("main", {"c.txt": "three\n"})
    base, head = desk.tip("main"), desk.tip("feature")
    proposal = desk.open()
    desk.track(proposal.repository)
    merged = desk.proposals.merge(proposal.id)
    assert (merged.state, merged.merge_commit, merged.merging) == (State.MERGED, desk.tip("main"), None)
    assert git(desk.workshop.path, "log", "-1", "--format=%P", "main") == f"{base} {head}"
    assert told(desk, proposal) == [("opened", None), ("merging", None), ("merged", None)]
    last = desk.proposals.snapshots(proposal.id)[-1]
    assert (last.state, last.base_commit, last.head_commit) == ("merged", base, head)
    assert desk.there(proposal.repository).run_at <= desk.store.ping()


def test_what_git_says_no_to_changes_nothing(desk: Desk) -> None:
    cases: list[tuple[Callable[[], object], type[DramaturgError]]] = [
        (lambda: desk.workshop.branch("feature", desk.tip("main")), MergeRefused),  # nothing to merge
        (lambda: desk.workshop.commit("feature", {"z.txt": "z"}, parents=[]), MergeRefused),  # nothing in common
        (lambda: desk.delete_branch("feature"), BranchMissing),
    ]
    proposal = desk.open()
    before = desk.everything()
    for change, error in cases:
        change()
        tip = desk.tip("main")
        with pytest.raises(error):
            desk.proposals.merge(proposal.id)
        assert desk.everything() == before
        assert desk.tip("main") == tip


def test_a_conflict_changes_nothing(desk: Desk) -> None:
    desk.workshop.commit("main", {"b.txt": "something else\n"})
    proposal = desk.open()
    before, tip = desk.everything(), desk.tip("main")
    with pytest.raises(MergeRefused, match="conflict"):
        desk.proposals.merge(proposal.id)
    assert (desk.everything(), desk.tip("main")) == (before, tip)


def test_a_repository_with_a_working_tree_is_tracked_but_not_written(desk: Desk, tmp_path: Path) -> None:
    workshop = Workshop(tmp_path / "checkout", bare=False)
    start = workshop.commit("main", {"a.txt": "a"})
    workshop.branch("feature", start)
    workshop.commit("feature", {"b.txt": "b"})
    proposal = desk.proposals.open("checkout", "main", "feature", "t", path=workshop.path)
    desk.track(proposal.repository)
    assert desk.now(proposal).compared is not None
    before = desk.everything()
    with pytest.raises(BranchRefused, match="working tree"):
        desk.proposals.merge(proposal.id)
    assert desk.everything() == before


def test_a_draft_is_made_ready_before_it_is_merged(desk: Desk) -> None:
    proposal = desk.open(draft=True)
    with pytest.raises(ProposalRefused, match="draft"):
        desk.proposals.merge(proposal.id)
    desk.proposals.mark_ready(proposal.id)
    assert desk.proposals.merge(proposal.id).state is State.MERGED


# --- uncertain merges -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("before_git", [True, False])
def test_a_merge_cut_off_anywhere_is_settled_by_the_next_one_and_made_once(desk: Desk, before_git: bool) -> None:
    desk.workshop.commit("main", {"c.txt": "three\n"})
    proposal = desk.open()
    left = crash(desk, proposal, before_git=before_git)
    assert left.state is State.MERGING
    assert left.merging is not None
    assert len(merges(desk)) == (0 if before_git else 1)
    merged = desk.proposals.merge(proposal.id)
    assert (merged.state, [merged.merge_commit]) == (State.MERGED, merges(desk))
    assert told(desk, proposal) == [("opened", None), ("merging", None), ("merged", None)]


def test_an_uncertain_merge_stays_pinned_and_nothing_else_can_be_done_to_it(desk: Desk) -> None:
    proposal, other = desk.open(), desk.open_many(1)[0]
    desk.track(proposal.repository)
    left = crash(desk, proposal, before_git=True)
    desk.workshop.commit("feature", {"more.txt": "more\n"})
    desk.workshop.commit("main", {"more-main.txt": "more\n"})
    desk.reads.forget()
    desk.track(proposal.repository)
    assert desk.reads.compared == [(desk.tip("main"), desk.tip("topic-000"))]
    assert desk.now(other).compared is not None
    before = desk.everything()
    ledger = desk.proposals
    acts = (ledger.close, ledger.reopen, ledger.archive, ledger.mark_ready, lambda id_: ledger.update(id_, title="x"))
    for act in acts:
        with pytest.raises(ProposalRefused, match="uncertain merge"):
            act(proposal.id)
    assert desk.everything() == before
    assert desk.now(proposal) == left


def test_an_uncertain_merge_alone_keeps_no_job(desk: Desk) -> None:
    proposal = desk.open()
    crash(desk, proposal, before_git=True)
    assert desk.track(proposal.repository).left.state == "completed"


def test_a_merge_that_git_made_is_found_even_under_later_commits(desk: Desk) -> None:
    desk.workshop.commit("main", {"c.txt": "three\n"})
    proposal = desk.open()
    crash(desk, proposal, before_git=False)
    [commit] = merges(desk)
    tip = desk.workshop.commit("main", {"later.txt": "later\n"})
    assert desk.proposals.merge(proposal.id).merge_commit == commit
    assert desk.tip("main") == tip


def test_a_merge_that_was_not_made_and_can_not_be_made_any_more_is_given_up(desk: Desk) -> None:
    proposal = desk.open()
    crash(desk, proposal, before_git=True)
    desk.workshop.commit("main", {"c.txt": "three\n"})
    with pytest.raises(BranchMoved):
        desk.proposals.merge(proposal.id)
    now = desk.now(proposal)
    assert (now.state, now.merging) == (State.OPEN, None)
    assert told(desk, proposal)[-1] == ("merge_refused", "branch_moved")
    assert desk.there(proposal.repository).run_at <= desk.store.ping()
    assert desk.proposals.merge(proposal.id).state is State.MERGED


def test_a_failure_that_says_nothing_about_the_branch_leaves_the_merge_uncertain(desk: Desk) -> None:
    class Failing(GitView):
        def merge(self, branch: str, *, base_commit: str, head_commit: str, message: str, at: datetime) -> str:
            raise RepositoryUnreadable("the disk does not answer")

    proposal = desk.open()
    with pytest.raises(RepositoryUnreadable):
        Proposals(desk.store, view=Failing).merge(proposal.id)
    assert desk.now(proposal).state is State.MERGING
    assert desk.proposals.merge(proposal.id).state is State.MERGED


def test_a_branch_that_another_writer_has_locked_leaves_the_merge_uncertain_and_not_given_up(desk: Desk) -> None:
    desk.workshop.commit("main", {"c.txt": "three\n"})
    proposal = desk.open()
    lock = desk.workshop.path / "refs" / "heads" / "main.lock"
    lock.touch()
    with pytest.raises(MergeUncertain, match=r"\.lock"):
        desk.proposals.merge(proposal.id)
    assert desk.now(proposal).state is State.MERGING
    lock.unlink()
    assert desk.proposals.merge(proposal.id).state is State.MERGED
    assert len(merges(desk)) == 1


def test_two_who_merge_at_the_same_moment_make_one_merge(desk: Desk) -> None:
    desk.workshop.commit("main", {"c.txt": "three\n"})
    proposal = desk.open()

    def merge() -> str | None:
        while True:
            try:
                return Proposals(desk.store).merge(proposal.id).merge_commit
            except ProposalRefused:
                return None  # it was merged already when this one looked
            except StoreUnavailable:
                assert desk.surreal  # nobody waits there: who comes second begins again

    answers = at_once([merge] * 4)
    assert {answer for answer in answers if answer is not None} == set(merges(desk))
    assert desk.now(proposal).state is State.MERGED
    assert told(desk, proposal) == [("opened", None), ("merging", None), ("merged", None)]


def test_a_merge_that_ended_while_another_looked_is_no_merge_with_nothing_to_do(desk: Desk) -> None:
    desk.workshop.commit("main", {"c.txt": "three\n"})
    proposal = desk.open()

    class Slow(GitView):
        def heads(self, branches: Iterable[str]) -> dict[str, str | None]:
            if desk.now(proposal).state is State.OPEN:
                desk.proposals.merge(proposal.id)
            return super().heads(branches)

    with pytest.raises(ProposalRefused, match="merged"):
        Proposals(desk.store, view=Slow).merge(proposal.id)
    assert len(merges(desk)) == 1
    assert told(desk, proposal) == [("opened", None), ("merging", None), ("merged", None)]


def test_somebody_who_settles_the_same_merge_first_is_believed(desk: Desk) -> None:
    """The one who loses the race for the branch looks again before giving up."""
    desk.workshop.commit("main", {"c.txt": "three\n"})
    proposal = desk.open()

    class Late(GitView):
        calls = 0

        def merge(self, branch: str, *, base_commit: str, head_commit: str, message: str, at: datetime) -> str:
            Late.calls += 1
            if Late.calls == 1:
                super().merge(branch, base_commit=base_commit, head_commit=head_commit, message=message, at=at)
                raise BranchMoved("somebody was faster")
            return super().merge(branch, base_commit=base_commit, head_commit=head_commit, message=message, at=at)

    merged = Proposals(desk.store, view=Late).merge(proposal.id)
    assert [merged.merge_commit] == merges(desk)


def test_an_uncertain_merge_in_a_repository_that_is_gone_can_be_put_away(desk: Desk) -> None:
    proposal = desk.open()
    crash(desk, proposal, before_git=True)
    desk.make_anew()
    assert desk.register().name == NAME
    with pytest.raises(RepositoryReplaced):
        desk.proposals.merge(proposal.id)
    assert desk.now(proposal).repository.ended is Ended.REPLACED
    assert desk.proposals.archive(proposal.id).state is State.ARCHIVED
