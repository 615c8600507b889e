"""Decisions written on rows that are still as they were read, and the history that goes with them.

SurrealDB has no savepoints: a history that can't be written takes its transaction along. So rows and history are
written together first, and where that is refused the rows alone: if those go through, it was the history's fault.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import orjson
import structlog

from store.contract import Change
from store.errors import Refused
from store.job import HISTORY_KEPT
from store.surreal.requests import Step
from store.surreal.rows import micros, stored


def swap(run: Callable[[Step], Any], changes: Sequence[Change]) -> list[bool]:
    """Write what is still true by ``run``; whether each was written. What ``run`` raises passes."""
    if not any(change.decision.write is not None for change in changes):
        return [False] * len(changes)
    noted = sorted({change.id for change in changes if change.decision.write is not None and change.decision.history})
    if not noted:
        return _answers(run(step(changes)), changes)
    try:
        with_history = step(changes)
    except orjson.JSONEncodeError as error:
        cause = type(error).__name__
    else:
        try:
            return _answers(run(with_history), changes)
        except Refused as error:
            cause = type(error).__name__
    found = run(step([change._replace(decision=change.decision._replace(history=())) for change in changes]))
    structlog.get_logger("store").warning("job_history_failed", job_ids=noted, error=cause)
    return _answers(found, changes)


def step(changes: Sequence[Change]) -> Step:
    """Write ``changes`` in order; answers whether each was written, those left out that write nothing."""
    values = {f"h{place}": _change(change) for place, change in enumerate(changes) if change.decision.write is not None}
    calls = ", ".join(f"fn::dramaturg::swap_row(${name}, {HISTORY_KEPT}, $now)" for name in values)
    return Step(f"[{calls}]", values)


def _answers(found: Any, changes: Sequence[Change]) -> list[bool]:
    told = iter(found)
    return [change.decision.write is not None and bool(next(told)) for change in changes]


def _change(change: Change) -> dict[str, Any]:
    write = change.decision.write
    assert write is not None
    return {
        "id": change.id,
        "revision": change.revision,
        "lapsed": write.lapsed,
        "delete": write.delete,
        "set": {name: stored(value) for name, value in write.set.items()},
        "stamps": list(write.stamps),
        "micros": None if write.run_in is None else micros(write.run_in),
        "run_at": stored(write.run_at),
        "earliest": write.earliest,
        "entries": [
            {
                "kind": entry.kind,
                "attempt": entry.attempt,
                "code": entry.code,
                "detail": orjson.dumps(dict(entry.detail)).decode(),
            }
            for entry in change.decision.history[-HISTORY_KEPT:]
        ],
    }
