"""What a handler answered becomes the event that ends its run."""

from __future__ import annotations

import random
from typing import Any

from middleware.failures import class_of
from middleware.holding import Holding
from store import payloads
from store.events import Failure, Finish, Kind
from store.outcome import UNSET, Again, Done, Fail, Park, Retry


def finish_of(holding: Holding, outcome: object, limit: int) -> Finish:
    """The finish for ``outcome``; JSON in it may have ``limit`` bytes. Raises PayloadInvalid."""
    if outcome is None:
        return plain_finish(holding, Kind.DONE)
    if isinstance(outcome, Done):
        result = None if outcome.result is None else payloads.encode(outcome.result, what="result", limit=limit)
        return plain_finish(holding, Kind.DONE, result=result)
    if isinstance(outcome, Fail):
        return plain_finish(holding, Kind.FAIL, failure=Failure("Fail", outcome.code), asked=True)
    if not isinstance(outcome, (Again, Retry, Park)):
        return plain_finish(holding, Kind.RETRY, failure=Failure(class_of_value(outcome), "outcome_unknown"))
    sets = outcome.checkpoint is not UNSET
    checkpoint = None
    if sets and outcome.checkpoint is not None:
        checkpoint = payloads.encode(outcome.checkpoint, what="checkpoint", limit=limit)
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


def class_of_value(value: object) -> str:
    """The class of a value that a handler should not have returned."""
    return class_of(value) if isinstance(value, BaseException) else type(value).__name__[:128]


def plain_finish(holding: Holding, kind: Kind, **fields: Any) -> Finish:
    """A finish of this run under its lease, attempt and generation."""
    job, counts = holding.job, holding.counts
    if counts:
        fields["counts"] = tuple(sorted(counts.items()))
    return Finish(
        holding.lease_id, job.attempt, job.generation, kind, random.random(), progress=holding.progress, **fields
    )
