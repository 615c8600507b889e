"""``show``, ``list`` and ``stats``: looking at jobs changes nothing."""

from __future__ import annotations

from datetime import datetime
from typing import Any, get_args

import click

from ops.cli import output
from ops.cli.options import chosen, filter_options, json_option
from ops.cli.session import opened
from store import limits
from store.boundary import load_boundary
from store.counting import counts
from store.errors import NotFound
from store.filters import Order, Tally
from store.identity import check_id
from store.job import HISTORY_KEPT, TIME_COLUMNS, Job, Recorded
from store.sealing import FIELDS, is_sealed, key_id
from store.timeline import failures

#: Jobs that one ``list`` shows at most.
LIST_MOST = 10_000

_COUNTS = ("ready", "scheduled", "parked", "processing", "completed", "failed", "cancelled", "quarantined")


@click.command()
@click.argument("id_", metavar="ID")
@click.option("--reveal", is_flag=True, help="Open what is encrypted, with the keys of this process.")
@json_option
def show(id_: str, reveal: bool, as_json: bool) -> None:
    """Show one job: its row and its newest history."""
    wanted = check_id(id_)
    with opened() as store:
        job = store.read([wanted])[0]
        if job is None:
            raise NotFound(f"there is no job {wanted}: see `dramaturg list`")
        if reveal:
            job = load_boundary().opened(job)
        history = store.history(wanted, limit=HISTORY_KEPT)
        failed = failures(store, wanted)
        now = store.ping()
        kept_back = limits.kept_back(store, job, now)
    if as_json:
        told = [one._asdict() | {"at": output.moment(one.at)} for one in failed]
        entries = [output.entry_document(entry) for entry in history]
        shown = {"kept_back": kept_back, "history": entries, "failures": told}
        output.emit(output.job_document(job) | shown)
        return
    console = output.console()
    console.print(output.facts(_facts(job, now) | ({"kept back": output.cell(kept_back)} if kept_back else {})))
    console.print()
    console.print(
        _history(history, now) if history else output.cell("no history: it never failed, nor counted anything")
    )


@click.command("list")
@filter_options
@click.option("--limit", type=click.IntRange(1, LIST_MOST), default=100, show_default=True, help="Jobs at most.")
@click.option(
    "--order",
    type=click.Choice(get_args(Order)),
    default="id",
    show_default=True,
    help="claim: as workers take them.",
)
@click.option("--desc", "descending", is_flag=True, help="The other way round.")
@json_option
def list_jobs(limit: int, order: Order, descending: bool, as_json: bool, **narrowing: Any) -> None:
    """List jobs that match all of the options."""
    filter = chosen(**narrowing)
    with opened() as store:
        rows = store.find(filter, order=order, descending=descending, limit=limit + 1)
        now = store.ping()
    jobs = rows[:limit]
    if as_json:
        output.emit([output.job_document(job) for job in jobs])
        return
    console = output.console()
    if not jobs:
        console.print("no jobs match")
        return
    columns = (
        "id",
        "type",
        "key",
        "queue",
        "domain",
        "state",
        "prio",
        "next run",
        "attempt",
        "last failure",
        "updated",
    )
    console.print(output.table(columns, [_line(job, now) for job in jobs], right=("prio", "attempt")))
    if len(rows) > limit:
        console.print(f"and more: this shows the first {limit}, see --limit")


@click.command()
@filter_options
@json_option
def stats(as_json: bool, **narrowing: Any) -> None:
    """Count jobs by domain, queue and type. A published type without jobs counts 0."""
    with opened() as store:
        tallies = counts(store, chosen(**narrowing))
        now = store.ping()
    if as_json:
        output.emit([tally._asdict() | {"oldest_ready": output.moment(tally.oldest_ready)} for tally in tallies])
        return
    console = output.console()
    if not tallies:
        console.print("no jobs match")
        return
    columns = ("domain", "queue", "type", *_COUNTS, "oldest ready")
    rows = [_tally(tally, now) for tally in tallies]
    if len(tallies) > 1:
        totals = [output.cell(sum(getattr(tally, name) for tally in tallies), "bold") for name in _COUNTS]
        rows.append([output.cell("all", "bold"), output.cell(""), output.cell(""), *totals, output.cell("")])
    console.print(output.table(columns, rows, right=_COUNTS))


def _line(job: Job, now: datetime) -> list[Any]:
    return [
        output.cell(job.id),
        output.cell(job.job_type),
        output.cell(job.key),
        output.cell(job.queue),
        output.cell(job.domain),
        output.stated(output.phase(job, now)),
        output.cell(job.priority),
        output.cell(output.relative(job.run_at, now)),
        output.cell(job.attempt),
        output.cell(job.failure_code),
        output.cell(output.relative(job.updated_at, now)),
    ]


def _facts(job: Job, now: datetime) -> dict[str, Any]:
    """Every column that says something; the rare ones are left out while they are empty."""
    shown: dict[str, Any] = {}
    for name, value in job._asdict().items():
        if name == "state":
            word = output.phase(job, now)
            shown[name] = output.stated(word if word == value else f"{value}: {word}")
        elif (value is None and name not in ("key", "owner")) or (name == "stopping" and not value):
            continue
        elif name in TIME_COLUMNS:
            shown[name] = output.cell(f"{output.moment(value)}   {output.relative(value, now)}")
        elif name in FIELDS and is_sealed(value):
            shown[name] = output.cell(f"encrypted with key {key_id(value) or 'that is none of ours'}: see --reveal")
        else:
            shown[name] = output.cell(value)
    return shown


def _history(entries: list[Recorded], now: datetime) -> Any:
    rows = []
    for entry in entries:
        detail = ", ".join(f"{name} {value}" for name, value in entry.detail.items() if value not in (None, ""))
        cells = (output.relative(entry.at, now), entry.attempt, entry.kind, entry.code, detail)
        rows.append([output.cell(value) for value in cells])
    return output.table(("history", "attempt", "what", "code", "detail"), rows, right=("attempt",))


def _tally(tally: Tally, now: datetime) -> list[Any]:
    counts = [output.cell(value, output.STYLES[name] if value else "bright_black") for name, value in _named(tally)]
    names = [output.cell(tally.domain), output.cell(tally.queue), output.cell(tally.job_type)]
    return [*names, *counts, output.cell(output.relative(tally.oldest_ready, now))]


def _named(tally: Tally) -> list[tuple[str, int]]:
    return [(name, getattr(tally, name)) for name in _COUNTS]
