"""``reschedule``: another time for jobs that wait."""

from __future__ import annotations

from typing import Any

import click

from ops.cli.acting import Deed, act
from ops.cli.options import chosen, filter_options, json_option
from ops.cli.when import moment_of, seconds_of
from store.errors import UsageError
from store.events import Reschedule


@click.command()
@click.argument("id_", metavar="[ID]", required=False)
@filter_options
@click.option("--in", "delay", metavar="LENGTH", help="So much later than now: 10s, 5m, 2h, 1d.")
@click.option(
    "--at", "moment", metavar="TIME", help="At this time: 2026-12-01T09:00Z, '2026-12-01 09:00 Europe/Berlin'."
)
@click.option("--now", "at_once", is_flag=True, help="At once.")
@click.option("--dry-run", is_flag=True, help="Tell what would be rescheduled, and change nothing.")
@json_option
def reschedule(
    id_: str | None,
    delay: str | None,
    moment: str | None,
    at_once: bool,
    dry_run: bool,
    as_json: bool,
    **narrowing: Any,
) -> None:
    """Give the queued job ID, or every queued job that matches the options, another time to run.

    Scheduled, ready and parked jobs are all queued. One of --in, --at and --now says when.
    """
    if (delay is not None) + (moment is not None) + at_once != 1:
        raise UsageError("reschedule wants one of --in, --at and --now")
    event = Reschedule(run_at=moment_of(moment)) if moment else Reschedule(delay=seconds_of(delay) if delay else 0)
    deed = Deed(
        "reschedule",
        event,
        done="rescheduled",
        would="would be rescheduled",
        unchanged="are not queued",
        refused=lambda _: "only a queued job has a time to change",
    )
    act(deed, id_, chosen(**narrowing), dry_run=dry_run, as_json=as_json)
