"""One look at what goes on, and what is new in it since the look before."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import NamedTuple

from actors.proposals.model import Proposal
from store.contract import Store
from store.filters import Filter
from store.job import TERMINAL, Job, Recorded, State

#: Rows of each kind that are shown.
JOBS, HISTORIES, LINES = 12, 6, 8


class Seen(NamedTuple):
    """``now`` is the database's."""

    now: datetime
    proposals: list[Proposal]
    jobs: list[Job]  # the newest first
    history: list[tuple[Job, Recorded]]  # the newest first


def look(store: Store, proposals: Callable[[], list[Proposal]]) -> Seen:
    """Read it all. Raises StoreUnavailable."""
    jobs = store.find(Filter(), order="updated", descending=True, limit=JOBS)
    lines = [(job, line) for job in jobs[:HISTORIES] for line in store.history(job.id, limit=LINES)]
    lines.sort(key=lambda pair: pair[1].at, reverse=True)
    return Seen(store.ping(), proposals(), jobs, lines[:LINES])


def comparison(proposal: Proposal) -> str:
    """How a proposal stands, in words."""
    found = proposal.compared
    if found is None:
        return f"not compared: {proposal.trouble.code}" if proposal.trouble else "not compared yet"
    files = f"{found.files_changed} file{'' if found.files_changed == 1 else 's'} changed"
    return f"{found.ahead} ahead, {found.behind} behind, {files}, {conflicts(found.conflicts)}"


def conflicts(number: int | None) -> str:
    """Paths in conflict, in words."""
    if number is None:
        return "conflicts unknown"
    return "no conflict" if number == 0 else f"{number} conflict{'' if number == 1 else 's'}"


def news(before: Seen | None, after: Seen) -> list[str]:
    """What a person who reads lines wants to hear: comparisons that changed, jobs that came or ended, new history."""
    return [*_of_proposals(before, after), *_of_jobs(before, after), *_of_history(before, after)]


def _of_proposals(before: Seen | None, after: Seen) -> Iterable[str]:
    known = {proposal.id: comparison(proposal) for proposal in (before.proposals if before else [])}
    for proposal in after.proposals:
        if known.get(proposal.id) != comparison(proposal):
            yield f"proposal {proposal.head} -> {proposal.base}: {comparison(proposal)}"


def _of_jobs(before: Seen | None, after: Seen) -> Iterable[str]:
    known = {job.id: job.state for job in (before.jobs if before else [])}
    for job in reversed(after.jobs):
        ended = job.state in TERMINAL or job.state == State.QUARANTINED
        if job.id not in known or (ended and known[job.id] != job.state):
            yield f"job {job.job_type} {job.key or job.id}: {job.state}"


def _of_history(before: Seen | None, after: Seen) -> Iterable[str]:
    if before is None:
        return
    known = {(line.job_id, line.at, line.kind, line.attempt) for _, line in before.history}
    newest = max((line.at for _, line in before.history), default=None)
    for job, line in reversed(after.history):
        if (line.job_id, line.at, line.kind, line.attempt) not in known and (newest is None or line.at >= newest):
            yield f"history of {job.job_type} {job.key or job.id}: {told(line)}"


def told(line: Recorded) -> str:
    """A history line in words."""
    parts = [f"attempt {line.attempt}", line.kind.replace("_", " "), line.code or ""]
    parts += [f"{name} {value}" for name, value in line.detail.items() if value not in (None, "") and name != "class"]
    return " ".join(part for part in parts if part)
