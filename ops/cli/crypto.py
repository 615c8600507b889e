"""``crypto``: what is encrypted at rest, and changing the key."""

from __future__ import annotations

from typing import Any

import click

from ops.cli import output
from ops.cli.acting import counted, tell_unsettled
from ops.cli.options import chosen, filter_options, json_option
from ops.cli.session import opened
from store.boundary import load_boundary
from store.contract import ARCHIVE_START, Archived
from store.errors import UsageError
from store.identity import check_id
from store.job import Job
from store.rotation import rotate as rotated
from store.rotation import rotate_archive

#: Ids of jobs with something that could not be opened, named at most.
NAMED_MOST = 20


@click.group()
def crypto() -> None:
    """Payloads, checkpoints and results that are encrypted at rest."""


@crypto.command()
@filter_options
@click.option("--all", "everything", is_flag=True, help="All jobs, where no filter is given.")
@click.option("--limit", type=click.IntRange(1, 1_000_000), default=1000, show_default=True, help="Jobs to look at.")
@click.option("--after", metavar="NEXT", help="Go on behind this job: what an earlier call gave as next.")
@click.option("--archived", is_flag=True, help="Look at deleted jobs that were kept, in place of those that are there.")
@click.option(
    "--seal-clear", is_flag=True, help="Encrypt what stands in the clear, too, where JOBS_ENCRYPT asks for it."
)
@click.option("--dry-run", is_flag=True, help="Tell what would be done, and change nothing.")
@json_option
def rotate(
    everything: bool,
    limit: int,
    after: str | None,
    archived: bool,
    seal_clear: bool,
    dry_run: bool,
    as_json: bool,
    **narrowing: Any,
) -> None:
    """Encrypt with JOBS_CRYPTO_KEY what other keys have encrypted, while jobs run.

    The former key is read from JOBS_CRYPTO_SECONDARY_KEY. Jobs are looked at by their ids, in small committed batches.
    Exit code 1 where something could not be opened (it is left as it is: keep its key), or was held by others.
    """
    filter = chosen(**narrowing)
    if filter.narrows() == everything:
        raise UsageError("rotate what? Name at least one of the filters, or --all, but not both")
    closed: list[str] = []

    def told(job: Job | Archived) -> None:
        if len(closed) < NAMED_MOST:
            closed.append(job.id)

    sealing = load_boundary().sealing
    with opened() as store:
        if archived:
            done = rotate_archive(
                store, sealing, filter, after=_archived_after(after), limit=limit, dry_run=dry_run,
                seal_clear=seal_clear, told=told,
            )  # fmt: skip
        else:
            filter = filter._replace(after_id=None if after is None else check_id(after))
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


def _archived_after(given: str | None) -> tuple[str, int]:
    if given is None:
        return ARCHIVE_START
    id_, _, generation = given.partition(":")
    if not (generation.isascii() and generation.isdigit() and len(generation) < 19):
        raise UsageError("--after with --archived wants an id and a generation: what an earlier call gave as next")
    return check_id(id_), int(generation)


def _show(counts: dict[str, Any], dry_run: bool) -> None:
    console, next_ = output.console(), counts.pop("last_id")
    looked_at = counts.pop("jobs")
    console.print(f"{counted(looked_at)} looked at{', nothing was changed' if dry_run else ''}")
    console.print(output.facts({name: output.cell(value) for name, value in counts.items()}))
    if next_ is not None:
        console.print(f"there may be more: go on with --after {next_}")
