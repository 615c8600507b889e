"""Rows and events for tests: plain ones written by hand, and random ones for the proofs.

Every row made here is one that the schema allows; ``NOW`` is the frozen moment at which events meet them.
"""

from __future__ import annotations

import unicodedata
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st

from store import clock, identity, payloads
from store.clock import PARKED
from store.events import (
    Cancel,
    Claim,
    Event,
    Failure,
    Finish,
    GiveBack,
    Kind,
    Reclaim,
    Release,
    Requeue,
    Reschedule,
    Wake,
)
from store.job import TERMINAL, Job, State
from store.policy import WORKER_LOST, Policy

NOW = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
TYPE = "test.job"
LEASE = "11111111-1111-4111-8111-111111111111"
OTHER_LEASE = "22222222-2222-4222-8222-222222222222"
SPENT_LEASE = "33333333-3333-4333-8333-333333333333"
STATES = tuple(state.value for state in State)


def later(seconds: float) -> datetime:
    """So many seconds after NOW; before it where negative."""
    return NOW + timedelta(seconds=seconds)


# --- by hand ----------------------------------------------------------------------------------------------------------


def wake(key: str | None = "k", **changes: Any) -> Wake:
    """A plain wake; its id follows from its identity unless one is given."""
    fields: dict[str, Any] = {"domain": "default", "queue": "default", "job_type": TYPE, "payload": '{"n":1}'} | changes
    fields.setdefault("id", identity.job_id(fields["domain"], fields["queue"], fields["job_type"], key))
    return Wake(key=key, **fields)


def claim(id_: str, lease_id: str | None = None, *, worker: str = "worker", seconds: float = 60) -> Claim:
    """A claim under a lease id of its own, unless one is given."""
    return Claim(id_, lease_id or identity.new_lease_id(), worker, seconds)


def finish(job: Job, kind: Kind = Kind.DONE, **changes: Any) -> Finish:
    """The finish that the holder of ``job``, as it was claimed, sends."""
    assert job.lease_id is not None
    fields: dict[str, Any] = {"lease_id": job.lease_id, "attempt": job.attempt, "generation": job.generation}
    if kind in (Kind.RETRY, Kind.FAIL):
        fields["failure"] = Failure.of_code("broken")
    return Finish(kind=kind, **(fields | changes))


def row(state: str = "queued", *, key: str | None = "k", **changes: Any) -> Job:
    """A plain row in ``state``, as the schema allows it."""
    domain, queue = changes.get("domain", "default"), changes.get("queue", "default")
    job_type = changes.get("job_type", TYPE)
    fields: dict[str, Any] = dict.fromkeys(Job._fields)
    fields |= {
        "id": identity.job_id(domain, queue, job_type, key),
        "domain": domain,
        "queue": queue,
        "job_type": job_type,
        "key": key,
        "priority": 5,
        "payload": '{"n":1}',
        "run_at": later(-60) if state == State.QUEUED else PARKED,
        "created_at": later(-600),
        "generation": clock.micros(later(-600)) + 3,
        "revision": 7,
        "state": state,
        "retries": 0,
        "failure_streak": 0,
        "attempt": 2,
        "stopping": False,
        "updated_at": later(-5),
    }
    if state == State.PROCESSING:
        fields |= {"lease_id": LEASE, "leased_until": later(60), "worker": "worker"}
        fields |= {"due_at": later(-60), "started_at": later(-5)}
    if state in TERMINAL:
        fields["finished_at"] = later(-5)
    if state == State.QUARANTINED:
        fields |= {"held_at": later(-5), "retries": 3, "failure_streak": 3, "failure_code": "broken"}
        fields |= {"last_error": "attempt failed: broken", "failure": '{"code":"broken"}'}
    return Job(**(fields | changes))


# --- random names, values and moments ---------------------------------------------------------------------------------

_ODD = (
    "a'b",
    'a"b',
    "a%sb",
    "a\\b",
    "{n}",
    "--",
    ";",
    "ß",
    "日本",
    "🎭🎭",
    "a b",
    ":x",
    "$1",
    "null",
    "A",
    "a",
    "0",
    "%",
)


def _allowed(field: str, value: str) -> bool:
    return bool(value.strip()) and len(value) <= identity.MAX_LENGTH[field] and not identity._CONTROL.search(value)


def names(field: str = "key") -> st.SearchStrategy[str]:
    """Any names that ``check_name`` lets through."""
    letters = st.characters(codec="utf-8", exclude_categories=("Cc", "Cs"))
    plain = st.text(letters, min_size=1, max_size=12).map(lambda text: unicodedata.normalize("NFC", text))
    return st.sampled_from(_ODD) | plain.filter(lambda text: _allowed(field, text))


_WHOLE = st.sampled_from([0, -1, 2**31, 2**53 + 1, 2**63 - 1, -(2**63)]) | st.integers(-(2**63), 2**63 - 1)
_TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=8)
_SCALARS = st.none() | st.booleans() | _WHOLE | st.floats(allow_nan=False, allow_infinity=False) | _TEXT

json_values = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3), max_leaves=5
)
json_texts = json_values.map(lambda value: payloads.encode(value))

# Whole rows are drawn from few odd values for each column: a draw of any text costs more than the statement it is for.
odd_names = st.sampled_from(_ODD)
odd_json = st.sampled_from(
    [
        '{"n":1}',
        "{}",
        "[]",
        '{"日本":"🎭","a":[1,2.5,null,true]}',
        "[9223372036854775807,-1,0.1,1e+22]",
        '"x"',
        "7",
        "null",
    ]
)
odd_objects = st.sampled_from(['{"n":1}', "{}", '{"at":[1,{"page":2}],"f":0.5}', '{"text":"\'\\"\\\\ %s :x"}'])
codes = st.sampled_from(["broken", "timeout", WORKER_LOST])
lease_ids = st.sampled_from([f"{number:08d}-0000-4000-8000-000000000000" for number in range(40)])
delays = st.sampled_from([0.0, 0.001, 1.0, 3.3, 77.777, 3600.0, 1e6]) | st.integers(0, 10**9).map(lambda n: n / 1000)


def moments(*, past: bool = True, future: bool = True) -> st.SearchStrategy[datetime]:
    """Moments around NOW, of whole microseconds, its nearest neighbours among them."""
    low, high = (-(10**11) if past else 0), (10**11 if future else 0)
    near = [offset for offset in (-1000, -1, 0, 1, 1000) if low <= offset <= high]
    return (st.sampled_from(near) | st.integers(low, high)).map(lambda offset: NOW + timedelta(microseconds=offset))


policies = st.builds(
    Policy,
    job_type=st.just(TYPE),
    quarantine_after=st.sampled_from([None, 1, 2, 3]),
    keep_finished=st.booleans(),
    backoff_first=st.sampled_from([0.001, 5.0, 17.5]),
    backoff_cap=st.sampled_from([20.0, 300.0]),
    backoff_jitter=st.sampled_from([0.0, 0.2]),
)


# --- random rows ------------------------------------------------------------------------------------------------------


@st.composite
def jobs(draw: st.DrawFn, states: tuple[str, ...] = STATES) -> Job:
    """A random row of one of ``states``; its key is unique enough to stand beside others."""
    state = draw(st.sampled_from(states))
    domain, queue = draw(odd_names), draw(odd_names)
    key = draw(st.none() | odd_names)
    maybe = st.none() | moments(future=False)
    created_at = draw(moments(future=False))
    failing = draw(st.booleans()) or state == State.QUARANTINED
    code = draw(codes) if failing else None
    held = state == State.PROCESSING
    stood = state in (State.PROCESSING, State.COMPLETED, State.FAILED, State.CANCELLED)
    checkpoint = draw(st.none() | odd_objects)
    generation = clock.micros(created_at) + draw(st.integers(0, 5))
    values: dict[str, Any] = {
        "id": identity.job_id(domain, queue, TYPE, key),
        "domain": domain,
        "queue": queue,
        "job_type": TYPE,
        "key": key,
        "owner": draw(st.none() | odd_names),
        "priority": draw(st.integers(1, 10)),
        "payload": draw(odd_json),
        "run_at": draw(st.just(PARKED) | moments()) if state in (State.QUEUED, State.PROCESSING) else PARKED,
        "generation": generation,
        "revision": draw(st.integers(1, 1000)),
        "state": state,
        "retries": draw(st.sampled_from([0, 1, 2, 3, 4, 5000])),
        "max_retries": draw(st.none() | st.sampled_from([0, 1, 3, 100])),
        "checkpoint": checkpoint,
        "checkpoint_generation": None if checkpoint is None else generation - draw(st.integers(0, 2)),
        "due_at": draw(moments(future=False)) if held else None,
        "held_at": draw(moments(future=False)) if state == State.QUARANTINED else None,
        "last_error": None if code is None else f"attempt failed: {code}",
        "failure": None if code is None else Failure("OSError", code, place="jobs.py:7 in run").json,
        "failure_code": code,
        "failure_streak": 0 if code is None else draw(st.integers(1, 5)),
        "lease_id": draw(lease_ids) if held else None,
        "ended_lease": draw(st.none() | st.just(SPENT_LEASE) | lease_ids),
        "attempt": draw(st.integers(1 if held else 0, 4)),
        "leased_until": draw(moments()) if held else None,
        "worker": draw(st.none() | odd_names),
        "stopping": held and draw(st.booleans()),
        "cancel_requested_at": draw(maybe) if stood else None,
        "progress_percent": draw(st.none() | st.integers(0, 100)),
        "progress_message": draw(st.none() | odd_names),
        "result": draw(st.none() | odd_objects) if state == State.COMPLETED else None,
        "finish_token": draw(st.none() | st.just(SPENT_LEASE) | lease_ids),
        "request_id": draw(st.none() | odd_names),
        "trace": draw(st.none() | odd_names),
        "created_at": created_at,
        "started_at": draw(maybe),
        "finished_at": draw(moments(future=False)) if state in TERMINAL else None,
        "updated_at": draw(moments(future=False)),
    }
    return Job(**values)


def batches(states: tuple[str, ...] = STATES, *, most: int = 5) -> st.SearchStrategy[list[Job]]:
    """Some rows that can stand in one database together."""
    return st.lists(jobs(states), min_size=1, max_size=most, unique_by=lambda job: job.id)


# --- random events ----------------------------------------------------------------------------------------------------


@st.composite
def wakes(draw: st.DrawFn, job: Job) -> Wake:
    """A wake of the identity that ``job`` has."""
    return Wake(
        id=job.id,
        domain=job.domain,
        queue=job.queue,
        job_type=job.job_type,
        key=job.key,
        payload=draw(odd_json),
        owner=draw(st.none() | odd_names),
        priority=draw(st.integers(1, 10)),
        run_at=draw(st.none() | st.just(PARKED) | moments()),
        delay=draw(delays),
        once=draw(st.booleans()),
        max_retries=draw(st.none() | st.integers(0, 100)),
        request_id=draw(st.none() | odd_names),
        trace=draw(st.none() | odd_names),
    )


@st.composite
def claims(draw: st.DrawFn, job: Job) -> Claim:
    """A claim of ``job``: by a new lease, by the one that holds it, or by one that is spent."""
    known = [lease for lease in (job.lease_id, job.ended_lease, job.finish_token) if lease is not None]
    lease = draw(lease_ids) if not known or draw(st.booleans()) else draw(st.sampled_from(known))
    return Claim(job.id, lease, draw(odd_names), draw(st.sampled_from([0.5, 10.0, 120.0])))


@st.composite
def finishes(draw: st.DrawFn, job: Job) -> Finish:
    """A finish, mostly by the holder, now and then by somebody who is late."""
    known = [lease for lease in (job.lease_id, job.lease_id, job.finish_token) if lease is not None]
    kind = draw(st.sampled_from(Kind))
    moment = draw(st.none() | moments()) if kind is Kind.AGAIN else None
    return Finish(
        lease_id=draw(st.sampled_from([*known, OTHER_LEASE])),
        attempt=job.attempt - draw(st.sampled_from([0, 0, 0, 1])),
        generation=job.generation - draw(st.sampled_from([0, 0, 1, 10**12])),
        kind=kind,
        jitter=draw(st.floats(0, 1)),
        result=draw(st.none() | odd_objects),
        sets_checkpoint=draw(st.booleans()),
        checkpoint=draw(st.none() | odd_objects),
        run_at=moment,
        delay=0.0 if moment else draw(delays),
        failure=draw(st.none() | codes.map(Failure.of_code)) if kind in (Kind.RETRY, Kind.FAIL) else None,
        asked=draw(st.booleans()),
        counts=draw(st.sampled_from([(), (("files", 3), ("failed", 0))])),
    )


@st.composite
def other_events(draw: st.DrawFn, job: Job) -> Event:
    """Anything but a wake and a claim."""
    lease = draw(st.sampled_from([job.lease_id or OTHER_LEASE, OTHER_LEASE]))
    fence = (lease, job.attempt - draw(st.sampled_from([0, 0, 1])))
    return draw(
        finishes(job)
        | st.just(Release(*fence))
        | st.builds(GiveBack, st.just(fence[0]), st.just(fence[1]), delays, codes)
        | st.builds(Reclaim, st.just(lease), st.floats(0, 1))
        | st.sampled_from([Cancel(), Requeue()])
        | st.builds(Reschedule, delay=delays)
        | st.builds(Reschedule, run_at=st.just(PARKED) | moments())
    )


# --- what the schema allows -------------------------------------------------------------------------------------------


def impossible(job: Job) -> list[str]:
    """The rules of the schema that ``job`` breaks."""
    processing, state = job.state == State.PROCESSING, job.state
    rules = {
        "one of the states": state in STATES,
        "priority 1..10": 1 <= job.priority <= 10,
        "retries not negative": job.retries >= 0 and job.failure_streak >= 0,
        "max_retries 0..100": job.max_retries is None or 0 <= job.max_retries <= 100,
        "percent 0..100": job.progress_percent is None or 0 <= job.progress_percent <= 100,
        "finished_at exactly in terminal states": (job.finished_at is not None) == (state in TERMINAL),
        "held_at exactly in quarantined": (job.held_at is not None) == (state == State.QUARANTINED),
        "a lease exactly while processing": (job.lease_id is not None) == processing,
        "leased_until exactly while processing": (job.leased_until is not None) == processing,
        "due_at only while processing": job.due_at is None or processing,
        "stopping only while processing": not job.stopping or processing,
        "no cancel stands on what waits or is held": job.cancel_requested_at is None
        or state not in (State.QUEUED, State.QUARANTINED),
        "only what waits or runs has a time": job.run_at == PARKED or state in (State.QUEUED, State.PROCESSING),
    }
    return [rule for rule, holds in rules.items() if not holds]
