"""Options that several commands share."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from store.errors import UsageError
from store.filters import Filter
from store.identity import check_name
from store.job import State

F = TypeVar("F", bound=Callable[..., Any])

PHASES = ("ready", "scheduled", "parked")
_CODE = re.compile(r"[A-Za-z][A-Za-z0-9_.:-]{0,63}")

json_option = click.option("--json", "as_json", is_flag=True, help="One JSON value on standard output, nothing else.")


def filter_options(command: F) -> F:
    """The options that ``chosen`` makes a filter of."""
    for option in reversed(
        (
            click.option("--domain", metavar="NAME", help="Jobs of this domain."),
            click.option("--queue", metavar="NAME", help="Jobs of this queue."),
            click.option("--type", "job_type", metavar="TYPE", help="Jobs of this type."),
            click.option("--key", metavar="KEY", help="Jobs with this key."),
            click.option("--owner", metavar="NAME", help="Jobs that belong to this owner."),
            click.option(
                "--state",
                "states",
                multiple=True,
                type=click.Choice([*(state.value for state in State), *PHASES]),
                help="Jobs in this state; may be given several times. ready, scheduled and parked are parts of queued.",
            ),
            click.option(
                "--phase", "phases", multiple=True, type=click.Choice(PHASES), help="Queued jobs in this phase."
            ),
            click.option(
                "--failure", "failure_code", metavar="CODE", help="Jobs whose last attempt failed with this code."
            ),
        )
    ):
        command = option(command)
    return command


def chosen(
    *,
    domain: str | None = None,
    queue: str | None = None,
    job_type: str | None = None,
    key: str | None = None,
    owner: str | None = None,
    states: Sequence[str] = (),
    phases: Sequence[str] = (),
    failure_code: str | None = None,
) -> Filter:
    """The filter of ``filter_options``. Raises UsageError for names that no job can have, and for states that exclude
    each other."""
    parts = list(dict.fromkeys([*(word for word in states if word in PHASES), *phases]))
    others = [word for word in states if word not in PHASES and (word != State.QUEUED or not parts)]
    if len(parts) > 1 or (parts and others):
        raise UsageError(
            f"{' and '.join([*parts, *dict.fromkeys(others)])} can't be asked for together: ready, scheduled and "
            "parked are phases of queued, so name queued, or run the same once for each of them"
        )
    if failure_code is not None and not _CODE.fullmatch(failure_code):
        raise UsageError("--failure wants a failure's code, such as worker_lost")
    for field, value in (("domain", domain), ("queue", queue), ("job type", job_type), ("key", key), ("owner", owner)):
        if value is not None:
            check_name(field, value)
    return Filter(
        domain=domain,
        queue=queue,
        job_type=job_type,
        key=key,
        owner=owner,
        states=tuple(dict.fromkeys(others)) or None,
        phase=parts[0] if parts else None,  # type: ignore[arg-type]  # one of PHASES, which click has checked
        failure_code=failure_code,
    )
