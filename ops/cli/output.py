"""What a command prints: one JSON value for scripts, tables for people, complaints on standard error.

Whatever comes from a row may hold anything: nothing reaches a terminal but printable characters, and nothing is read as
markup.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from store.clock import PARKED
from store.job import JSON_COLUMNS, TIME_COLUMNS, Job, Recorded, State
from store.payloads import decode

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

#: How a state or phase is shown.
STYLES = {
    "ready": "cyan",
    "scheduled": "blue",
    "parked": "bright_black",
    "processing": "yellow",
    "completed": "green",
    "failed": "red",
    "cancelled": "bright_black",
    "quarantined": "magenta",
}

#: Columns of output that goes to a file or a pipe, so that lines stay whole.
PIPE_WIDTH = 220


class Unwritable(OSError):
    """Standard output takes no more: a full disk, or a descriptor that is not for writing."""


def printable(text: str) -> str:
    """``text`` with everything that could drive a terminal or forge a line spelled out (``\\x1b``)."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


def complain(message: str) -> None:
    """Tell a person what was wrong, on standard error; lines of ``message`` stay lines."""
    first, *rest = message.splitlines() or [""]
    click.echo("\n".join([f"dramaturg: {printable(first)}", *map(printable, rest)]), err=True)


def emit(value: object) -> None:
    """Print one JSON value. Everything beyond ASCII is escaped, so it is safe in any terminal and encoding."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False)
    with _writing():
        click.echo(text)


@contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise  # a reader who has gone is no fault
    except OSError as error:
        raise Unwritable(error.errno, "standard output can't be written") from None


def moment(value: datetime | None) -> str | None:
    """ISO 8601 in UTC to the microsecond; ``infinity`` for parked."""
    if value is None:
        return None
    if value == PARKED:
        return "infinity"
    return value.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def job_document(job: Job) -> dict[str, Any]:
    """A row for scripts: its columns by name, JSON columns as values, times by ``moment``."""
    document = job._asdict()
    for name in JSON_COLUMNS:
        document[name] = decode(document[name])
    for name in TIME_COLUMNS:
        document[name] = moment(document[name])
    return document


def entry_document(entry: Recorded) -> dict[str, Any]:
    """A history line for scripts."""
    return {
        "at": moment(entry.at),
        "kind": entry.kind,
        "attempt": entry.attempt,
        "code": entry.code,
        "detail": dict(entry.detail),
    }


def phase(job: Job, now: datetime) -> str:
    """The word for where a job stands at the database's ``now``: ready, scheduled or parked where it is queued."""
    if job.state != State.QUEUED:
        return job.state
    if job.run_at == PARKED:
        return "parked"
    return "ready" if job.run_at <= now else "scheduled"


def relative(value: datetime | None, now: datetime) -> str:
    """``in 5 m`` or ``3 h ago``; a dash where there is no moment, or none that would come."""
    if value is None or value == PARKED:
        return "-"
    seconds = (value - now).total_seconds()
    span = length(abs(seconds))
    return "now" if span == "0 s" else f"in {span}" if seconds > 0 else f"{span} ago"


def length(seconds: float) -> str:
    """A length of time in its largest fitting unit."""
    for unit, size in (("y", 365.25 * 86_400), ("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def console() -> Console:
    """Where tables go: as wide as the terminal, or wide enough for a pipe."""
    from rich.console import Console as Plain

    class Console(Plain):
        def print(self, *objects: Any, **options: Any) -> None:
            with _writing():
                super().print(*objects, **options)

    made = Console(highlight=False, markup=False, emoji=False)
    return made if made.is_terminal else Console(highlight=False, markup=False, emoji=False, width=PIPE_WIDTH)


def cell(value: object, style: str = "") -> Text:
    """A value as a cell of a table: printable, never markup."""
    from rich.text import Text

    return Text("-" if value is None else printable(str(value)), style=style)


def stated(word: str) -> Text:
    """A state or phase in its colour."""
    return cell(word, STYLES.get(word, ""))


def table(columns: Sequence[str], rows: Iterable[Sequence[Text]], *, right: Sequence[str] = ()) -> Table:
    """A table without a frame; the first column is never broken, ``right`` names those that hold numbers."""
    from rich.table import Table

    made = Table(box=None, pad_edge=False, header_style="bold")
    for number, name in enumerate(columns):
        made.add_column(name, no_wrap=number == 0, overflow="fold", justify="right" if name in right else "left")
    for row in rows:
        made.add_row(*row)
    return made


def facts(values: Mapping[str, Text]) -> Table:
    """Names and values, a line each."""
    from rich.table import Table

    made = Table(box=None, pad_edge=False, show_header=False)
    made.add_column(style="bold", no_wrap=True)
    made.add_column(overflow="fold")
    for name, value in values.items():
        made.add_row(name, value)
    return made
