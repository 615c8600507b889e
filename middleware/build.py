"""The broker of a process, with the ordered list of what surrounds every run. Importing it connects to nothing."""

from __future__ import annotations

import dramatiq
from dramatiq.broker import Broker as AnyBroker
from dramatiq.middleware import (
    AgeLimit,
    AsyncIO,
    Callbacks,
    CurrentMessage,
    Middleware,
    Pipelines,
    Retries,
    ShutdownNotifications,
    TimeLimit,
)
from periodiq import PeriodiqMiddleware

from middleware.broker import SCHEDULER_QUEUE, Broker
from middleware.fence import Fence
from middleware.runtime import Runtime
from middleware.settings import WorkerSettings
from middleware.singleton import Singleton
from middleware.worker import WorkerLife
from store.boundary import SECTIONS
from store.errors import UsageError
from store.limit_settings import LimitSettings
from store.settings import StoreSettings, load_all


def build_broker(settings: StoreSettings, worker: WorkerSettings) -> Broker:
    """A broker of its own, for settings that are already validated."""
    runtime = Runtime(settings, worker)
    return Broker(runtime, _ordered(runtime))


def broker() -> Broker:
    """The process' broker: made at the first call from the environment, and set as Dramatiq's global one.

    Raises SettingsInvalid, and UsageError where a program has already chosen another broker.
    """
    chosen: AnyBroker | None = dramatiq.broker.global_broker
    if isinstance(chosen, Broker):
        return chosen
    if chosen is not None:
        raise UsageError(
            f"Dramatiq's broker is already a {type(chosen).__name__}: jobs want ours, which carries ordinary actors as "
            "well, so leave out your set_broker() or import dramaturg first"
        )
    settings, worker, *_ = load_all(StoreSettings, WorkerSettings, LimitSettings, *SECTIONS)
    assert isinstance(settings, StoreSettings)
    assert isinstance(worker, WorkerSettings)
    made = build_broker(settings, worker)
    dramatiq.set_broker(made)
    return made


def _ordered(runtime: Runtime) -> list[Middleware]:
    """Before a run from top to bottom, after it from bottom to top; the fence is innermost, next to the handler."""
    return [
        WorkerLife(SCHEDULER_QUEUE),  # boots first, stops last
        Singleton(),
        PeriodiqMiddleware(),  # declares `periodic`
        AsyncIO(),
        AgeLimit(),
        TimeLimit(),
        ShutdownNotifications(),
        Callbacks(),
        Pipelines(),
        Retries(),  # for ordinary messages: jobs never reach it with anything to retry
        CurrentMessage(),
        Fence(runtime),
    ]
