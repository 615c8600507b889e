"""What a handler answered becomes the event that ends its run."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from middleware.failures import clean_name
from middleware.holding import Holding
from store import payloads
from store.events import Failure, Finish, Kind
from store.outcome import UNSET, Again, Done, Fail, Park, Retry

if TYPE_CHECKING:
    from middleware.runtime import Runtime


def finish_of(holding: Holding, outcome: object, runtime: Runtime) -> Finish:
    """The finish for ``outcome``. Raises PayloadInvalid, SecretFound."""
    if outcome is None:
        return plain_finish(holding, Kind.DONE)
    if isinstance(outcome, Done):
        result = None if outcome.result is None else _kept(holding, "result", outcome.result, runtime)
        return plain_finish(holding, Kind.DONE, result=result)
    if isinstance(outcome, Fail):
        return plain_finish(holding, Kind.FAIL, failure=Failure("Fail", outcome.code), asked=True)
    if not isinstance(outcome, (Again, Retry, Park)):
        return plain_finish(holding, Kind.RETRY, failure=Failure(class_of_value(outcome), "outcome_unknown"))
    sets = outcome.checkpoint is not UNSET
    checkpoint = None
    if sets and outcome.checkpoint is not None:
        checkpoint = _kept(holding, "checkpoint", outcome.checkpoint, runtime)
    if isinstance(outcome, Park):
        return plain_finish(holding, Kind.PARK, sets_checkpoint=sets, checkpoint=checkpoint)
    if isinstance(outcome, Retry):
        failure = Failure("Retry", outcome.code)
        return plain_finish(
            holding, Kind.RETRY, sets_checkpoint=sets, checkpoint=checkpoint, failure=failure, asked=True
        )
    return plain_finish(
        holding, Kind.AGAIN, sets_checkpoint=sets, checkpoint=checkpoint, run_at=outcome.at, delay=outcome.delay
    )


def _kept(holding: Holding, field: str, value: object, runtime: Runtime) -> str:
    text = payloads.encode(value, what=field, limit=runtime.settings.max_json_bytes)
    return runtime.boundary.keep(holding.job, field, text)


def class_of_value(value: object) -> str:
    """The class of a value that a handler should not have returned."""
    return clean_name(type(value).__name__)


def plain_finish(holding: Holding, kind: Kind, **fields: Any) -> Finish:
    """A finish of this run under its lease, attempt and generation."""
    job, counts = holding.job, holding.counts
    if counts:
        fields["counts"] = tuple(sorted(counts.items()))
    return Finish(
        holding.lease_id, job.attempt, job.generation, kind, random.random(), progress=holding.progress, **fields
    )
