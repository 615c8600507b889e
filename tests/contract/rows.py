"""Rows and events for tests: plain ones written by hand, and random ones for the proofs.

Every row made here is one that the schema allows; ``NOW`` is the frozen moment at which events meet them.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, TypeVar
from uuid import UUID

from hypothesis import strategies as st

from store import clock, identity, payloads
from store.clock import PARKED
from store.events import (
    Cancel,
    Claim,
    Event,
    Expire,
    Failure,
    Finish,
    GiveBack,
    Kind,
    Prune,
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


# --- random names and values ------------------------------------------------------------------------------------------

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


# --- random rows ------------------------------------------------------------------------------------------------------
#
# A whole row, and a whole event, is one draw: a seed. Hypothesis would take longer to draw sixty columns one by one
# than a store to write them; a failure names the columns that differ, so little is lost where it can't simplify a row.

_JSON = (
    '{"n":1}',
    "{}",
    "[]",
    '{"日本":"🎭","a":[1,2.5,null]}',
    "[9223372036854775807,-1,0.1,1e+22]",
    '"x"',
    "7",
    "null",
)
_OBJECTS = ('{"n":1}', "{}", '{"at":[1,{"page":2}],"f":0.5}', '{"text":"\'\\"\\\\ %s :x"}')
_CODES = ("broken", "timeout", WORKER_LOST)
_LEASES = (SPENT_LEASE, *(f"{number:08d}-0000-4000-8000-000000000000" for number in range(20)))
_DELAYS = (0.0, 0.001, 1.0, 3.3, 77.777, 3600.0, 1e6)
_SEEDS = st.integers(0, 2**32 - 1)

Made = TypeVar("Made")


class Dice(Random):
    """Draws of what stands in a row."""

    def maybe(self, values: Sequence[Made]) -> Made | None:
        """One of ``values``, or nothing."""
        return self.choice(values) if self.random() < 0.6 else None

    def one_in(self, count: int) -> bool:
        """True one time in so many."""
        return self.randrange(count) == 0

    def moment(self, *, future: bool = False) -> datetime:
        """Some moment, often the nearest ones to NOW; not after it unless asked for."""
        offset = self.choice((-1000, -1, 0)) if self.one_in(3) else self.randrange(-(10**11), 0)
        return NOW + timedelta(microseconds=-offset if future and self.one_in(2) else offset)

    def run_at(self) -> datetime:
        """When a row may be due."""
        return PARKED if self.one_in(4) else self.moment(future=True)

    def delay(self) -> float:
        """Seconds to the millisecond."""
        return self.choice(_DELAYS) if self.one_in(2) else self.randrange(10**9) / 1000


def rolled(make: Callable[[Dice], Made]) -> st.SearchStrategy[Made]:
    """What ``make`` makes of one seed."""
    return _SEEDS.map(lambda seed: make(Dice(seed)))


def jobs(states: tuple[str, ...] = STATES) -> st.SearchStrategy[Job]:
    """Random rows, each in one of ``states``."""
    return rolled(lambda dice: job_of(dice, states))


def policy_of(dice: Dice) -> Policy:
    """A policy of TYPE."""
    return Policy(
        TYPE,
        quarantine_after=dice.maybe((1, 2, 3)),
        keep_finished=dice.one_in(2),
        backoff_first=dice.choice((0.001, 5.0, 17.5)),
        backoff_cap=dice.choice((20.0, 300.0)),
        backoff_jitter=dice.choice((0.0, 0.2)),
    )


def job_of(dice: Dice, states: tuple[str, ...] = STATES) -> Job:
    """A random row in one of ``states``."""
    state = dice.choice(states)
    domain, queue, key = dice.choice(_ODD), dice.choice(_ODD), dice.maybe(_ODD)
    created_at = dice.moment()
    code = dice.choice(_CODES) if state == State.QUARANTINED else dice.maybe(_CODES)
    held = state == State.PROCESSING
    stood = held or state in TERMINAL
    checkpoint = dice.maybe(_OBJECTS)
    generation = clock.micros(created_at) + dice.randrange(5)
    return Job(
        id=identity.job_id(domain, queue, TYPE, key) if key else str(UUID(int=dice.getrandbits(128), version=4)),
        domain=domain,
        queue=queue,
        job_type=TYPE,
        key=key,
        owner=dice.maybe(_ODD),
        priority=dice.randint(1, 10),
        payload=dice.choice(_JSON),
        run_at=dice.run_at() if held or state == State.QUEUED else PARKED,
        generation=generation,
        revision=dice.randint(1, 1000),
        state=state,
        retries=dice.choice((0, 1, 2, 3, 4, 5000)),
        max_retries=dice.maybe((0, 1, 3, 100)),
        checkpoint=checkpoint,
        checkpoint_generation=None if checkpoint is None else generation - dice.randrange(3),
        due_at=dice.moment() if held else None,
        held_at=dice.moment() if state == State.QUARANTINED else None,
        last_error=None if code is None else f"attempt failed: {code}",
        failure=None if code is None else Failure("OSError", code, place="jobs.py:7 in run").json,
        failure_code=code,
        failure_streak=0 if code is None else dice.randint(1, 5),
        lease_id=dice.choice(_LEASES[1:]) if held else None,
        ended_lease=dice.maybe(_LEASES),
        attempt=dice.randint(1 if held else 0, 4),
        leased_until=dice.moment(future=True) if held else None,
        worker=dice.maybe(_ODD),
        stopping=held and dice.one_in(2),
        cancel_requested_at=dice.moment() if stood and dice.one_in(2) else None,
        progress_percent=dice.maybe((0, 1, 50, 100)),
        progress_message=dice.maybe(_ODD),
        result=dice.maybe(_OBJECTS) if state == State.COMPLETED else None,
        finish_token=dice.maybe(_LEASES),
        request_id=dice.maybe(_ODD),
        trace=dice.maybe(_ODD),
        created_at=created_at,
        started_at=dice.moment() if dice.one_in(2) else None,
        finished_at=dice.moment() if state in TERMINAL else None,
        updated_at=dice.moment(),
    )


# --- random events ----------------------------------------------------------------------------------------------------


def wake_of(dice: Dice, job: Job) -> Wake:
    """A wake of the identity that ``job`` has."""
    return Wake(
        *job[:5],
        payload=dice.choice(_JSON),
        owner=dice.maybe(_ODD),
        priority=dice.randint(1, 10),
        run_at=dice.run_at() if dice.one_in(2) else None,
        delay=dice.delay(),
        once=dice.one_in(3),
        max_retries=dice.maybe((0, 1, 100)),
        request_id=dice.maybe(_ODD),
        trace=dice.maybe(_ODD),
    )


def claim_of(dice: Dice, job: Job) -> Claim:
    """A claim of ``job``: by a new lease, by the one that holds it, or by one that is spent."""
    known = [lease for lease in (job.lease_id, job.ended_lease, job.finish_token) if lease is not None]
    lease = dice.choice(known) if known and dice.one_in(3) else OTHER_LEASE
    return Claim(job.id, lease, dice.choice(_ODD), dice.choice((0.5, 10.0, 120.0)))


def finish_of(dice: Dice, job: Job) -> Finish:
    """A finish, mostly by the holder, now and then by somebody who is late."""
    kind = dice.choice(list(Kind))
    moment = dice.run_at() if kind is Kind.AGAIN and dice.one_in(2) else None
    failed = kind in (Kind.RETRY, Kind.FAIL) and not dice.one_in(5)
    lease = job.finish_token if dice.one_in(5) else job.lease_id
    return Finish(
        lease_id=lease or OTHER_LEASE,
        attempt=job.attempt - dice.one_in(8),
        generation=job.generation - dice.choice((0, 0, 0, 1, 1, 10**12)),
        kind=kind,
        jitter=dice.random(),
        result=dice.maybe(_OBJECTS),
        sets_checkpoint=dice.one_in(2),
        checkpoint=dice.maybe(_OBJECTS),
        run_at=moment,
        delay=0.0 if moment else dice.delay(),
        failure=Failure.of_code(dice.choice(_CODES)) if failed else None,
        asked=dice.one_in(2),
        counts=() if dice.one_in(2) else (("files", 3), ("failed", 0)),
    )


def event_of(dice: Dice, job: Job) -> Event:
    """Anything but a wake and a claim."""
    lease = OTHER_LEASE if dice.one_in(4) else job.lease_id or job.ended_lease or OTHER_LEASE
    attempt = job.attempt - dice.one_in(8)
    made: tuple[Event, ...] = (
        Release(lease, attempt),
        GiveBack(lease, attempt, dice.delay(), dice.choice(_CODES)),
        Reclaim(lease, dice.random()),
        Cancel(),
        Requeue(),
        Reschedule(delay=dice.delay()),
        Reschedule(run_at=dice.run_at()),
        Prune(job.generation - dice.one_in(4)),
        Expire(job.generation - dice.one_in(4), attempt, lease if dice.one_in(2) else None, dice.one_in(2)),
    )
    return finish_of(dice, job) if job.state == State.PROCESSING and dice.one_in(2) else dice.choice(made)


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
