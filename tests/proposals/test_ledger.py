"""Opening and changing proposals: each change is one transaction, and what is refused changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from actors.proposals.errors import BranchMissing, RepositoryMissing
from actors.proposals.job import request
from actors.proposals.model import Change, State
from actors.proposals.refusals import ProposalMissing, ProposalRefused, RepositoryReplaced, RepositoryUnknown
from store.contract import Store
from store.errors import DramaturgError, Refused, UsageError
from store.identity import new_id
from tests.proposals.desk import NAME, Desk
from tests.proposals.repositories import Workshop

#: For what no database has a say in.
sqlite = pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)

# --- one transaction --------------------------------------------------------------------------------------------------


def test_opening_writes_the_proposal_its_snapshot_and_its_feed_event_and_wakes_the_job(desk: Desk) -> None:
    proposal = desk.open()
    assert (proposal.state, proposal.version, proposal.base, proposal.head) == (State.OPEN, 1, "main", "feature")
    [snapshot] = desk.proposals.snapshots(proposal.id)
    assert (snapshot.version, snapshot.title, snapshot.state) == (1, "feature into main", "open")
    assert (snapshot.base_commit, snapshot.head_commit) == (desk.tip("main"), desk.tip("feature"))
    [event] = desk.proposals.feed(proposal.id)
    assert (event.version, event.kind, event.code) == (1, Change.OPENED, None)
    assert abs(event.at - desk.store.ping()) < timedelta(minutes=1)
    job = desk.there(proposal.repository)
    assert (job.state, job.key) == ("queued", f"{NAME}@{proposal.repository.incarnation}")
    assert job.payload == f'{{"repository":"{NAME}","incarnation":"{proposal.repository.incarnation}"}}'


def test_every_change_leaves_a_snapshot_and_an_event_of_its_version_and_wakes(desk: Desk) -> None:
    proposal = desk.open(draft=True)
    desk.workshop.branch("other", desk.tip("feature"))
    ledger = desk.proposals
    steps: list[Callable[[], Any]] = [
        lambda: ledger.update(proposal.id, title="another", head="other"),
        lambda: ledger.mark_ready(proposal.id),
        lambda: ledger.close(proposal.id),
        lambda: ledger.reopen(proposal.id),
        lambda: ledger.archive(proposal.id),
    ]
    for step in steps:
        generation = desk.there(proposal.repository).generation
        step()
        assert desk.there(proposal.repository).generation == generation + 1
    told = [(event.version, event.kind.value) for event in ledger.feed(proposal.id)]
    kinds = ["opened", "updated", "readied", "closed", "reopened", "archived"]
    assert told == list(enumerate(kinds, 1))
    states = [(snapshot.version, snapshot.state.value) for snapshot in ledger.snapshots(proposal.id)]
    assert states == list(enumerate(["draft", "draft", "open", "closed", "open", "archived"], 1))
    assert {snapshot.head for snapshot in ledger.snapshots(proposal.id, after=1)} == {"other"}


@pytest.mark.parametrize("table", ["proposal", "proposal_snapshot", "proposal_feed", "job"])
def test_a_transaction_that_fails_at_any_write_publishes_no_work_and_leaves_nothing(desk: Desk, table: str) -> None:
    desk.register()
    before = desk.everything()
    desk.forbid(table)
    with pytest.raises(Refused):
        desk.open()
    assert desk.everything() == before


@pytest.mark.parametrize("table", ["proposal_snapshot", "proposal_feed"])
def test_a_change_that_fails_at_any_write_leaves_the_proposal_and_its_job_as_they_were(desk: Desk, table: str) -> None:
    proposal = desk.open()
    before = desk.everything()
    desk.forbid(table)
    with pytest.raises(Refused):
        desk.proposals.close(proposal.id)
    assert desk.everything() == before


def test_the_job_that_is_woken_belongs_to_the_repositorys_domain(desk: Desk) -> None:
    proposal = desk.open(domain="press")
    job = desk.there(proposal.repository)
    assert job.domain == "press"
    desk.track(proposal.repository)
    assert desk.now(proposal).compared is not None
    assert desk.proposals.list(domain="default") == []


# --- what is refused --------------------------------------------------------------------------------------------------


@sqlite
@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((NAME, "main", "nowhere", "t"), BranchMissing),
        ((NAME, "nowhere", "feature", "t"), BranchMissing),
        ((NAME, "main", "main", "t"), UsageError),
        ((NAME, "main", "feature", ""), UsageError),
        ((NAME, "main", "feature", "x" * 257), UsageError),
        ((NAME, "main", "feature", "a\x1b[31m"), UsageError),
        ((NAME, "main", "feature", "a\x00b"), UsageError),
        ((NAME, "main", "feature", "\ud800"), UsageError),
        ((NAME, "main", "fea\x00ture", "t"), UsageError),
        ((NAME, "", "feature", "t"), UsageError),
        (("nobody", "main", "feature", "t"), RepositoryUnknown),
        (("e\u0301", "main", "feature", "t"), UsageError),
        (("a\x00b", "main", "feature", "t"), UsageError),
        ((NAME, "main", "feature", "t", False, "a\x1fb"), UsageError),
    ],
)
def test_what_can_not_be_opened_changes_nothing(
    desk: Desk, arguments: tuple[Any, ...], error: type[DramaturgError]
) -> None:
    desk.register()
    before = desk.everything()
    with pytest.raises(error):
        desk.proposals.open(*arguments)
    assert desk.everything() == before


def test_a_path_is_registered_only_together_with_its_first_proposal(desk: Desk) -> None:
    before = desk.everything()
    with pytest.raises(BranchMissing):
        desk.proposals.open(NAME, "main", "nowhere", "t", path=desk.workshop.path)
    assert desk.everything() == before


@sqlite
@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({}, UsageError),
        ({"title": ""}, UsageError),
        ({"base": ""}, UsageError),
        ({"base": "feature"}, UsageError),
        ({"head": "nowhere"}, BranchMissing),
        ({"head": 7}, UsageError),
    ],
)
def test_what_can_not_be_changed_changes_nothing(
    desk: Desk, changes: dict[str, Any], error: type[DramaturgError]
) -> None:
    proposal = desk.open()
    before = desk.everything()
    with pytest.raises(error):
        desk.proposals.update(proposal.id, **changes)
    assert desk.everything() == before


def test_an_id_that_is_none_and_one_that_is_nobodys_are_told_apart(desk: Desk) -> None:
    acts = (desk.proposals.get, desk.proposals.close, desk.proposals.merge, desk.proposals.reopen)
    for act in acts:
        with pytest.raises(UsageError):
            act("7; DROP TABLE")
        with pytest.raises(ProposalMissing):
            act(new_id())


def test_what_the_state_refuses_changes_nothing(desk: Desk) -> None:
    proposal = desk.open()
    desk.proposals.close(proposal.id)
    before = desk.everything()
    for act in (desk.proposals.close, desk.proposals.merge, desk.proposals.mark_ready):
        with pytest.raises(ProposalRefused, match="closed"):
            act(proposal.id)
    assert desk.everything() == before


@sqlite
@pytest.mark.parametrize("limit", [0, 1001, True, "5"])
def test_lists_are_bounded(desk: Desk, limit: Any) -> None:
    with pytest.raises(UsageError, match="limit"):
        desk.proposals.list(limit=limit)


# --- listing ----------------------------------------------------------------------------------------------------------


def test_proposals_are_listed_by_repository_and_state_and_page_by_page(desk: Desk, tmp_path: Path) -> None:
    mine = desk.open_many(3)
    desk.proposals.close(mine[1].id)
    other = Workshop(tmp_path / "other.git")
    start = other.commit("main", {"a": "a"})
    other.branch("feature", start)
    theirs = desk.proposals.open("other", "main", "feature", "t", path=other.path)
    ledger = desk.proposals
    everyone = [proposal.id for proposal in (*mine, theirs)]
    assert [one.id for one in ledger.list()] == everyone
    assert [one.id for one in ledger.list(limit=2)] == everyone[:2]
    assert [one.id for one in ledger.list(after=everyone[1], limit=2)] == everyone[2:]
    assert [one.id for one in ledger.list(repository="other")] == [theirs.id]
    assert [one.id for one in ledger.list(repository=NAME, state=State.CLOSED)] == [mine[1].id]


# --- repositories -----------------------------------------------------------------------------------------------------


def test_registering_again_changes_nothing(desk: Desk) -> None:
    first = desk.register()
    before = desk.everything()
    assert desk.register() == first
    assert desk.everything() == before


def test_a_repository_that_is_not_there_is_not_registered(desk: Desk, tmp_path: Path) -> None:
    before = desk.everything()
    with pytest.raises(RepositoryMissing):
        desk.proposals.add_repository(NAME, tmp_path / "nothing")
    assert desk.everything() == before


def test_an_incarnation_that_could_be_mistaken_in_a_jobs_key_is_refused(desk: Desk) -> None:
    with pytest.raises(UsageError, match="incarnation"):
        desk.proposals.add_repository(NAME, desk.workshop.path, "a@b")


def test_proposals_of_a_repository_made_anew_can_not_be_changed_but_put_away(desk: Desk) -> None:
    proposal = desk.open()
    closed = desk.proposals.close(desk.open_many(1)[0].id)
    desk.make_anew()
    desk.register()
    for act in (desk.proposals.merge, lambda id_: desk.proposals.update(id_, title="x")):
        with pytest.raises(RepositoryReplaced):
            act(proposal.id)
    with pytest.raises(RepositoryReplaced):
        desk.proposals.reopen(closed.id)
    assert desk.proposals.archive(proposal.id).state is State.ARCHIVED


def test_a_repository_made_anew_that_nobody_registered_yet_is_noticed_before_a_merge(desk: Desk) -> None:
    proposal = desk.open()
    desk.make_anew()
    before = desk.everything()
    with pytest.raises(RepositoryReplaced, match="made anew"):
        desk.proposals.merge(proposal.id)
    assert desk.everything() == before


def test_an_incarnation_that_comes_back_takes_its_name_back(desk: Desk, tmp_path: Path) -> None:
    old = desk.open()
    desk.make_anew()
    new = desk.register()
    desk.track(old.repository)
    desk.workshop.path.rename(tmp_path / "second.git")
    (tmp_path / "moved-away.git").rename(tmp_path / "scribe.git")
    back = desk.proposals.add_repository(NAME, tmp_path / "scribe.git", old.repository.incarnation)
    assert (back.id, back.ended) == (old.repository.id, None)
    assert desk.proposals.repository(NAME) == back
    assert new.id != back.id
    assert desk.proposals.reopen(old.id).state is State.OPEN


def test_removing_a_repository_takes_its_name_off_the_register(desk: Desk) -> None:
    registration = desk.register()
    desk.proposals.remove_repository(NAME)
    for gone in (desk.proposals.repository, desk.proposals.remove_repository):
        with pytest.raises(RepositoryUnknown):
            gone(NAME)
    assert desk.register() == registration


def test_two_names_with_the_same_letters_around_the_joiner_are_two_jobs(desk: Desk, store: Store) -> None:
    one = desk.register("a@b")
    ids = {request(one).id, request(one._replace(name="a", incarnation=f"b-{one.incarnation}")).id}
    assert len(ids) == 2
