"""The fence around a handler: a claimed row in, a finish under its lease and attempt out.

Everything that happens inside ends as one event for the row: an outcome, a coded failure, a release. An error of the
fence itself becomes a skip, since Dramatiq logs and ignores exceptions in hooks and would run the actor unfenced.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import dramatiq
from dramatiq.middleware import Interrupt, Middleware, SkipMessage
from pydantic import BaseModel, ValidationError

from middleware import lineage, logs
from middleware.answers import finish_of, plain_finish
from middleware.credentials import MISSING_DELAY
from middleware.delivery import JobDelivery
from middleware.failures import describe
from middleware.holding import Holding
from middleware.interrupts import Cancelled, LeaseLost, Stopped, TimeLimitExceeded
from middleware.run import Run
from middleware.runtime import Runtime
from store.errors import CredentialMissing
from store.events import Event, Failure, Finish, GiveBack, Kind, Release

#: A handler, made synchronous.
Handler = Callable[..., Any]

#: Seconds for which a row stays away that some other middleware skipped or a hook kept from running.
SKIPPED_DELAY = 5.0


class JobFailed(Exception):
    """What Dramatiq and other middleware hear of a failed attempt: its code, which we worded, and nothing else."""


class _InThread(threading.local):
    holding: Holding | None = None


_current = _InThread()


class Fence(Middleware):
    """Puts the claimed row into the worker thread's hands, and sees that each one is settled whatever happens."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    @property
    def actor_options(self) -> set[str]:
        """``job``: the type's policy, set by ``@job`` alone."""
        return {"job"}

    def before_process_message(self, broker: dramatiq.Broker, message: dramatiq.MessageProxy) -> None:
        """Let a run begin only under a lease that still stands."""
        if not isinstance(message, JobDelivery):
            self._runtime.run_began()
            return
        if not enter(message.holding, self._runtime):
            raise SkipMessage
        _current.holding = message.holding

    def after_process_message(
        self,
        broker: dramatiq.Broker,
        message: dramatiq.MessageProxy,
        *,
        result: Any = None,
        exception: BaseException | None = None,
    ) -> None:
        """A row whose handler was never reached is given back."""
        if not isinstance(message, JobDelivery):
            self._runtime.run_ended()
            return
        _current.holding = None
        leave(message.holding, self._runtime)

    def after_skip_message(self, broker: dramatiq.Broker, message: dramatiq.MessageProxy) -> None:
        """Some middleware skipped it."""
        self.after_process_message(broker, message)


def run_fenced(payload_type: type[BaseModel], handler: Handler, runtime: Runtime) -> None:
    """Run ``handler`` for the row in this thread's hands and hand its finish to the completion.

    Raises JobFailed (with a text of ours) after a failed attempt, for Dramatiq and other middleware to see.
    """
    holding, _current.holding = _current.holding, None
    if holding is None:
        raise JobFailed("a job runs under the fence only: wake it, or call its handler with a payload and a run")
    failure = run_held(holding, payload_type, handler, runtime)
    if failure is not None:
        raise JobFailed(failure.code)


def enter(holding: Holding, runtime: Runtime) -> bool:
    """A run may begin in this thread; False: its row has been given back, or is somebody else's."""
    if runtime.stopping.is_set():
        runtime.completion.put(holding, Release(holding.lease_id, holding.job.attempt))
        return False
    if holding.lost:
        runtime.completion.drop(holding)
        return False
    runtime.run_began()
    holding.begin()
    logs.job_started(holding.job)
    return True


def leave(holding: Holding, runtime: Runtime) -> None:
    """The run is over, or never began: a row whose handler was not reached is given back."""
    runtime.run_ended()
    holding.leave()
    if not holding.ended:
        back = GiveBack(holding.lease_id, holding.job.attempt, SKIPPED_DELAY, "skipped")
        runtime.completion.put(holding, back)


def run_held(
    holding: Holding, payload_type: type[BaseModel], handler: Handler, runtime: Runtime
) -> Failure | None:  # fmt: skip
    """Run ``handler`` for a row that this thread has entered, and hand its finish to the completion. Answers the
    failure of the attempt; raises nothing that the handler raised."""
    event = _attempt(holding, payload_type, handler, runtime)
    if holding.settled is not None:
        runtime.completion.settled(holding)
        if isinstance(event, Finish) and event.failure is not None:
            logs.job_failed_after_its_end(holding.job, event.failure)
        return None
    if event is None:
        runtime.completion.drop(holding)
        return None
    runtime.completion.put(holding, event)
    return event.failure if isinstance(event, Finish) else None


def _attempt(holding: Holding, payload_type: type[BaseModel], handler: Handler, runtime: Runtime) -> Event | None:
    job = holding.job
    if away := [name for name in holding.policy.credentials if not runtime.credentials.present(name)]:
        logs.credential_missing(job, away[0])
        return GiveBack(holding.lease_id, job.attempt, MISSING_DELAY, CredentialMissing.code)
    try:
        try:
            payload = payload_type.model_validate_json(runtime.boundary.read(job, "payload") or "")
        except (ValidationError, ValueError):
            # A newer schema than this worker's, or a row that somebody wrote by hand: it waits, it is not lost.
            return plain_finish(holding, Kind.RETRY, failure=Failure("PayloadInvalid", "payload_invalid"))
        try:
            with lineage.of_run(job.request_id, job.trace):
                outcome = handler(payload, Run(holding, runtime))
        finally:
            holding.leave()
        return finish_of(holding, outcome, runtime)
    except BaseException as error:  # noqa: BLE001 - whatever ends a run becomes an event for its row, here alone
        holding.leave()
        # A coroutine that takes long to end turns the interrupt into an error of the event loop's.
        why = error if isinstance(error, Interrupt) else error.__cause__
        if isinstance(why, Cancelled):
            return plain_finish(holding, Kind.CANCELLED)
        if isinstance(why, Stopped):
            return Release(holding.lease_id, job.attempt)
        if isinstance(why, LeaseLost):
            holding.lost = True
            return None
        if isinstance(why, TimeLimitExceeded):
            return plain_finish(holding, Kind.RETRY, failure=Failure("TimeLimitExceeded", "time_limit"))
        return plain_finish(holding, Kind.RETRY, failure=describe(error))
