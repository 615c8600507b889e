"""``events``: follow lifecycle events by cursor; who follows them; switch them on and off; prune."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import click

from ops.cli import output
from ops.cli.options import json_option
from ops.cli.session import opened, settings
from store import following
from store.contract import Store
from store.errors import UsageError
from store.following import Consumer
from store.identity import check_name
from store.outbox import Event, Name, Page

#: Seconds between two looks of a reader that follows.
PAUSE = 0.5


@click.group(invoke_without_command=True)
@click.option("--after", metavar="POSITION", help="Behind this position; oldest (the default) or newest.")
@click.option("--consumer", metavar="NAME", help="Go on where this consumer was, and commit its cursor after printing.")
@click.option("--follow", "-f", is_flag=True, help="Wait for more, until interrupted.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=100, show_default=True, help="Events at most.")
@click.option("--domain", metavar="NAME", help="Of jobs of this domain.")
@click.option("--queue", metavar="NAME", help="Of jobs of this queue.")
@click.option("--type", "job_type", metavar="TYPE", help="Of jobs of this type.")
@click.option(
    "--name", "names", multiple=True, type=click.Choice([name.value for name in Name]), help="Events of this name."
)
@json_option
@click.pass_context
def events(
    context: click.Context,
    /,
    after: str | None,
    consumer: str | None,
    follow: bool,
    limit: int,
    names: tuple[str, ...],
    as_json: bool,
    **narrowing: str | None,
) -> None:
    """Print lifecycle events in the order of their positions.

    With --json, one object with the events and the cursor to go on from; with --follow as well, one object a line. A
    consumer is made at its first use. Delivery is at least once: whoever is interrupted between printing and committing
    prints the same again.
    """
    if context.invoked_subcommand is not None:
        return
    if after is not None and consumer is not None:
        raise UsageError("--after and --consumer exclude each other")
    for field, value in narrowing.items():
        if value is not None:
            check_name({"job_type": "job type"}.get(field, field), value)
    start = _position(after)
    with opened() as store:
        follower = None if consumer is None else following.enlist(store, consumer)
        cursor = store.extent().newest if after == "newest" else start if follower is None else follower.cursor
        if not following.events_on(store):
            click.echo("lifecycle events are off: turn them on with `dramaturg events on`", err=True)
        pages = (
            _following(store, cursor, limit, narrowing) if follow else [_first(store, cursor, limit, names, narrowing)]
        )
        for page in pages:
            shown = [event for event in page.events if not names or event.name in names]
            _print(shown, page.cursor, follow, as_json)
            if follower is not None and page.cursor != follower.cursor:
                follower = following.advance(store, follower, page.cursor)


def _first(
    store: Store, cursor: int | None, limit: int, names: tuple[str, ...], narrowing: dict[str, str | None]
) -> Page:
    """The first ``limit`` events of these names behind ``cursor``, as far as there are any."""
    found: list[Event] = []
    while True:
        page = store.events(cursor, limit=limit, **narrowing)
        found += [event for event in page.events if not names or event.name in names]
        if len(found) >= limit:
            return Page(found[:limit], found[limit - 1].position)
        if page.cursor == cursor:
            return Page(found, page.cursor)
        cursor = page.cursor


def _following(store: Store, cursor: int | None, limit: int, narrowing: dict[str, str | None]) -> Iterator[Page]:
    """One page after the other, without an end."""
    while True:
        page = store.events(cursor, limit=limit, **narrowing)
        if page.cursor == cursor:
            time.sleep(PAUSE)
        else:
            yield page
        cursor = page.cursor


def _position(word: str | None) -> int | None:
    if word in (None, "oldest", "newest"):
        return None
    if not word.isascii() or not word.isdigit() or len(word) > 19 or int(word) >= 2**63:
        raise UsageError("--after wants a position (a whole number), oldest or newest")
    return int(word)


def _print(shown: list[Event], cursor: int, follow: bool, as_json: bool) -> None:
    if as_json and not follow:
        output.emit({"events": [document(event) for event in shown], "cursor": cursor})
    elif as_json:
        for event in shown:
            output.emit(document(event))
    else:
        console = output.console()
        for event in shown:
            console.print(output.cell(_line(event)), soft_wrap=True)


def document(event: Event) -> dict[str, Any]:
    """An event for scripts."""
    return event._asdict() | {"at": output.moment(event.at), "run_at": output.moment(event.run_at)}


def _line(event: Event) -> str:
    took = "" if event.seconds is None else f"  {event.seconds:.3f} s"
    over = "" if event.allowed is None else f" (allowed {event.allowed:g} s)"
    code = "" if event.code is None else f"  {event.code}"
    names = "  ".join(part for part in (event.job_type, event.key, event.job_id) if part)
    return (
        f"{event.position}  {output.moment(event.at)}  {event.name}  {names}  attempt {event.attempt}{code}{took}{over}"
    )


@events.command("on")
@json_option
def switch_on(as_json: bool) -> None:
    """Write lifecycle events from here on."""
    _switch(True, as_json)


@events.command("off")
@json_option
def switch_off(as_json: bool) -> None:
    """Write no more lifecycle events; those that are kept stay."""
    _switch(False, as_json)


def _switch(on: bool, as_json: bool) -> None:
    with opened() as store:
        changed = following.switch_events(store, on=on)
    if as_json:
        output.emit({"on": on, "affected": int(changed)})
    else:
        word = "on" if on else "off"
        output.console().print(f"lifecycle events are {word}" + ("" if changed else ", as they were"))


@events.command()
@click.option("--enable", metavar="NAME", help="Have this consumer keep the events that it has not seen.")
@click.option("--disable", metavar="NAME", help="Have this consumer keep nothing: its events may be pruned.")
@json_option
def consumers(enable: str | None, disable: str | None, as_json: bool) -> None:
    """List who follows the events and how far each is behind, or enable and disable one."""
    with opened() as store:
        for name, enabled in ((enable, True), (disable, False)):
            if name is not None:
                following.enable(store, name, enabled=enabled)
        found = following.consumers(store)
        kept = store.extent()
        on = following.events_on(store)
    if as_json:
        rows = [{key: value for key, value in each._asdict().items() if key != "version"} for each in found]
        output.emit({"on": on, "oldest": kept.oldest, "newest": kept.newest, "consumers": rows})
        return
    console = output.console()
    console.print(f"events are {'on' if on else 'off'}; positions {kept.oldest} to {kept.newest} are kept")
    if found:
        columns = ("consumer", "cursor", "behind", "lost", "enabled")
        console.print(output.table(columns, [_row(each) for each in found], right=("cursor", "behind", "lost")))


def _row(each: Consumer) -> list[Any]:
    behind = output.cell(each.behind, "yellow" if each.behind else "")
    lost = output.cell(each.lost, "red" if each.lost else "")
    return [output.cell(each.name), output.cell(each.cursor), behind, lost, output.cell(each.enabled)]


@events.command()
@click.option("--days", type=click.FloatRange(0, 3_660), help="Keep this many days. Unset: JOBS_EVENTS_RETENTION_DAYS.")
@click.option("--dry-run", is_flag=True, help="Tell how many would be removed, and remove none.")
@json_option
def prune(days: float | None, dry_run: bool, as_json: bool) -> None:
    """Remove old events, but none that an enabled consumer has yet to see."""
    chosen = settings()
    with opened(chosen) as store:
        kept_for = chosen.events_retention_days if days is None else days
        done = following.prune(store, days=kept_for, dry_run=dry_run)
    if as_json:
        output.emit({"affected": done.removed, "dry_run": dry_run, "held_by": done.held_by, **done.kept._asdict()})
        return
    console = output.console()
    console.print(f"{done.removed} events {'would be ' if dry_run else ''}removed")
    if done.held_by:
        console.print(output.cell(f"held back by what {', '.join(done.held_by)} has yet to see"))
