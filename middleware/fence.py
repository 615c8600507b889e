"""The fence around a handler: a claimed row in, a finish under its lease and attempt out.

Everything that happens inside ends as one event for the row: an outcome, a coded failure, a release. An error of the
fence itself becomes a skip, since Dramatiq logs and ignores exceptions in hooks and would run the actor unfenced.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

import dramatiq
from dramatiq.middleware import Interrupt, Middleware, SkipMessage
from pydantic import BaseModel, ValidationError

from middleware import logs
from middleware.delivery import JobDelivery
from middleware.failures import class_of, describe
from middleware.holding import Holding
from middleware.interrupts import Cancelled, LeaseLost, Stopped
from middleware.run import Run
from middleware.runtime import Runtime
from store import clock, payloads
from store.errors import PayloadInvalid
from store.events import Event, Failure, Finish, GiveBack, Kind, Release
from store.outcome import UNSET, Again, Done, Fail, Park, Retry

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
            return
        holding = message.holding
        if self._runtime.stopping.is_set():
            self._runtime.completion.put(holding, Release(holding.lease_id, holding.job.attempt))
            raise SkipMessage
        if holding.lost:
            self._runtime.completion.drop(holding)
            raise SkipMessage
        _current.holding = holding
        holding.begin()
        logs.job_started(holding.job)

    def after_process_message(
        self,
        broker: dramatiq.Broker,
        message: dramatiq.MessageProxy,
        *,
        result: Any = None,
        exception: BaseException | None = None,
    ) -> None:
        """A row whose handler was never reached is given back."""
        if isinstance(message, JobDelivery):
            _current.holding = None
            holding = message.holding
            if holding.started is not None:
                self._runtime.slots.learn(clock.elapsed() - holding.started)
            if not holding.ended:
                back = GiveBack(holding.lease_id, holding.job.attempt, SKIPPED_DELAY, "skipped")
                self._runtime.completion.put(holding, back)

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
    event: Event | None = None
    try:
        event = _attempt(holding, payload_type, handler, runtime.settings.max_json_bytes)
    finally:
        # Whatever came through here (a second interrupt, SystemExit): the row is settled.
        if event is None and not holding.lost:
            event = Release(holding.lease_id, holding.job.attempt)
        if event is None:
            runtime.completion.drop(holding)
        else:
            runtime.completion.put(holding, event)
    if isinstance(event, Finish) and event.failure is not None:
        raise JobFailed(event.failure.code)


def _attempt(holding: Holding, payload_type: type[BaseModel], handler: Handler, limit: int) -> Event | None:
    job = holding.job
    try:
        try:
            payload = payload_type.model_validate_json(job.payload)
        except (ValidationError, ValueError):
            # A newer schema than this worker's, or a row that somebody wrote by hand: it waits, it is not lost.
            return _finish(holding, Kind.RETRY, failure=Failure("PayloadInvalid", "payload_invalid"))
        try:
            outcome = handler(payload, Run(holding))
        finally:
            holding.leave()
        return _finish_of(holding, outcome, limit)
    except Cancelled:
        holding.leave()
        return _finish(holding, Kind.CANCELLED)
    except LeaseLost:
        holding.leave()
        holding.lost = True
        return None
    except Stopped:
        holding.leave()
        return Release(holding.lease_id, job.attempt)
    except PayloadInvalid as error:
        return _finish(holding, Kind.RETRY, failure=describe(error))
    except Interrupt as error:
        return _finish(holding, Kind.RETRY, failure=describe(error))
    except Exception as error:  # noqa: BLE001 - every failure of a handler becomes a coded one, here and nowhere else
        return _finish(holding, Kind.RETRY, failure=describe(error))
    except SystemExit as error:
        return _finish(holding, Kind.RETRY, failure=describe(error))


def _finish_of(holding: Holding, outcome: object, limit: int) -> Finish:
    if outcome is None:
        return _finish(holding, Kind.DONE)
    if isinstance(outcome, Done):
        result = None if outcome.result is None else payloads.encode(outcome.result, what="result", limit=limit)
        return _finish(holding, Kind.DONE, result=result)
    if isinstance(outcome, Fail):
        return _finish(holding, Kind.FAIL, failure=Failure("Fail", outcome.code), asked=True)
    if not isinstance(outcome, (Again, Retry, Park)):
        return _finish(holding, Kind.RETRY, failure=Failure(class_of_value(outcome), "outcome_unknown"))
    sets = outcome.checkpoint is not UNSET
    checkpoint = None
    if sets and outcome.checkpoint is not None:
        checkpoint = payloads.encode(outcome.checkpoint, what="checkpoint", limit=limit)
    if isinstance(outcome, Park):
        return _finish(holding, Kind.PARK, sets_checkpoint=sets, checkpoint=checkpoint)
    if isinstance(outcome, Retry):
        failure = Failure("Retry", outcome.code)
        return _finish(holding, Kind.RETRY, sets_checkpoint=sets, checkpoint=checkpoint, failure=failure, asked=True)
    return _finish(
        holding, Kind.AGAIN, sets_checkpoint=sets, checkpoint=checkpoint, run_at=outcome.at, delay=outcome.delay
    )


def class_of_value(value: object) -> str:
    """The class of a value that a handler should not have returned."""
    return class_of(value) if isinstance(value, BaseException) else type(value).__name__[:128]


def _finish(holding: Holding, kind: Kind, **fields: Any) -> Finish:
    job = holding.job
    counts = tuple(sorted(holding.counts.items()))
    return Finish(holding.lease_id, job.attempt, job.generation, kind, random.random(), counts=counts, **fields)
