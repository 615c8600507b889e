"""What is known of proposals, as frozen values; ``lifecycle.py`` says which may become which."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import NamedTuple


class State(StrEnum):
    """Where a proposal stands."""

    DRAFT = "draft"
    OPEN = "open"
    MERGING = "merging"  # a merge was begun and its end is not known yet: pinned until somebody settles it
    MERGED = "merged"
    CLOSED = "closed"
    ARCHIVED = "archived"


#: The states that are tracked; proposals in all others are pinned: what was known of them last stays.
TRACKED = frozenset({State.DRAFT, State.OPEN})


class Change(StrEnum):
    """What the feed tells of a proposal."""

    OPENED = "opened"
    UPDATED = "updated"
    READIED = "readied"
    CLOSED = "closed"
    REOPENED = "reopened"
    ARCHIVED = "archived"
    MERGING = "merging"
    MERGED = "merged"
    MERGE_REFUSED = "merge_refused"


class Ended(StrEnum):
    """Why a registration is no longer the one of its name."""

    REPLACED = "replaced"  # the repository was made anew: another incarnation
    REMOVED = "removed"


class Registration(NamedTuple):
    """A repository in one of its incarnations. Of each (domain, name) at most one has not ended."""

    id: str
    domain: str
    name: str
    path: str  # absolute
    incarnation: str
    ended: Ended | None


class Compared(NamedTuple):
    """What the tracking job found out last: the head seen from the base, at two commits (hex digits)."""

    base_commit: str
    head_commit: str
    merge_base: str | None  # None: nothing in common
    ahead: int
    behind: int
    files_changed: int
    conflicts: int | None  # None: finding out would cost too much
    at: datetime


class Trouble(NamedTuple):
    """Why a comparison failed, by class and code, and since when."""

    kind: str
    code: str
    at: datetime


class Merging(NamedTuple):
    """A merge that was begun: what it merges into what, and the moment that its commit carries."""

    base_commit: str
    head_commit: str
    since: datetime


class Proposal(NamedTuple):
    """One proposal: merge ``head`` into ``base``. Times are aware datetimes in UTC."""

    id: str
    repository: Registration
    title: str
    base: str  # names of branches
    head: str
    state: State
    version: int  # moved by every change that a person makes: the number of its snapshot and of its feed event
    revision: int  # moved by every write, the tracking job's too: what writes compare before they set
    compared: Compared | None
    trouble: Trouble | None
    merging: Merging | None  # exactly while the state is merging
    merge_commit: str | None
    created_at: datetime
    updated_at: datetime


class Reference(NamedTuple):
    """As much of a tracked proposal as a pass reads of each."""

    id: str
    base: str
    head: str
    revision: int
    base_commit: str | None
    head_commit: str | None
    trouble_kind: str | None
    trouble_code: str | None

    def current(self, base_commit: str | None, head_commit: str | None) -> bool:
        """Nothing is to be done: it was compared at these very commits, and nothing has failed since."""
        if self.trouble_code is not None or base_commit is None or head_commit is None:
            return False
        return (self.base_commit, self.head_commit) == (base_commit, head_commit)


class Snapshot(NamedTuple):
    """A proposal as one of its versions had it. Commits are those that the branches stood at, as far as known."""

    version: int
    title: str
    base: str
    head: str
    state: State
    base_commit: str | None
    head_commit: str | None
    at: datetime


class FeedEvent(NamedTuple):
    """One change of a proposal; ``version`` is that of its snapshot, ``code`` the reason where there is one."""

    version: int
    kind: Change
    code: str | None
    at: datetime
