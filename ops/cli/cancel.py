"""``cancel``: one job by its id, or all that match filters."""

from __future__ import annotations

from typing import Any

import click

from ops.cli import output
from ops.cli.options import chosen, filter_options, json_option
from ops.cli.session import opened
from store.contract import Store
from store.errors import NotFound, Refused, UsageError
from store.events import Cancel
from store.filters import Filter
from store.identity import check_id
from store.job import State
from store.operations import Applied, Item, Settled, apply, settle
from store.policy import Policy
from store.transitions import Answer, decide


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
    filter = chosen(**narrowing)
    if id_ is None and not filter.narrows():
        raise UsageError("cancel what? Name an id, or at least one of the filters: see dramaturg cancel --help")
    if id_ is not None and filter.narrows():
        raise UsageError("cancel takes an id or filters, not both")
    with opened() as store:
        if id_ is not None:
            _one(store, check_id(id_), dry_run, as_json)
        else:
            _many(store, filter, dry_run, as_json)


def _one(store: Store, id_: str, dry_run: bool, as_json: bool) -> None:
    job = store.read([id_])[0]
    if job is None:
        raise NotFound(f"there is no job {id_}: see `dramaturg list`")
    item = Item(id_, Cancel(), Policy(job.job_type), job)
    settled = Settled(decide(job, item.event, item.policy), job) if dry_run else settle(store, [item])[0]
    if settled.decision is None:
        raise Refused(f"job {id_} is locked or keeps changing, and nothing was done: try again")
    answer, state = settled.decision.answer, settled.decision.state
    if answer is Answer.GONE:
        raise NotFound(f"there is no job {id_} any more: it was deleted just now")
    if answer is Answer.REFUSED:
        advice = "it is held, not running" if state == State.QUARANTINED else "it has ended already"
        raise Refused(f"job {id_} is {state}: {advice}, so there is nothing to cancel")
    affected = int(answer is Answer.APPLIED)
    if as_json:
        output.emit({"affected": affected, "dry_run": dry_run, "id": id_, "state": state})
        return
    if state != State.PROCESSING:
        text = "would be cancelled" if dry_run else "cancelled"
    elif affected:
        text = "would be asked to stop" if dry_run else "asked to stop: it is cancelled once its run hears of it"
    else:
        text = "was asked to stop before, and runs still"
    output.console().print(f"{id_} {text}")


def _many(store: Store, filter: Filter, dry_run: bool, as_json: bool) -> None:
    applied = apply(store, filter, Cancel(), dry_run=dry_run)
    if as_json:
        output.emit(applied._asdict() | {"dry_run": dry_run})
    else:
        output.console().print(_told(applied, dry_run))
    if applied.unsettled:
        output.complain(f"{_jobs(applied.unsettled)} locked or kept changing: run the same again")
        raise click.exceptions.Exit(1)


def _told(applied: Applied, dry_run: bool) -> str:
    done = "would be cancelled or asked to stop" if dry_run else "cancelled or asked to stop"
    rest = f"; {applied.unchanged} more had ended already or were asked before" if applied.unchanged else ""
    return f"{_jobs(applied.affected)} {done}{rest}"


def _jobs(number: int) -> str:
    return "1 job" if number == 1 else f"{number} jobs"
