"""The state table as data, and rows and events for each of its cells."""

from __future__ import annotations

from typing import Any

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
)
from store.job import Job, State
from store.policy import POISON_AFTER, WORKER_LOST, Policy
from store.transitions import Answer
from tests.contract.rows import LEASE, OTHER_LEASE, SPENT_LEASE, TYPE, later, row, wake

POLICY = Policy(TYPE)
KEEPS_NONE = Policy(TYPE, keep_finished=False)
QUARANTINES = Policy(TYPE, quarantine_after=3)

MARKS = {
    "+": Answer.APPLIED,
    "=": Answer.REPEATED,
    "~": Answer.STALE,
    "-": Answer.REFUSED,
    "0": Answer.GONE,
}

# What each event does to a row in each state: the answer's mark and the state afterwards. Fenced events carry the lease
# that the row has or had last. "told" is a finish that the row remembers, "other" comes from another lease, "late" from
# another attempt. "again" of a claim is the same claim once more, "spent" a claim by a lease that has ended.
TABLE = """
                none     queued       processing    completed   failed   cancelled   quarantined
wake            +queued  +queued      +processing   +queued     +queued  +queued     +quarantined
wake-once       +queued  =queued      =processing   =completed  =failed  =cancelled  =quarantined
claim           0        +processing  -processing   -completed  -failed  -cancelled  -quarantined
claim-early     0        -queued      -processing   -completed  -failed  -cancelled  -quarantined
claim-again     0        -queued      =processing   -completed  -failed  -cancelled  -quarantined
claim-spent     0        -queued      -processing   -completed  -failed  -cancelled  -quarantined
done            0        ~queued      +completed    ~completed  ~failed  ~cancelled  ~quarantined
again           0        ~queued      +queued       ~completed  ~failed  ~cancelled  ~quarantined
retry           0        ~queued      +queued       ~completed  ~failed  ~cancelled  ~quarantined
park            0        ~queued      +queued       ~completed  ~failed  ~cancelled  ~quarantined
fail            0        ~queued      +failed       ~completed  ~failed  ~cancelled  ~quarantined
cancelled       0        ~queued      +cancelled    ~completed  ~failed  ~cancelled  ~quarantined
done-told       0        =queued      =processing   =completed  =failed  =cancelled  =quarantined
done-other      0        ~queued      ~processing   ~completed  ~failed  ~cancelled  ~quarantined
done-late       0        ~queued      ~processing   ~completed  ~failed  ~cancelled  ~quarantined
release         0        ~queued      +queued       ~completed  ~failed  ~cancelled  ~quarantined
release-other   0        ~queued      ~processing   ~completed  ~failed  ~cancelled  ~quarantined
release-late    0        ~queued      ~processing   ~completed  ~failed  ~cancelled  ~quarantined
give-back       0        ~queued      +queued       ~completed  ~failed  ~cancelled  ~quarantined
give-back-other 0        ~queued      ~processing   ~completed  ~failed  ~cancelled  ~quarantined
give-back-late  0        ~queued      ~processing   ~completed  ~failed  ~cancelled  ~quarantined
reclaim         0        ~queued      +queued       ~completed  ~failed  ~cancelled  ~quarantined
reclaim-other   0        ~queued      ~processing   ~completed  ~failed  ~cancelled  ~quarantined
cancel          0        +cancelled   +processing   -completed  -failed  -cancelled  -quarantined
requeue         0        -queued      -processing   -completed  +queued  +queued     +queued
reschedule      0        +queued      -processing   -completed  -failed  -cancelled  -quarantined
prune           0        -queued      -processing   +           +        +           +
prune-late      0        -queued      -processing   ~completed  ~failed  ~cancelled  ~quarantined
age             0        +cancelled   -processing   -completed  -failed  -cancelled  -quarantined
age-parked      0        -queued      -processing   -completed  -failed  -cancelled  -quarantined
age-fail        0        +failed      -processing   -completed  -failed  -cancelled  -quarantined
age-late        0        ~queued      -processing   -completed  -failed  -cancelled  -quarantined
runtime         0        -queued      +processing   -completed  -failed  -cancelled  -quarantined
runtime-fail    0        -queued      +failed       -completed  -failed  -cancelled  -quarantined
runtime-late    0        -queued      ~processing   -completed  -failed  -cancelled  -quarantined
runtime-other   0        -queued      ~processing   -completed  -failed  -cancelled  -quarantined
"""


def fenced(lease: str, attempt: int) -> dict[str, Event]:
    """What may come from the holder of a lease."""
    generation = row().generation
    return {
        **{
            kind.value: Finish(lease, attempt, generation, kind, failure=Failure.of_code("broken"))
            for kind in (Kind.DONE, Kind.AGAIN, Kind.RETRY, Kind.PARK, Kind.FAIL, Kind.CANCELLED)
        },
        "release": Release(lease, attempt),
        "give-back": GiveBack(lease, attempt, 30.0, "type_unknown"),
        "reclaim": Reclaim(lease),
    }


ATTEMPT = row().attempt
GENERATION = row().generation
ID = row().id
EVENTS: dict[str, Event] = {
    "wake": wake(),
    "wake-once": wake(once=True),
    "claim": Claim(ID, OTHER_LEASE, "worker", 60),
    "claim-early": Claim(ID, OTHER_LEASE, "worker", 60),
    "claim-again": Claim(ID, LEASE, "worker", 60),
    "claim-spent": Claim(ID, SPENT_LEASE, "worker", 60),
    "done-told": Finish(SPENT_LEASE, ATTEMPT, row().generation, Kind.DONE),
    **fenced(LEASE, ATTEMPT),
    **{f"{name}-other": event for name, event in fenced(OTHER_LEASE, ATTEMPT).items()},
    **{f"{name}-late": event for name, event in fenced(LEASE, ATTEMPT - 1).items()},
    "cancel": Cancel(),
    "requeue": Requeue(),
    "reschedule": Reschedule(delay=30.0),
    "prune": Prune(GENERATION),
    "prune-late": Prune(GENERATION - 1),
    "age": Expire(GENERATION, ATTEMPT, None),
    "age-parked": Expire(GENERATION, ATTEMPT, None),
    "age-fail": Expire(GENERATION, ATTEMPT, None, fail=True),
    "age-late": Expire(GENERATION - 1, ATTEMPT, None, fail=True),
    "runtime": Expire(GENERATION, ATTEMPT, LEASE),
    "runtime-fail": Expire(GENERATION, ATTEMPT, LEASE, fail=True),
    "runtime-late": Expire(GENERATION, ATTEMPT - 1, LEASE, fail=True),
    "runtime-other": Expire(GENERATION, ATTEMPT, OTHER_LEASE, fail=True),
}


def cells() -> list[tuple[str, str, str]]:
    """The table's event, state and cell."""
    head, *lines = [line.split() for line in TABLE.strip().splitlines()]
    return [(event, state, cell) for event, *cells in lines for state, cell in zip(head, cells, strict=True)]


def standing(state: str, event: str) -> Job | None:
    """The row that ``event`` meets in ``state``."""
    if state == "none":
        return None
    changes: dict[str, Any] = {}
    if state != State.PROCESSING:
        changes["ended_lease"] = LEASE
    if event in ("claim-spent", "done-told"):
        changes |= {"ended_lease": SPENT_LEASE, "finish_token": SPENT_LEASE}
    if event == "claim-early" and state == State.QUEUED:
        changes["run_at"] = later(0.000001)
    if event == "age-parked" and state == State.QUEUED:
        changes["run_at"] = PARKED
    return row(state, **changes)


# Where a row goes from ``processing`` by the holder's word, or by a reclaim: plainly, when a wake came meanwhile, when
# a cancel stands, and both (the cancel came last, else the wake would have withdrawn it).
WAYS_OUT = """
                    plain        woken        cancelled  both
done                completed    queued       completed  cancelled
done-keeps-none     none         queued       none       cancelled
again               queued       queued       cancelled  cancelled
park                queued       queued       cancelled  cancelled
retry               queued       queued       cancelled  cancelled
retry-exhausted     failed       queued       cancelled  cancelled
retry-poisoned      quarantined  quarantined  cancelled  cancelled
fail                failed       queued       cancelled  cancelled
fail-poisoned       failed       quarantined  cancelled  cancelled
cancelled           cancelled    queued       cancelled  cancelled
release             queued       queued       cancelled  cancelled
give-back           queued       queued       cancelled  cancelled
reclaim             queued       queued       cancelled  cancelled
reclaim-stopping    queued       queued       cancelled  cancelled
reclaim-exhausted   failed       queued       cancelled  cancelled
reclaim-poisoned    quarantined  quarantined  cancelled  cancelled
runtime-fail        failed       queued       cancelled  cancelled
"""


def ways() -> list[tuple[str, str, str]]:
    """The way out, what came meanwhile, and the state that it leads to."""
    head, *lines = [line.split() for line in WAYS_OUT.strip().splitlines()]
    return [(way, when, cell) for way, *cells in lines for when, cell in zip(head, cells, strict=True)]


def leaving(way: str, when: str = "plain", **changes: Any) -> tuple[Job, Event, Policy]:
    """A row in ``processing``, the event that ends that, and the type's policy."""
    name, _, variant = way.replace("give-back", "give_back").partition("-")
    values: dict[str, Any] = {}
    if variant == "exhausted":
        values |= {"max_retries": 2, "retries": 2, "failure_code": "other", "failure_streak": 1}
    if variant == "poisoned":
        code, streak = (WORKER_LOST, POISON_AFTER - 1) if name == "reclaim" else ("broken", 2)
        values |= {"retries": 5, "failure_code": code, "failure_streak": streak}
    if variant == "stopping":
        values["stopping"] = True
    if when in ("woken", "both"):
        values |= {"generation": row().generation + 1, "run_at": later(120)}
    if when in ("cancelled", "both"):
        values["cancel_requested_at"] = later(-1)
    policy = {"keeps-none": KEEPS_NONE, "poisoned": QUARANTINES}.get(variant, POLICY)
    event = EVENTS.get(way) or EVENTS[name.replace("_", "-")]
    return row("processing", **(values | changes)), event, policy


#: For each way back to ``queued``: seconds from now at which the run that ended would itself run again.
OWN_TIME = {
    "again": 0.0,
    "retry": 5.0,
    "park": None,
    "release": 0.0,
    "give-back": 30.0,
    "reclaim": 5.0,
    "reclaim-stopping": 0.0,
}


#: What a row says after two failed attempts.
FAILING: dict[str, Any] = {
    "retries": 2,
    "failure_code": "broken",
    "failure_streak": 2,
    "failure": '{"code":"broken"}',
    "last_error": "attempt failed: broken",
}
