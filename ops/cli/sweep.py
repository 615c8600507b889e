"""``sweep``: the bounded passes of maintenance, by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from ops.cli import output
from ops.cli.acting import TOP_MOST, Groups, counted, tell_unsettled
from ops.cli.options import json_option
from ops.cli.session import opened
from ops.cli.when import seconds_of
from scheduler.settings import SweepSettings
from store import sweeps
from store.errors import Refused, UsageError
from store.identity import check_name
from store.settings import load
from store.sweeps import Limits, Passed, Scope

F = TypeVar("F", bound=Callable[..., Any])


@click.group()
def sweep() -> None:
    """Maintenance by hand: the passes that workers make where the settings switch them on.

    One of a kind at a time: while another is going on, whoever made it, this is refused.
    """


def _scope_options(command: F) -> F:
    for name, field, what in (("--type", "job_types", "type"), ("--queue", "queues", "queue"),
                              ("--domain", "domains", "domain")):  # fmt: skip
        text = f"Jobs of this {what}; may be given several times."
        command = click.option(name, field, metavar="NAME", multiple=True, help=text)(command)
    return command


_dry_run = click.option("--dry-run", is_flag=True, help="Tell what would be done, and change nothing.")


@sweep.command()
@_scope_options
@click.option("--top", type=click.IntRange(0, TOP_MOST), default=10, show_default=True, help="Largest groups to show.")
@_dry_run
@json_option
def retention(top: int, dry_run: bool, as_json: bool, **names: tuple[str, ...]) -> None:
    """Delete jobs that have stood in their state for longer than JOBS_RETENTION_DAYS_... says.

    Without names, for what JOBS_PRUNE_DOMAIN, _QUEUE and _JOB_TYPE say.
    """
    settings = load(SweepSettings)
    scope, groups = _scope(**names), Groups()
    with opened() as store:
        done = sweeps.retention(
            store,
            settings.days,
            scope if any(scope) else settings.scope,
            dry_run=dry_run,
            archive=settings.archiving,
            told=groups.count,
        )
    _tell("retention", done, groups, top, "would be deleted" if dry_run else "deleted", dry_run, as_json)


@sweep.command()
@_scope_options
@click.option("--age", metavar="LENGTH", help="Jobs that have been due for so long. Unset: JOBS_TTL_AGE_SECONDS.")
@click.option("--runtime", metavar="LENGTH", help="Jobs that have run for so long. Unset: JOBS_TTL_RUNTIME_SECONDS.")
@click.option("--action", type=click.Choice(("cancel", "fail")), help="Unset: JOBS_TTL_ACTION.")
@click.option("--top", type=click.IntRange(0, TOP_MOST), default=10, show_default=True, help="Largest groups to show.")
@_dry_run
@json_option
def ttl(
    age: str | None,
    runtime: str | None,
    action: str | None,
    top: int,
    dry_run: bool,
    as_json: bool,
    **names: tuple[str, ...],
) -> None:
    """Cancel or fail jobs that have waited or run for too long.

    A job's age counts from the time at which it was due; a parked job has none. A run is cancelled by request, or it
    fails at once: then its lease ends, and what its worker still sends is refused. Lengths are written 90s, 1h, 7d.
    """
    given = load(SweepSettings).limits
    limits = Limits(
        given.age if age is None else seconds_of(age, "--age"),
        given.runtime if runtime is None else seconds_of(runtime, "--runtime"),
        given.fail if action is None else action == "fail",
    )
    if limits.age is None and limits.runtime is None:
        raise UsageError("how long is too long? Give --age or --runtime, or set JOBS_TTL_AGE_SECONDS")
    groups = Groups()
    with opened() as store:
        done = sweeps.expire(store, limits, _scope(**names), dry_run=dry_run, told=groups.count)
    ended = "failed" if limits.fail else "cancelled or asked to stop"
    _tell("ttl", done, groups, top, f"would be {ended}" if dry_run else ended, dry_run, as_json)


@sweep.command()
@click.option("--fix", is_flag=True, help="Take expired leases back, and remove history that has no job.")
@json_option
def integrity(fix: bool, as_json: bool) -> None:
    """Look for leases that nobody takes back, history without a job, and documents that can't be read."""
    with opened() as store:
        found = sweeps.integrity(store, fix=fix)
        documents = [f"{document.kind} {document.key}" for document in sweeps.unreadable(store)]
    _refuse_second("integrity", found.led)
    counts = found._asdict()
    del counts["led"], counts["more"]
    if as_json:
        output.emit(counts | {"fix": fix, "documents": documents})
        return
    output.console().print(output.facts({name: output.cell(value) for name, value in counts.items()}))
    for document in documents:
        output.console().print(output.cell(f"can't be read: {document}"))


def _scope(domains: tuple[str, ...], queues: tuple[str, ...], job_types: tuple[str, ...]) -> Scope:
    for field, names in (("domain", domains), ("queue", queues), ("job type", job_types)):
        for name in names:
            check_name(field, name)
    return Scope(domains, queues, job_types)


def _refuse_second(name: str, led: bool) -> None:
    if not led:
        raise Refused(f"another {name} sweep is going on, and nothing was done: try again once it has ended")


def _tell(name: str, done: Passed, groups: Groups, top: int, words: str, dry_run: bool, as_json: bool) -> None:
    _refuse_second(name, done.led)
    if as_json:
        counts = {"affected": done.affected, "unchanged": done.unchanged, "unsettled": done.unsettled}
        output.emit(counts | {"dry_run": dry_run, "more": done.more, "groups": groups.documents(top)})
    else:
        output.console().print(f"{counted(done.affected)} {words}")
        if top and done.affected:
            groups.show(top)
    tell_unsettled(done.unsettled)
