"""``prune``: delete what has ended, at once and for good, or kept in the archive."""

from __future__ import annotations

from typing import Any

import click

from ops.cli.acting import TOP_MOST, Deed, act
from ops.cli.options import chosen, filter_options, json_option
from ops.cli.when import seconds_of
from scheduler.settings import SweepSettings
from store.errors import UsageError
from store.events import Prune
from store.job import TERMINAL, State
from store.settings import load

#: What is pruned unless states are named: what is held is there to be looked at.
USUAL = (State.COMPLETED, State.FAILED, State.CANCELLED)


@click.command()
@click.argument("id_", metavar="[ID]", required=False)
@filter_options
@click.option("--older-than", metavar="LENGTH", help="Jobs that ended or were held so long ago: 12h, 30d.")
@click.option("--top", type=click.IntRange(0, TOP_MOST), default=10, show_default=True, help="Largest groups to show.")
@click.option("--dry-run", is_flag=True, help="Tell what would be deleted, and change nothing.")
@json_option
def prune(
    id_: str | None, older_than: str | None, top: int, dry_run: bool, as_json: bool, **narrowing: Any
) -> None:  # fmt: skip
    """Delete the ended job ID, or every completed, failed and cancelled job that matches the options.

    Quarantined jobs are deleted where --state names them or by their id. Jobs that wait or run never are. With
    JOBS_ARCHIVE_BEFORE_DELETE what is deleted is kept in the archive.
    """
    filter = chosen(**narrowing)
    if older_than is not None:
        filter = filter._replace(ended_over=seconds_of(older_than, "--older-than"))
    if filter.phase is not None or not set(filter.states or ()) <= TERMINAL | {State.QUARANTINED}:
        raise UsageError("prune deletes what has ended or is held: completed, failed, cancelled or quarantined jobs")
    if filter.narrows() and filter.states is None:
        filter = filter._replace(states=USUAL)
    act(_PRUNE, id_, filter, dry_run=dry_run, as_json=as_json, archive=load(SweepSettings).archiving, top=top)


_PRUNE = Deed(
    "prune",
    lambda job: Prune(job.generation),
    done="deleted",
    would="would be deleted",
    unchanged="were woken meanwhile",
    refused=lambda _: "only what has ended or is held can be deleted, so cancel it first",
)
