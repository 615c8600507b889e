"""``crypto``: what is encrypted at rest, and changing the key."""

from __future__ import annotations

from typing import Any

import click

from ops.cli import output
from ops.cli.acting import counted, tell_unsettled
from ops.cli.options import chosen, filter_options, json_option
from ops.cli.session import opened
from store.boundary import load_boundary
from store.errors import UsageError
from store.identity import check_id
from store.job import Job
from store.rotation import rotate as rotated

#: Ids of jobs with something that could not be opened, named at most.
NAMED_MOST = 20


@click.group()
def crypto() -> None:
    """Payloads, checkpoints and results that are encrypted at rest."""


@crypto.command()
@filter_options
@click.option("--all", "everything", is_flag=True, help="All jobs, where no filter is given.")
@click.option("--limit", type=click.IntRange(1, 1_000_000), default=1000, show_default=True, help="Jobs to look at.")
@click.option("--after", metavar="ID", help="Go on behind this job: what an earlier call gave as next.")
@click.option(
    "--seal-clear", is_flag=True, help="Encrypt what stands in the clear, too, where JOBS_ENCRYPT asks for it."
)
@click.option("--dry-run", is_flag=True, help="Tell what would be done, and change nothing.")
@json_option
def rotate(
    everything: bool, limit: int, after: str | None, seal_clear: bool, dry_run: bool, as_json: bool, **narrowing: Any
) -> None:
    """Encrypt with JOBS_CRYPTO_KEY what other keys have encrypted, while jobs run.

    The former key is read from JOBS_CRYPTO_SECONDARY_KEY. Jobs are looked at by their ids, in small committed batches.
    Exit code 1 where something could not be opened (it is left as it is: keep its key), or was held by others.
    """
    filter = chosen(**narrowing)
    if filter.narrows() == everything:
        raise UsageError("rotate what? Name at least one of the filters, or --all, but not both")
    if after is not None:
        filter = filter._replace(after_id=check_id(after))
    closed: list[str] = []

    def told(job: Job) -> None:
        if len(closed) < NAMED_MOST:
            closed.append(job.id)

    sealing = load_boundary().sealing
    with opened() as store:
        done = rotated(store, sealing, filter, limit=limit, dry_run=dry_run, seal_clear=seal_clear, told=told)
    if as_json:
        counts = done._asdict()
        output.emit(
            counts
            | {"next": counts.pop("last_id"), "dry_run": dry_run, "key": sealing.current, "unopened_jobs": closed}
        )
    else:
        _show(done._asdict(), dry_run)
    if done.unopened:
        more = " and more" if len(closed) == NAMED_MOST else ""
        output.complain(f"{done.unopened} could not be opened and are left as they are: {', '.join(closed)}{more}")
    tell_unsettled(done.unsettled)
    if done.unopened:
        raise click.exceptions.Exit(1)


def _show(counts: dict[str, Any], dry_run: bool) -> None:
    console, next_ = output.console(), counts.pop("last_id")
    looked_at = counts.pop("jobs")
    console.print(f"{counted(looked_at)} looked at{', nothing was changed' if dry_run else ''}")
    console.print(output.facts({name: output.cell(value) for name, value in counts.items()}))
    if next_ is not None:
        console.print(f"there may be more: go on with --after {next_}")
