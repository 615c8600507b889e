"""``quota``: how much of a domain's or an owner's work may wait, be submitted in a minute, and run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from ops.cli import output
from ops.cli.options import json_option
from ops.cli.session import opened
from store import limits
from store.limits import FIGURES, MOST, Quota

F = TypeVar("F", bound=Callable[..., Any])


def scope_options(command: F) -> F:
    """Whose quota."""
    for option in (
        click.option("--owner", metavar="NAME", help="Of this owner's jobs."),
        click.option("--domain", metavar="NAME", help="Of this domain's jobs."),
    ):
        command = option(command)
    return command


@click.group()
def quota() -> None:
    """Quotas, for a domain, an owner, an owner in a domain, or for everything.

    Of each figure the most specific quota that sets it governs a job: domain and owner, owner, domain, everything.
    """


@quota.command("set")
@scope_options
@click.option("--max-queued", type=click.IntRange(0, MOST), help="Jobs that wait; a wake beyond that is refused.")
@click.option("--submits-per-minute", type=click.IntRange(0, MOST), help="Wakes in a minute of the database's clock.")
@click.option("--max-in-flight", type=click.IntRange(0, MOST), help="Jobs that run; others wait for their turn.")
@json_option
def set_(domain: str | None, owner: str | None, as_json: bool, **figures: int | None) -> None:
    """Set a quota's figures; those that are not named stay as they are."""
    with opened() as store:
        made = limits.set_quota(store, Quota(domain, owner, **figures))
    _show([made], as_json, one=True)


@quota.command("list")
@json_option
def list_quotas(as_json: bool) -> None:
    """Every quota."""
    with opened() as store:
        _show(limits.quotas(store), as_json)


@quota.command()
@scope_options
@json_option
def remove(domain: str | None, owner: str | None, as_json: bool) -> None:
    """Take a quota away, with all its figures. Without --domain and --owner: the one for everything."""
    with opened() as store:
        limits.remove_quota(store, domain, owner)
    if as_json:
        output.emit({"affected": 1})
    else:
        scope = limits.scope(limits.scope_key(domain, owner))
        output.console().print(output.printable(f"the quota for {scope} is gone"))


def _show(found: list[Quota], as_json: bool, *, one: bool = False) -> None:
    if as_json:
        output.emit(found[0]._asdict() if one else [quota._asdict() for quota in found])
        return
    if not found:
        output.console().print("no quotas are set")
        return
    rows = [
        [output.cell(row.domain or "(all)"), output.cell(row.owner or "(all)")]
        + [output.cell(getattr(row, figure)) for figure in FIGURES]
        for row in found
    ]
    columns = ("domain", "owner", *FIGURES)
    output.console().print(output.table(columns, rows, right=tuple(FIGURES)))
