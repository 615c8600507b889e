"""``cancel``: one job by its id, or all that match filters."""

from __future__ import annotations

from typing import Any

import click

from ops.cli.acting import Deed, act
from ops.cli.options import chosen, filter_options, json_option
from store.events import Cancel
from store.job import State


@click.command()
@click.argument("id_", metavar="[ID]", required=False)
@filter_options
@click.option("--dry-run", is_flag=True, help="Tell what would be cancelled, and change nothing.")
@json_option
def cancel(id_: str | None, dry_run: bool, as_json: bool, **narrowing: Any) -> None:
    """Cancel the job ID, or every job that matches the options.

    A queued job is cancelled at once; one that runs hears of it at its next check. A wake that comes later counts more
    than a cancel.
    """
    act(_CANCEL, id_, chosen(**narrowing), dry_run=dry_run, as_json=as_json)


def _refused(state: str) -> str:
    advice = "it is held, not running" if state == State.QUARANTINED else "it has ended already"
    return f"{advice}, so there is nothing to cancel"


def _one(state: str | None, affected: bool, dry_run: bool) -> str:
    if state != State.PROCESSING:
        return "would be cancelled" if dry_run else "cancelled"
    if affected:
        return "would be asked to stop" if dry_run else "asked to stop: it is cancelled once its run hears of it"
    return "was asked to stop before, and runs still"


_CANCEL = Deed(
    "cancel",
    Cancel(),
    done="cancelled or asked to stop",
    would="would be cancelled or asked to stop",
    unchanged="had ended already or were asked before",
    refused=_refused,
    one=_one,
)
