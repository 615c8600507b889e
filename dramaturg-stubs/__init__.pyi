# What type checkers read for the one-file module ``dramaturg``, which can't carry a py.typed itself. A test compares.
from collections.abc import Awaitable, Callable
from typing import Any, ParamSpec, TypeVar, Unpack, overload

from middleware.broker import Broker
from middleware.credentials import Credential
from middleware.handlers import JobHandler, handler
from middleware.inline import InlineJobs, Ran
from middleware.interrupts import Cancelled, LeaseLost, Stopped, TimeLimitExceeded
from middleware.job import JobActor, JobOptions, Payload, Tick
from middleware.jobs import Ended, Jobs, Lease
from middleware.run import Run
from middleware.unit_run import UnitRun, make_run
from scheduler.ticks import cron
from store.contract import Woken
from store.errors import (
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
from store.outcome import Again, Done, Fail, Outcome, Park, Retry

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

PS = ParamSpec("PS")
T = TypeVar("T", bound=Payload)

def broker() -> Broker: ...

Handler = Callable[[T, Run], Outcome | None] | Callable[[T, Run], Awaitable[Outcome | None]]

@overload
def job(
    job_type: str, *, payload: Callable[PS, T], key: str | None = None, **options: Unpack[JobOptions]
) -> Callable[[Handler[T]], JobActor[PS, T]]: ...
@overload
def job(
    job_type: str, *, key: str | None = None, **options: Unpack[JobOptions]
) -> Callable[[Handler[Any]], JobActor[[], Payload]]: ...
