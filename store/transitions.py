"""The state table of a job, as pure functions: (row, event, policy) -> decision. No I/O, no clock.

A decision speaks of time only in durations and stamps ("now", "in 5 s"), because the database's clock fills them in
when it writes (``Decision.write``); ``after`` evaluates a decision for a given now, which is how the tests, the testing
kit and the proofs see it. Stores never decide: they compare the row's revision and set what a decision says. The two
events that must run inside one statement (a wake and a claim) stand here too, and random rows prove the statements
equal to them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple

from store import clock
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
from store.job import TERMINAL, Entry, Job, State
from store.policy import POISON_AFTER, WORKER_LOST, Policy


class Answer(StrEnum):
    """What whoever sent the event hears."""

    APPLIED = "applied"
    REPEATED = "repeated"  # the same was done before; nothing changed
    STALE = "stale"  # the lease or attempt is not the row's; nothing changed
    GONE = "gone"  # there is no such row any more; nothing changed
    REFUSED = "refused"  # the state says no; nothing changed


class Decision(NamedTuple):
    """What an event does to a row. With ``write`` None nothing changes."""

    answer: Answer
    state: str | None  # the state that the row is in afterwards; None: there is no row
    write: Write | None = None
    history: tuple[Entry, ...] = ()


class Write(NamedTuple):
    """Column values to set on a row whose revision is still the one that was read."""

    set: Mapping[str, Any] = MappingProxyType({})
    stamps: tuple[str, ...] = ()  # columns that take the statement's now
    run_in: float | None = None  # seconds from the statement's now ...
    run_at: datetime | None = None  # ... or a moment
    earliest: bool = True  # the row's run_at wins where it is earlier
    lapsed: bool = False  # only while leased_until lies in the past, in the same statement
    delete: bool = False


#: What leaving ``processing`` does to a row, whatever the way out.
_FREE: dict[str, Any] = {"lease_id": None, "leased_until": None, "stopping": False, "due_at": None}

#: What a success, a requeue and a fresh start do to the counters.
_CLEAN: dict[str, Any] = {
    "retries": 0,
    "last_error": None,
    "failure": None,
    "failure_code": None,
    "failure_streak": 0,
}


def after(row: Job | None, event: Event, now: datetime, policy: Policy) -> Job | None:
    """The row that ``decide`` leaves behind, evaluated for ``now``: None where there is none afterwards."""
    decision = decide(row, event, policy, now=now)
    return evaluate(row, decision, now)


def evaluate(row: Job | None, decision: Decision, now: datetime) -> Job | None:
    """``row`` as ``decision`` writes it at ``now``."""
    write = decision.write
    if write is None:
        return row
    if write.delete:
        return None
    if row is None:
        return Job(**write.set)
    values = dict(write.set)
    values.update(dict.fromkeys(write.stamps, now))
    own = write.run_at if write.run_in is None else clock.later(now, write.run_in)
    if own is not None:
        values["run_at"] = min(row.run_at, own) if write.earliest else own
    return row._replace(**values, revision=row.revision + 1, updated_at=now)


def decide(row: Job | None, event: Event, policy: Policy, *, now: datetime | None = None) -> Decision:
    """What ``event`` does to ``row`` (None: there is no such row).

    ``now`` is wanted by Wake and Claim alone, which the stores decide in SQL; every other event leaves time to the
    statement that writes. Raises nothing for any row that the schema allows.
    """
    if isinstance(event, Wake):
        assert now is not None, "a wake is decided where the time is known"
        return _wake(row, event, now)
    if row is None:
        return Decision(Answer.GONE, None)
    if isinstance(event, Claim):
        assert now is not None, "a claim is decided where the time is known"
        return _claim(row, event, now)
    return _RULES[type(event)](row, event, policy)


# --- wake and claim: proven equal to the statements of each store -----------------------------------------------------


def _wake(row: Job | None, wake: Wake, now: datetime) -> Decision:
    run_at = clock.later(wake.run_at or now, wake.delay)
    if row is None:
        return Decision(Answer.APPLIED, State.QUEUED, Write(_born(wake, run_at, now)))
    if wake.once:
        return Decision(Answer.REPEATED, row.state)
    values: dict[str, Any] = {
        "generation": row.generation + 1,
        "payload": wake.payload,
        "priority": min(row.priority, wake.priority),
        "owner": wake.owner if row.owner is None else row.owner,
        "max_retries": wake.max_retries,
        "request_id": wake.request_id,
        "trace": wake.trace,
    }
    if row.state == State.QUARANTINED:
        return Decision(Answer.APPLIED, State.QUARANTINED, Write(values))
    values["cancel_requested_at"] = None  # of a cancel and a wake the later word wins
    if row.state in TERMINAL:
        values |= _CLEAN | {"state": State.QUEUED.value, "finished_at": None, "priority": wake.priority}
        values["result"] = None
        return Decision(Answer.APPLIED, State.QUEUED, Write(values, run_at=run_at, earliest=False))
    return Decision(Answer.APPLIED, row.state, Write(values, run_at=run_at))


def _born(wake: Wake, run_at: datetime, now: datetime) -> dict[str, Any]:
    born = dict.fromkeys(Job._fields)
    born |= {name: getattr(wake, name) for name in wake._fields if name in born}
    born |= {"run_at": run_at, "generation": clock.micros(now), "revision": 1, "state": State.QUEUED.value}
    born |= {"retries": 0, "failure_streak": 0, "attempt": 0, "stopping": False, "created_at": now, "updated_at": now}
    return born


def _claim(row: Job, claim: Claim, now: datetime) -> Decision:
    if row.state == State.PROCESSING and row.lease_id == claim.lease_id:
        return Decision(Answer.REPEATED, row.state)
    spent = claim.lease_id in (row.ended_lease, row.finish_token)
    if row.state != State.QUEUED or row.run_at > now or spent:
        return Decision(Answer.REFUSED, row.state)
    values = {
        "state": State.PROCESSING.value,
        "due_at": row.run_at,
        "lease_id": claim.lease_id,
        "attempt": row.attempt + 1,
        "leased_until": clock.later(now, claim.seconds),
        "worker": claim.worker,
        "stopping": False,
        "started_at": now,
        "progress_percent": None,
        "progress_message": None,
    }
    # What was wanted so far is being served from here on; a wake that comes now is wanted afterwards.
    return Decision(Answer.APPLIED, State.PROCESSING, Write(values, run_at=PARKED, earliest=False))


# --- the ways out of processing ---------------------------------------------------------------------------------------


def _finish(row: Job, finish: Finish, policy: Policy) -> Decision:
    if row.finish_token == finish.lease_id and row.lease_id != finish.lease_id:
        return Decision(Answer.REPEATED, row.state)
    if not _holds(row, finish.lease_id, finish.attempt) or finish.generation < clock.micros(row.created_at):
        return Decision(Answer.STALE, row.state)
    newer = row.generation != finish.generation
    token: dict[str, Any] = {"finish_token": finish.lease_id}
    if finish.progress is not None and finish.progress[0] >= (row.progress_percent or 0):
        token |= {"progress_percent": finish.progress[0], "progress_message": finish.progress[1]}
    counted = (Entry("counted", row.attempt, None, dict(finish.counts)),) if finish.counts else ()
    if finish.kind is Kind.CANCELLED:
        # Withdrawn by a wake in the meantime: then that wake's run is due.
        state = State.CANCELLED if row.cancel_requested_at is not None or not newer else State.QUEUED
        return _leave(row, state, token, history=(*counted, Entry("cancelled", row.attempt)))
    if finish.kind in (Kind.RETRY, Kind.FAIL):
        return _failed(row, finish.failure, policy, finish.jitter, newer, finish, counted, token)
    values: dict[str, Any] = _CLEAN | token
    recovered = (Entry("recovered", row.attempt),) if row.retries or row.failure_code else ()
    history = (*counted, *recovered)
    if finish.kind is Kind.DONE:
        values["checkpoint"] = values["checkpoint_generation"] = None
        if newer:
            return _leave(row, State.QUEUED, values, history=history)
        if not policy.keep_finished:
            return Decision(Answer.APPLIED, None, Write(delete=True), history)
        values["result"] = finish.result
        return _leave(row, State.COMPLETED, values, obey_cancel=False, history=history)
    values |= _checkpoint(finish)
    if finish.kind is Kind.PARK:
        return _leave(row, State.QUEUED, values, run_at=PARKED, history=history)
    if finish.run_at is not None:
        return _leave(row, State.QUEUED, values, run_at=finish.run_at, history=history)
    return _leave(row, State.QUEUED, values, run_in=finish.delay, history=history)


def _release(row: Job, release: Release, policy: Policy) -> Decision:
    if not _holds(row, release.lease_id, release.attempt):
        return Decision(Answer.STALE, row.state)
    return _leave(row, State.QUEUED, {"finish_token": None}, run_in=0)


def _give_back(row: Job, back: GiveBack, policy: Policy) -> Decision:
    if not _holds(row, back.lease_id, back.attempt):
        return Decision(Answer.STALE, row.state)
    # Told once in a row: a type that nobody here knows comes back again and again, and must not push out what matters.
    line = f"given back: {back.code}"
    note = () if row.last_error == line else (Entry("given_back", row.attempt, back.code, {"delay": back.delay}),)
    return _leave(row, State.QUEUED, {"finish_token": None, "last_error": line}, run_in=back.delay, history=note)


def _reclaim(row: Job, reclaim: Reclaim, policy: Policy) -> Decision:
    if row.state != State.PROCESSING or row.lease_id != reclaim.lease_id:
        return Decision(Answer.STALE, row.state)
    if row.stopping:
        note = Entry("reclaimed", row.attempt)
        decision = _leave(row, State.QUEUED, {"finish_token": None}, run_in=0, history=(note,))
    else:
        # The generation that was claimed is known to its worker alone. A wake shows in run_at, which the claim put to
        # PARKED; one that asks for no time wants no run beyond this one.
        newer = row.run_at != PARKED
        decision = _failed(row, Failure.of_code(WORKER_LOST), policy, reclaim.jitter, newer, None)
    assert decision.write is not None
    return decision._replace(write=decision.write._replace(lapsed=True))


def _failed(
    row: Job,
    failure: Failure | None,
    policy: Policy,
    jitter: float,
    newer: bool,
    finish: Finish | None,
    counted: tuple[Entry, ...] = (),
    token: Mapping[str, Any] = MappingProxyType({}),
    *,
    for_good: bool = False,
) -> Decision:
    failure = failure or Failure.of_code("unknown")
    retries = row.retries + 1
    streak = row.failure_streak + 1 if row.failure_code == failure.code else 1
    exhausted = row.max_retries is not None and retries > row.max_retries
    at_once = for_good or (finish is not None and finish.kind is Kind.FAIL)
    poisoned = (policy.quarantine_after is not None and streak >= policy.quarantine_after) or (
        failure.code == WORKER_LOST and streak >= POISON_AFTER
    )
    state = State.FAILED if (exhausted or at_once) and not newer else State.QUEUED
    if state is State.QUEUED and poisoned:
        state = State.QUARANTINED
    # Failed for good, but woken meanwhile: nothing but that wake is wanted, at its own time.
    delay = None if exhausted or at_once else policy.backoff(retries, jitter)
    ends = State.CANCELLED if row.cancel_requested_at is not None else state
    values: dict[str, Any] = {
        "retries": retries,
        "last_error": failure.line,
        "failure": failure.json,
        "failure_code": failure.code,
        "failure_streak": streak,
    }
    values |= {"finish_token": None} if finish is None else {**token, **_checkpoint(finish)}
    detail: dict[str, object] = {"class": failure.kind, "place": failure.place, "state": ends.value}
    if ends is State.QUEUED and delay is not None:
        detail["delay"] = round(delay, 3)
    asked = finish is not None and finish.asked
    entry = Entry("retry_asked" if asked else "attempt_failed", row.attempt, failure.code, detail)
    return _leave(row, state, values, run_in=delay, history=(*counted, entry))


def _leave(
    row: Job,
    state: State,
    values: dict[str, Any],
    *,
    run_in: float | None = None,
    run_at: datetime | None = None,
    obey_cancel: bool = True,
    history: tuple[Entry, ...] = (),
) -> Decision:
    """The one way out of ``processing``: a standing cancel is obeyed, the lease is over, the earlier run_at wins."""
    if obey_cancel and row.cancel_requested_at is not None and state is not State.CANCELLED:
        state = State.CANCELLED
        history = (*history, Entry("cancelled", row.attempt))
    values = {**_FREE, **values, "state": state.value, "ended_lease": row.lease_id}
    if state is State.QUEUED:
        write = Write(values, (), run_in, run_at)
    else:
        stamps = ("held_at",) if state is State.QUARANTINED else ("finished_at",)
        write = Write(values, stamps, run_at=PARKED, earliest=False)
    return Decision(Answer.APPLIED, state, write, history)


def _holds(row: Job, lease_id: str, attempt: int) -> bool:
    return row.state == State.PROCESSING and row.lease_id == lease_id and row.attempt == attempt


def _checkpoint(finish: Finish) -> dict[str, Any]:
    if not finish.sets_checkpoint:
        return {}
    generation = finish.generation if finish.checkpoint is not None else None
    return {"checkpoint": finish.checkpoint, "checkpoint_generation": generation}


# --- what an operator asks for ----------------------------------------------------------------------------------------


def _cancel(row: Job, _: Cancel, policy: Policy) -> Decision:
    if row.state == State.QUEUED:
        write = Write({"state": State.CANCELLED.value}, ("finished_at",), run_at=PARKED, earliest=False)
        return Decision(Answer.APPLIED, State.CANCELLED, write, (Entry("cancelled", row.attempt),))
    if row.state != State.PROCESSING:
        return Decision(Answer.REFUSED, row.state)
    return _ask_to_stop(row, None)


def _ask_to_stop(row: Job, code: str | None) -> Decision:
    if row.cancel_requested_at is not None:
        return Decision(Answer.REPEATED, row.state)
    entry = Entry("cancel_requested", row.attempt, code)
    return Decision(Answer.APPLIED, row.state, Write({}, ("cancel_requested_at",)), (entry,))


def _requeue(row: Job, _: Requeue, policy: Policy) -> Decision:
    if row.state not in TERMINAL - {State.COMPLETED} | {State.QUARANTINED}:
        return Decision(Answer.REFUSED, row.state)
    values = _CLEAN | {"state": State.QUEUED.value, "generation": row.generation + 1}
    values |= {"finished_at": None, "held_at": None, "cancel_requested_at": None, "result": None}
    write = Write(values, run_in=0, earliest=False)
    return Decision(Answer.APPLIED, State.QUEUED, write, (Entry("requeued", row.attempt),))


def _reschedule(row: Job, event: Reschedule, policy: Policy) -> Decision:
    if row.state != State.QUEUED:
        return Decision(Answer.REFUSED, row.state)
    write = Write({"generation": row.generation + 1}, run_in=event.delay, run_at=event.run_at, earliest=False)
    return Decision(Answer.APPLIED, State.QUEUED, write, (Entry("rescheduled", row.attempt),))


def _prune(row: Job, prune: Prune, policy: Policy) -> Decision:
    if row.state not in TERMINAL | {State.QUARANTINED}:
        return Decision(Answer.REFUSED, row.state)
    if row.generation != prune.generation:
        return Decision(Answer.STALE, row.state)
    return Decision(Answer.APPLIED, None, Write(delete=True))


def _expire(row: Job, expire: Expire, policy: Policy) -> Decision:
    runs = expire.lease_id is not None
    if row.state != (State.PROCESSING if runs else State.QUEUED) or (not runs and row.run_at == PARKED):
        return Decision(Answer.REFUSED, row.state)
    moved_on = not runs and row.generation != expire.generation
    if moved_on or (row.lease_id, row.attempt) != (expire.lease_id, expire.attempt):
        return Decision(Answer.STALE, row.state)
    if runs and not expire.fail:
        return _ask_to_stop(row, expire.code)
    failure = Failure.of_code(expire.code)
    if runs:
        # The lease ends here: whatever that run still sends is stale. A wake since shows in run_at, as in a reclaim.
        return _failed(row, failure, policy, 0.5, row.run_at != PARKED, None, for_good=True)
    state = State.FAILED if expire.fail else State.CANCELLED
    line = {"last_error": failure.line, "failure": failure.json, "failure_code": failure.code, "failure_streak": 1}
    values = {"state": state.value} | (line if expire.fail else {})
    write = Write(values, ("finished_at",), run_at=PARKED, earliest=False)
    return Decision(Answer.APPLIED, state, write, (Entry("expired", row.attempt, failure.code),))


_RULES: dict[type, Callable[[Job, Any, Policy], Decision]] = {
    Finish: _finish,
    Release: _release,
    GiveBack: _give_back,
    Reclaim: _reclaim,
    Cancel: _cancel,
    Requeue: _requeue,
    Reschedule: _reschedule,
    Prune: _prune,
    Expire: _expire,
}
