"""``requeue``: a fresh start for what is held or has ended without success."""

from __future__ import annotations

from typing import Any

import click

from ops.cli.acting import Deed, act
from ops.cli.options import chosen, filter_options, json_option
from store.events import Requeue
from store.job import State


@click.command()
@click.argument("id_", metavar="[ID]", required=False)
@filter_options
@click.option("--dry-run", is_flag=True, help="Tell what would be requeued, and change nothing.")
@json_option
def requeue(id_: str | None, dry_run: bool, as_json: bool, **narrowing: Any) -> None:
    """Queue the quarantined, failed or cancelled job ID again, or every such job that matches the options.

    It is due at once, and its failures are forgotten.
    """
    act(_REQUEUE, id_, chosen(**narrowing), dry_run=dry_run, as_json=as_json)


def _refused(state: str) -> str:
    if state == State.COMPLETED:
        return "it has succeeded, so wake it if it is wanted once more"
    return "it is not held and has not ended"


_REQUEUE = Deed(
    "requeue",
    Requeue(),
    done="requeued",
    would="would be requeued",
    unchanged="are not quarantined, failed or cancelled",
    refused=_refused,
)
