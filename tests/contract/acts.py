"""What tests do to a store in one line, and how they compare rows."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any, TypeVar

from store.clock import PARKED
from store.contract import ANY_VERSION, Change, Document, Store
from store.events import Event
from store.identity import SEPARATOR
from store.job import COLUMNS, JSON_COLUMNS, TIME_COLUMNS, Entry, Job
from store.policy import Policy
from store.transitions import Answer, Decision, Write, decide
from tests.contract.rows import TYPE, claim

Outcome = TypeVar("Outcome")

#: A database adds seconds to a moment in its own arithmetic: the last microsecond may be rounded another way.
GRAIN = timedelta(microseconds=1)


class GivenUp(Exception):
    """What a caller's own code raises."""


def publish(store: Store, *job_types: str) -> None:
    """Make job types known."""
    for job_type in job_types:
        assert store.put(Document("policy", job_type, ANY_VERSION, Policy(job_type).document()))


def pause(store: Store, queue: str, domain: str | None = None, *, paused: bool = True) -> None:
    """Stop a queue, for one domain or for all; or let it go on."""
    key = queue if domain is None else queue + SEPARATOR + domain
    assert store.put(Document("queue", key, ANY_VERSION, {"paused": paused}))


def read(store: Store, id_: str) -> Job:
    """The row, which must be there."""
    [job] = store.read([id_])
    assert job is not None
    return job


def take(store: Store, id_: str, *, seconds: float = 60, now: datetime | None = None) -> Job:
    """Claim a row, which must be runnable."""
    [claimed] = store.claim([claim(id_, seconds=seconds)], now=now)
    assert claimed.job is not None
    return claimed.job


def settle(store: Store, job: Job, event: Event, policy: Policy | None = None, *, now: datetime | None = None) -> bool:
    """Decide what ``event`` does to the row as read, and write it."""
    decision = decide(job, event, policy or Policy(TYPE))
    return store.swap([Change(job.id, job.revision, decision)], now=now)[0]


def change(job: Job, write: Write | None = None, **values: Any) -> Change:
    """A plain write of ``values`` on the row as read."""
    return Change(job.id, job.revision, Decision(Answer.APPLIED, job.state, write or Write(values)))


def noted(job: Job, *entries: Entry, **values: Any) -> Change:
    """A plain write with history."""
    return Change(job.id, job.revision, Decision(Answer.APPLIED, job.state, Write(values), entries))


def at_once(calls: Sequence[Callable[[], Outcome]], *, timeout: float = 60) -> list[Outcome]:
    """Run all calls at the same moment, each in a thread of its own, and answer what each answered."""
    gate = threading.Barrier(len(calls))

    def run(call: Callable[[], Outcome]) -> Outcome:
        gate.wait(timeout)
        return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        return [future.result(timeout) for future in [pool.submit(run, call) for call in calls]]


def differences(found: Job | None, expected: Job | None) -> dict[str, tuple[Any, Any]]:
    """The columns in which two rows differ: JSON by its value and types, moments to the grain of arithmetic."""
    if found is None or expected is None:
        return {} if found is expected else {"row": (found, expected)}
    pairs = {name: (getattr(found, name), getattr(expected, name)) for name in COLUMNS}
    return {name: pair for name, pair in pairs.items() if not _same(name, *pair)}


def _same(name: str, found: Any, expected: Any) -> bool:
    if found is None or expected is None:
        return found is expected
    if name in JSON_COLUMNS:
        return _plain(found) == _plain(expected)
    if name in TIME_COLUMNS:
        utc = isinstance(found, datetime) and found.utcoffset() == timedelta(0)
        return utc and (found == PARKED) == (expected == PARKED) and abs(found - expected) <= GRAIN
    return type(found) is type(expected) and bool(found == expected)


def _plain(text: str) -> str:
    """JSON text such that two texts of one value, and only those, are equal: 1 is not 1.0, and the keys' order is no
    part of it."""
    return repr(json.loads(text, object_pairs_hook=lambda pairs: sorted(pairs, key=lambda pair: pair[0])))
