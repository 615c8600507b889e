"""The state table of proposals, cell by cell."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from actors.proposals.lifecycle import Action, decide
from actors.proposals.model import TRACKED, Change, Ended, Merging, Proposal, Registration, State
from actors.proposals.refusals import ProposalRefused, RepositoryReplaced

NOW = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
HERE = Registration("r", "default", "scribe", "/srv/scribe.git", "1f", None)

#: (state, action) -> the state it leads to; every other pair is refused.
ALLOWED = {
    ("draft", "update"): "draft",
    ("open", "update"): "open",
    ("draft", "ready"): "open",
    ("draft", "close"): "closed",
    ("open", "close"): "closed",
    ("closed", "reopen"): "open",
    ("archived", "reopen"): "open",
    ("draft", "archive"): "archived",
    ("open", "archive"): "archived",
    ("closed", "archive"): "archived",
    ("merged", "archive"): "archived",
    ("open", "merge"): "merging",
}

#: What can be done to a proposal whose repository is no longer there.
WITHOUT_REPOSITORY = {Action.CLOSE, Action.ARCHIVE}


def proposal(state: str, *, ended: Ended | None = None, merged: bool = False) -> Proposal:
    return Proposal(
        id="p",
        repository=HERE._replace(ended=ended),
        title="t",
        base="main",
        head="feature",
        state=State(state),
        version=1,
        revision=1,
        compared=None,
        trouble=None,
        merging=Merging("a" * 40, "b" * 40, NOW) if state == "merging" else None,
        merge_commit="c" * 40 if merged or state == "merged" else None,
        created_at=NOW,
        updated_at=NOW,
    )


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("action", Action)
def test_each_action_leads_where_the_table_says_or_is_refused(state: State, action: Action) -> None:
    expected = ALLOWED.get((state, action))
    if expected is None:
        with pytest.raises(ProposalRefused, match="proposal p"):
            decide(proposal(state), action)
    else:
        assert decide(proposal(state), action)[0] == expected


@pytest.mark.parametrize(("state", "action"), ALLOWED)
@pytest.mark.parametrize("ended", Ended)
def test_without_its_repository_a_proposal_can_only_be_put_away(state: str, action: str, ended: Ended) -> None:
    if Action(action) in WITHOUT_REPOSITORY:
        assert decide(proposal(state, ended=ended), Action(action))[0] == ALLOWED[state, action]
    else:
        with pytest.raises(RepositoryReplaced, match=ended.value):
            decide(proposal(state, ended=ended), Action(action))


def test_what_was_archived_after_its_merge_is_not_reopened() -> None:
    with pytest.raises(ProposalRefused, match="merge"):
        decide(proposal("archived", merged=True), Action.REOPEN)


def test_a_merge_that_nobody_can_settle_any_more_can_be_archived() -> None:
    assert decide(proposal("merging", ended=Ended.REPLACED), Action.ARCHIVE) == (State.ARCHIVED, Change.ARCHIVED)


def test_drafts_and_open_ones_are_tracked_and_all_others_pinned() -> None:
    assert frozenset({"draft", "open"}) == TRACKED
