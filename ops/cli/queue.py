"""``queue``: pause, resume and drain a queue, for one domain or for all, and see where queues stand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from ops.cli import output
from ops.cli.options import json_option
from ops.cli.session import opened, settings, valkey
from ops.cli.when import seconds_of
from store import queues
from store.contract import Store
from store.queues import Standing, Told

if TYPE_CHECKING:
    from store.valkey.leases import Leases

domain_option = click.option("--domain", metavar="NAME", help="For this domain alone. Unset: for all domains.")


@click.group()
def queue() -> None:
    """Queues: stop their claims, let them go on, see where they stand."""


@queue.command("list")
@json_option
def list_queues(as_json: bool) -> None:
    """Every queue that has rows that wait or run, or that an operator has paused."""
    from store.filters import Filter

    with opened() as store:
        rows = store.tally(Filter(states=("queued", "processing")))
        names = {(row.queue, None) for row in rows} | {(word.queue, word.domain) for word in queues.controls(store)}
        found = [queues.standing(store, *name) for name in sorted(names, key=lambda name: (name[0], name[1] or ""))]
        _show(store, found, as_json)


@queue.command()
@click.argument("name")
@domain_option
@json_option
def status(name: str, domain: str | None, as_json: bool) -> None:
    """Where the queue NAME stands."""
    with opened() as store:
        found = queues.standing(store, name, domain)
        if as_json:
            output.emit(_document(found))
        else:
            _show(store, [found], as_json)


@queue.command()
@click.argument("name")
@domain_option
@json_option
def pause(name: str, domain: str | None, as_json: bool) -> None:
    """Start nothing more of the queue NAME. What runs goes on."""
    with _tools() as (store, leases):
        told = queues.pause(store, leases, name, domain)
        _answer(queues.standing(store, name, domain), told, "paused" if told.changed else "was paused before", as_json)


@queue.command()
@click.argument("name")
@domain_option
@json_option
def resume(name: str, domain: str | None, as_json: bool) -> None:
    """Let the queue NAME go on; what is due starts at once. It ends a drain as well."""
    with _tools() as (store, leases):
        told = queues.resume(store, leases, name, domain)
        found = queues.standing(store, name, domain)
        done = "resumed" if told.changed else "was not paused"
        _answer(found, told, f"{done}, but is paused for all domains" if found.paused else done, as_json)


@queue.command()
@click.argument("name")
@domain_option
@click.option("--wait", metavar="LENGTH", help="Wait until nothing runs any more: at most 10s, 5m or 2h.")
@json_option
def drain(name: str, domain: str | None, wait: str | None, as_json: bool) -> None:
    """Pause the queue NAME, and tell when its last running job is done.

    With --wait the exit code is 1 where something still runs after that time, or somebody resumed the queue.
    """
    seconds = None if wait is None else seconds_of(wait, "--wait")
    with _tools() as (store, leases):
        told = queues.pause(store, leases, name, domain, drain=True)
        found = queues.standing(store, name, domain)
        if seconds is not None:
            found = queues.wait_drained(store, name, domain, seconds)
        done = "drained: nothing runs" if not found.running else f"draining: {found.running} still running"
        _answer(found, told, done if found.paused else "resumed by somebody else", as_json)
    if seconds is not None and (found.running or not found.paused):
        raise click.exceptions.Exit(1)


@contextmanager
def _tools() -> Iterator[tuple[Store, Leases | None]]:
    """The store, and the leases if a Valkey is up."""
    from store.valkey.keys import prefix_of
    from store.valkey.leases import Leases

    chosen = settings()
    bell = valkey(chosen)
    with opened(chosen) as store:
        try:
            yield store, None if bell is None else Leases(bell[1], prefix_of(chosen.scope))
        finally:
            if bell is not None:
                bell[1].close()


def _answer(found: Standing, told: Told, done: str, as_json: bool) -> None:
    if as_json:
        output.emit(_document(found) | {"changed": told.changed, "reached": told.reached})
    else:
        scope = "" if found.domain is None else f" of domain {found.domain}"
        output.console().print(output.printable(f"{found.queue}{scope} {done}"))
    if not told.reached:
        click.echo("Valkey was not reached: the scheduler tells it; rows obey the store at once", err=True)


def _document(found: Standing) -> dict[str, Any]:
    return found._asdict() | {"oldest_ready": output.moment(found.oldest_ready)}


def _word(found: Standing) -> str:
    return "draining" if found.drain else "paused" if found.paused else "open"


def _show(store: Store, found: list[Standing], as_json: bool) -> None:
    if as_json:
        output.emit([_document(one) for one in found])
        return
    now = store.ping()
    rows = [
        [
            output.cell(one.queue),
            output.cell(one.domain or "(all)"),
            output.cell(_word(one), "yellow" if one.paused else ""),
            output.cell(one.running),
            output.cell(one.ready),
            output.cell(output.relative(one.oldest_ready, now)),
        ]
        for one in found
    ]
    columns = ("queue", "domain", "claims", "running", "ready", "oldest")
    output.console().print(output.table(columns, rows, right=("running", "ready")))
