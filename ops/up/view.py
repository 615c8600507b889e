"""What the live view looks like: proposals, jobs and the newest history, one below the other."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from actors.proposals.model import Proposal
from ops.cli.output import cell, phase, relative, stated, table
from ops.up.seen import Seen, comparison, conflicts, told
from store.job import Job, Recorded

_PROPOSALS = ("proposal", "state", "ahead", "behind", "files", "merge", "compared")
_JOBS = ("job", "key", "state", "next run", "attempt", "last failure", "updated")
_HISTORY = ("history", "job", "what")


def render(headline: str, seen: Seen | None, said: list[str]) -> RenderableType:
    """The view; ``said`` are the lines about what happened by itself, the oldest first."""
    parts: list[RenderableType] = [cell(headline, "bold"), Text()]
    if seen is not None:
        parts += [_proposals(seen), Text(), _jobs(seen), Text()]
        if seen.history:
            parts += [_history(seen), Text()]
    parts += [cell(line, "bright_black") for line in said]
    parts.append(Text("Ctrl-C stops everything", style="bright_black"))
    return Group(*parts)


def _proposals(seen: Seen) -> RenderableType:
    return table(_PROPOSALS, [_proposal(one, seen.now) for one in seen.proposals], right=("ahead", "behind", "files"))


def _proposal(proposal: Proposal, now: datetime) -> list[Any]:
    names = [cell(f"{proposal.head} -> {proposal.base}"), cell(proposal.state.value)]
    found = proposal.compared
    if found is None:
        return [*names, *[cell("-")] * 3, cell(comparison(proposal), "yellow"), cell("-")]
    style = "green" if found.conflicts == 0 else "red" if found.conflicts else "yellow"
    figures = [cell(found.ahead), cell(found.behind), cell(found.files_changed)]
    return [*names, *figures, cell(conflicts(found.conflicts), style), cell(relative(found.at, now))]


def _jobs(seen: Seen) -> RenderableType:
    return table(_JOBS, [_job(job, seen.now) for job in seen.jobs], right=("attempt",))


def _job(job: Job, now: datetime) -> list[Any]:
    word = phase(job, now)
    progress = f" {job.progress_percent} %" if word == "processing" and job.progress_percent is not None else ""
    state = stated(word)
    state.append(progress)
    return [
        cell(job.job_type),
        cell(job.key or job.id),
        state,
        cell(relative(job.run_at, now)),
        cell(job.attempt),
        cell(job.failure_code),
        cell(relative(job.updated_at, now)),
    ]


def _history(seen: Seen) -> RenderableType:
    return table(_HISTORY, [_line(job, line, seen.now) for job, line in seen.history])


def _line(job: Job, line: Recorded, now: datetime) -> list[Any]:
    return [cell(relative(line.at, now)), cell(f"{job.job_type} {job.key or job.id}"), cell(told(line))]
