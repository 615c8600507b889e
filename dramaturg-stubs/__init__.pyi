# What type checkers read for the one-file module ``dramaturg``, which can't carry a py.typed itself. A test compares.
from collections.abc import Awaitable, Callable
from typing import Any, ParamSpec, TypeVar, Unpack, overload

from middleware.broker import Broker
from middleware.interrupts import Cancelled, LeaseLost, Stopped, TimeLimitExceeded
from middleware.job import JobActor, JobOptions, Payload, Tick
from middleware.run import Run
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
    "Done",
    "DramaturgError",
    "Fail",
    "JobActor",
    "LeaseLost",
    "NotFound",
    "Outcome",
    "Park",
    "Payload",
    "PayloadInvalid",
    "Refused",
    "Retry",
    "Run",
    "SettingsInvalid",
    "Stopped",
    "StoreUnavailable",
    "Tick",
    "TimeLimitExceeded",
    "Unavailable",
    "UnknownType",
    "UsageError",
    "ValkeyUnavailable",
    "Woken",
    "broker",
    "cron",
    "job",
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
