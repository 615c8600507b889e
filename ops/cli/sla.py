"""``sla``: limits on how long jobs of a type wait and run, and who is over them."""

from __future__ import annotations

import click

from ops.cli import output
from ops.cli.options import json_option
from ops.cli.session import opened
from ops.cli.when import seconds_of
from store import sla as slas
from store.outbox import Limits


@click.group()
def sla() -> None:
    """Limits on how long a job may be due before it is claimed, and how long a run may take.

    Breaches are noted in the job's history and told as job.sla_breached while lifecycle events are on.
    """


@sla.command("set")
@click.argument("job_type", metavar="TYPE")
@click.option("--queue-latency", metavar="LENGTH", help="From due to claimed, such as 30s or 5m.")
@click.option("--duration", metavar="LENGTH", help="From claimed to its end.")
@click.option("--domain", metavar="NAME", help="For jobs of this domain, in place of the type's limits.")
@json_option
def set_limits(
    job_type: str, queue_latency: str | None, duration: str | None, domain: str | None, as_json: bool
) -> None:  # fmt: skip
    """Set the limits of TYPE, in place of those that it had."""
    limits = Limits(
        None if queue_latency is None else seconds_of(queue_latency, "--queue-latency"),
        None if duration is None else seconds_of(duration, "--duration"),
    )
    with opened() as store:
        slas.put(store, job_type, limits, domain)
        known = store.get("policy", job_type) is not None
    if as_json:
        output.emit(slas.document(slas.Sla(job_type, domain, limits)) | {"affected": 1})
        return
    output.console().print(output.cell(f"set for {job_type}{'' if domain is None else f' in {domain}'}"))
    if not known:
        click.echo("nobody has published that job type yet: see that its name is right", err=True)


@sla.command()
@click.argument("job_type", metavar="TYPE")
@click.option("--domain", metavar="NAME", help="The limits for jobs of this domain.")
@json_option
def remove(job_type: str, domain: str | None, as_json: bool) -> None:
    """Take the limits of TYPE away."""
    with opened() as store:
        slas.remove(store, job_type, domain)
    if as_json:
        output.emit({"affected": 1})
    else:
        output.console().print("removed")


@sla.command("list")
@json_option
def list_limits(as_json: bool) -> None:
    """List all limits."""
    with opened() as store:
        found = slas.every(store)
    if as_json:
        output.emit([slas.document(each) for each in found])
        return
    if not found:
        output.console().print("no limits are set")
        return
    rows = [
        [output.cell(value) for value in (each.job_type, each.domain, each.limits.queue_latency, each.limits.duration)]
        for each in found
    ]
    columns = ("type", "domain", "queue latency (s)", "duration (s)")
    output.console().print(output.table(columns, rows, right=columns[2:]))


@sla.command()
@click.option("--limit", type=click.IntRange(1, 10_000), default=100, show_default=True, help="Jobs a limit at most.")
@json_option
def breaches(limit: int, as_json: bool) -> None:
    """List jobs that wait or run beyond their limits right now."""
    with opened() as store:
        found = slas.breaches(store, limit=limit)
    if as_json:
        output.emit(
            [
                {
                    "id": each.job.id,
                    "type": each.job.job_type,
                    "domain": each.job.domain,
                    "queue": each.job.queue,
                    "state": each.job.state,
                    "limit": each.limit,
                    "seconds": each.seconds,
                    "allowed": each.allowed,
                }
                for each in found
            ]
        )
        return
    if not found:
        output.console().print("no job is over its limits")
        return
    rows = [
        [
            output.cell(value)
            for value in (
                each.job.id,
                each.job.job_type,
                each.job.domain,
                each.job.state,
                each.limit,
                output.length(each.seconds),
                output.length(each.allowed),
            )
        ]
        for each in found
    ]
    output.console().print(output.table(("id", "type", "domain", "state", "limit", "is at", "allowed"), rows))
