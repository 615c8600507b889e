"""Durable, fenced jobs for people who like Dramatiq: the one module that users import.

    from dramaturg import Again, Payload, Run, job

Importing it connects to nothing. The broker is made, and set as Dramatiq's, when the first job is declared.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar, Unpack, overload


def _refuse_shadows() -> None:
    """A package of the user's that is named like a room would be imported in its place, with errors nobody explains."""
    here = Path(__file__).resolve().parent
    for room in ("store", "middleware", "scheduler", "actors", "ops"):
        found = importlib.util.find_spec(room)
        place = Path(found.origin).resolve().parent.parent if found is not None and found.origin else None
        if place != here:
            raise ImportError(
                f"a package named {room!r} in {place} hides Dramaturg's own of that name: rename it, or put "
                f"{here} before it on the import path"
            )


_refuse_shadows()

from middleware.broker import Broker  # noqa: E402 - no room may be imported before it is known to be ours
from middleware.build import broker as _bare_broker  # noqa: E402
from middleware.credentials import Credential  # noqa: E402
from middleware.interrupts import Cancelled, LeaseLost, Stopped, TimeLimitExceeded  # noqa: E402
from middleware.job import JobActor, JobOptions, Payload, Tick, declare  # noqa: E402
from middleware.run import Run  # noqa: E402
from scheduler.reconcile import declare_shift  # noqa: E402
from scheduler.sweeps import declare_sweeps  # noqa: E402
from scheduler.ticks import cron  # noqa: E402
from store.contract import Woken  # noqa: E402
from store.errors import (  # noqa: E402
    DramaturgError,
    NotFound,
    PayloadInvalid,
    Refused,
    SettingsInvalid,
    StoreUnavailable,
    Unavailable,
    UnknownType,
    UsageError,
    ValkeyUnavailable,
)
from store.outcome import Again, Done, Fail, Outcome, Park, Retry  # noqa: E402

if TYPE_CHECKING:
    from middleware.handlers import JobHandler, handler
    from middleware.inline import InlineJobs, Ran
    from middleware.jobs import Ended, Jobs, Lease
    from middleware.unit_run import UnitRun, make_run

__all__ = [
    "Again",
    "Cancelled",
    "Credential",
    "Done",
    "DramaturgError",
    "Ended",
    "Fail",
    "InlineJobs",
    "JobActor",
    "JobHandler",
    "Jobs",
    "Lease",
    "LeaseLost",
    "NotFound",
    "Outcome",
    "Park",
    "Payload",
    "PayloadInvalid",
    "Ran",
    "Refused",
    "Retry",
    "Run",
    "SettingsInvalid",
    "Stopped",
    "StoreUnavailable",
    "Tick",
    "TimeLimitExceeded",
    "Unavailable",
    "UnitRun",
    "UnknownType",
    "UsageError",
    "ValkeyUnavailable",
    "Woken",
    "broker",
    "cron",
    "handler",
    "job",
    "make_run",
]

#: Where names live that a program of jobs doesn't need: the worker without Dramatiq, and the testing kit.
_LATER: Final = {
    "Ended": "middleware.jobs",
    "InlineJobs": "middleware.inline",
    "JobHandler": "middleware.handlers",
    "Jobs": "middleware.jobs",
    "Lease": "middleware.jobs",
    "Ran": "middleware.inline",
    "UnitRun": "middleware.unit_run",
    "handler": "middleware.handlers",
    "make_run": "middleware.unit_run",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_LATER[name]), name)


PS = ParamSpec("PS")
T = TypeVar("T", bound=Payload)


def broker() -> Broker:
    """The process' broker, with the scheduler's actors declared on it. Raises SettingsInvalid and UsageError."""
    made = _bare_broker()
    declare_shift(made)
    declare_sweeps(made)
    return made


Handler = Callable[[T, Run], Outcome | None] | Callable[[T, Run], Awaitable[Outcome | None]]


@overload
def job(
    job_type: str, *, payload: Callable[PS, T], key: str | None = None, **options: Unpack[JobOptions]
) -> Callable[[Handler[T]], JobActor[PS, T]]: ...


@overload
def job(
    job_type: str, *, key: str | None = None, **options: Unpack[JobOptions]
) -> Callable[[Handler[Any]], JobActor[[], Payload]]: ...


def job(job_type: str, *, payload: Any = None, key: str | None = None, **options: Any) -> Any:
    """Make a function a durable job type.

    ``job_type`` is a stable string such as ``invoice.send``. ``payload`` is a subclass of Payload (Tick for recurring
    jobs by default), ``key`` a template over its fields that identifies the resource: the same key is the same job.

    Options, each checked here: ``queue``, ``priority`` (1..10, 5), ``max_retries`` (None: for ever), ``backoff_first``
    and ``backoff_cap`` (seconds, 5 and 300), ``backoff_jitter`` (0..0.2), ``quarantine_after`` (failures in a row with
    one code), ``keep_finished`` (True), ``time_limit`` (seconds, 3600), ``interrupt`` (False: a cancel or a lost lease
    is seen at the next ``run.check()``), ``periodic`` (``cron("*/5 * * * *")``), ``zone`` (UTC), ``catch_up``
    (``none``, ``last``, ``all``), ``credentials`` (names of those that ``run.credential`` may open).

    The function takes the payload and a Run, may be ``async``, and answers an outcome or None. Raises UsageError.
    """

    def decorate(function: Any) -> JobActor[Any, Any]:
        if (periodic := options.get("periodic")) is not None:
            options["periodic"] = cron(str(periodic))  # refuses what can never fire
        kind = payload if payload is not None else (Tick if options.get("periodic") is not None else Payload)
        return declare(broker(), function, job_type, kind, key, dict(options))

    return decorate
