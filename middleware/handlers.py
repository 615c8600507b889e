"""Job types for programs without Dramatiq: a policy, a payload's schema and the function that does the work."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol, Unpack

from dramatiq.asyncio import EventLoopThread, async_to_sync, get_event_loop_thread, set_event_loop_thread
from pydantic import BaseModel, ConfigDict

from middleware.credentials import check_declared
from middleware.fence import Handler
from middleware.job import JobOptions, Payload, check_handler
from middleware.run import Run
from store.errors import UsageError
from store.outcome import Outcome
from store.policy import Policy


class AnyPayload(Payload):
    """A payload without a schema: its fields are attributes, and ``model_dump()`` answers them all."""

    model_config = ConfigDict(extra="allow")


class Handled(Protocol):
    """What can be run: a ``@job`` or a ``handler``."""

    @property
    def policy(self) -> Policy:
        """What the type asks for; it is published, so that rows of the type may run."""
        ...

    @property
    def payload_type(self) -> type[BaseModel]:
        """The schema of its payloads."""
        ...

    @property
    def handler(self) -> Handler:
        """The function, made synchronous."""
        ...


class JobHandler(NamedTuple):
    """One job type and its function. Calling it calls the function."""

    policy: Policy
    payload_type: type[BaseModel]
    handler: Handler

    def __call__(self, payload: Any, run: Run) -> Any:
        """What the function answers; raises what it raises."""
        return self.handler(payload, run)


Function = Callable[[Any, Run], Outcome | None] | Callable[[Any, Run], Awaitable[Outcome | None]]


def handler(
    job_type: str, *, payload: type[BaseModel] = AnyPayload, **options: Unpack[JobOptions]
) -> Callable[[Function], JobHandler]:
    """Make a function the handler of a job type, for ``Jobs.run``; the options are those of ``@job``, but for
    ``periodic``, which wants a scheduler. Raises UsageError."""
    if "periodic" in options:
        raise UsageError(f"{job_type!r} is recurring: declare it with @job, whose scheduler fires it")
    if options.get("quarantine_after") is True:
        options["quarantine_after"] = 3

    def decorate(function: Function) -> JobHandler:
        check_handler(job_type, function)
        plain: Any = async_to_sync(function) if inspect.iscoroutinefunction(function) else function
        told: dict[str, Any] = {**options, "credentials": check_declared(options.get("credentials", ()))}
        return JobHandler(Policy(job_type, **told), payload, plain)

    return decorate


@contextmanager
def event_loop() -> Iterator[None]:
    """An event loop for ``async def`` handlers, in a thread of its own, unless a Dramatiq worker has one here."""
    if get_event_loop_thread() is not None:
        yield
        return
    thread = EventLoopThread(logging.getLogger("dramaturg.asyncio"))
    thread.daemon = True
    thread.start(timeout=5.0)
    set_event_loop_thread(thread)
    try:
        yield
    finally:
        set_event_loop_thread(None)
        thread.stop()  # type: ignore[no-untyped-call]
