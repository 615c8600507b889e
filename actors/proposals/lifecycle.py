"""Which state of a proposal may become which, as data and pure functions."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from actors.proposals.model import TRACKED, Change, Proposal, State
from actors.proposals.refusals import ProposalRefused, RepositoryReplaced


class Action(StrEnum):
    """What can be asked of a proposal."""

    UPDATE = "update"
    READY = "ready"
    CLOSE = "close"
    REOPEN = "reopen"
    ARCHIVE = "archive"
    MERGE = "merge"


class Rule(NamedTuple):
    """From where an action leads where (None: the state stays). ``standing``: the repository must still be the one."""

    allowed: frozenset[State]
    to: State | None
    change: Change
    standing: bool
    otherwise: str  # what to do where the state says no


_TO_ARCHIVE = frozenset({State.DRAFT, State.OPEN, State.CLOSED, State.MERGED})

RULES: dict[Action, Rule] = {
    Action.UPDATE: Rule(TRACKED, None, Change.UPDATED, True, "only drafts and open ones can be changed"),
    Action.READY: Rule(frozenset({State.DRAFT}), State.OPEN, Change.READIED, True, "only a draft can be made ready"),
    Action.CLOSE: Rule(TRACKED, State.CLOSED, Change.CLOSED, False, "only drafts and open ones can be closed"),
    Action.REOPEN: Rule(
        frozenset({State.CLOSED, State.ARCHIVED}), State.OPEN, Change.REOPENED, True, "only closed ones can be reopened"
    ),
    Action.ARCHIVE: Rule(_TO_ARCHIVE, State.ARCHIVED, Change.ARCHIVED, False, "it can't be archived"),
    Action.MERGE: Rule(
        frozenset({State.OPEN}),
        State.MERGING,
        Change.MERGING,
        True,
        "only open ones can be merged; make a draft ready, or reopen a closed one",
    ),
}


def decide(proposal: Proposal, action: Action) -> tuple[State, Change]:
    """The state that ``action`` leads to, and what the feed tells. Raises ProposalRefused, RepositoryReplaced."""
    rule, state = RULES[action], proposal.state
    if state is State.MERGING and action is Action.ARCHIVE and proposal.repository.ended:
        return State.ARCHIVED, Change.ARCHIVED  # a merge that nobody can settle any more
    if state is State.MERGING and action is not Action.MERGE:
        raise ProposalRefused(f"proposal {proposal.id} has an uncertain merge in progress: merge it again to settle it")
    if state not in rule.allowed or (action is Action.REOPEN and proposal.merge_commit is not None):
        said = "archived after its merge" if proposal.merge_commit and state is State.ARCHIVED else state.value
        raise ProposalRefused(f"proposal {proposal.id} is {said}: {rule.otherwise}")
    if rule.standing:
        _check_standing(proposal)
    return rule.to or state, rule.change


def _check_standing(proposal: Proposal) -> None:
    """Raise RepositoryReplaced where the proposal's repository is no longer the one it was opened in."""
    if proposal.repository.ended is not None:
        name, ended = proposal.repository.name, proposal.repository.ended
        raise RepositoryReplaced(f"the repository {name} was {ended} since proposal {proposal.id} was opened")
