"""Judges a ledger against the rows that are left. Knows nothing of how the system works."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

Fact = Mapping[str, Any]

#: States in which a wake that was not served waits visibly for an operator, or was called off by one.
HELD = frozenset({"cancelled", "quarantined", "failed"})


#: Its rows are deleted and made again, and their attempts counted anew.
FLEETING = "fleeting"


class Report(NamedTuple):
    """Figures of one run; ``lost``, ``ghosts``, ``doubled``, ``effects_wrong`` and ``stuck`` must be empty."""

    committed: int
    unknown: int
    rolled_back: int
    runs: int
    repeated: dict[str, int]  # runs more than once, by the fault before
    stale_refused: int
    effects: int  # runs that ended together with their effect
    ticks: int  # of the recurring job
    held: int
    faults: dict[str, int]
    slots_moved: int  # of a cluster, each with the keys in it
    recovery: dict[str, float]  # longest seconds from the end of a fault to the end of a run that began after it
    lost: list[tuple[str, int]]  # committed, never followed by a run; ticks between others that never ran
    ghosts: list[tuple[str, int]]  # rolled back, and run
    doubled: list[tuple[str, int]]  # one attempt that began twice
    effects_wrong: list[tuple[str, int]]  # jobs with no effect, or with more than one
    stuck: list[str]  # rows that did not come to rest

    @property
    def sound(self) -> bool:
        """Whether everything held."""
        return not (self.lost or self.ghosts or self.doubled or self.effects_wrong or self.stuck)


def audit(facts: Sequence[Fact], states: Mapping[str, str], stuck: Sequence[str], *, stale: int) -> Report:
    """``states`` of every row that is left, by id; ``stuck`` are those not at rest; ``stale`` finishes were refused."""
    wakes: dict[str, list[tuple[str, int]]] = {"committed": [], "unknown": [], "rolledback": []}
    for fact in facts:
        if fact["kind"] in wakes:
            wakes[fact["kind"]] += zip(fact["ids"], fact["numbers"], strict=True)
    every = [fact for fact in facts if fact["kind"] == "begin"]
    ticks = {fact["number"] for fact in every if fact["type"] == "recurring" and fact["number"] >= 0}
    begins = [fact for fact in every if fact["type"] != "recurring"]
    ends = [fact for fact in facts if fact["kind"] == "end" and fact["type"] not in (FLEETING, "recurring")]
    newest: dict[str, int] = {}
    for fact in begins:
        newest[fact["id"]] = max(newest.get(fact["id"], 0), fact["number"])
    cancelled = {id_ for fact in facts if fact["kind"] == "cancel" for id_ in fact["ids"]}
    unserved = {one for one in wakes["committed"] if newest.get(one[0], 0) < one[1]}
    held = {one for one in unserved if states.get(one[0]) in HELD and one[0] in cancelled}
    missed = {("tick", tick) for tick in range(min(ticks, default=0), max(ticks, default=0)) if tick not in ticks}
    ran = {(fact["id"], fact["number"]) for fact in begins}
    attempts = Counter((fact["id"], fact["attempt"]) for fact in begins if fact["type"] != FLEETING)
    effects, wrong = _effects(begins, states)
    return Report(
        committed=len(wakes["committed"]),
        unknown=len(wakes["unknown"]),
        rolled_back=len(wakes["rolledback"]),
        runs=len(every),
        repeated=_repeated(facts, [fact for fact in begins if fact["type"] != FLEETING], ends),
        stale_refused=stale,
        effects=effects,
        ticks=len(ticks),
        held=len(held),
        faults=dict(Counter(fact["name"] for fact in facts if fact["kind"] == "fault")),
        slots_moved=sum(fact["kind"] == "slot_moved" for fact in facts),
        recovery=_recovery(facts, ends, {(fact["id"], fact["attempt"]): fact["at"] for fact in begins}),
        lost=sorted((unserved - held) | missed),
        ghosts=sorted(set(wakes["rolledback"]) & ran),
        doubled=sorted(one for one, times in attempts.items() if times > 1),
        effects_wrong=wrong,
        stuck=sorted(stuck),
    )


def _effects(begins: Sequence[Fact], states: Mapping[str, str]) -> tuple[int, list[tuple[str, int]]]:
    """How many jobs completed together with their effect, and those that have not exactly one."""
    children: dict[str, set[str]] = {}
    for fact in begins:
        if fact["type"] == "child":
            children.setdefault(fact["parent"], set()).add(fact["id"])
    parents = {fact["id"] for fact in begins if fact["type"] == "effect"} | set(children)
    wanted = {id_: int(states.get(id_) == "completed") for id_ in parents}
    wrong = [(id_, len(children.get(id_, ()))) for id_ in parents if len(children.get(id_, ())) != wanted[id_]]
    return sum(wanted.values()), sorted(wrong)


def _repeated(facts: Sequence[Fact], begins: Sequence[Fact], ends: Sequence[Fact]) -> dict[str, int]:
    """Runs that follow one with the same payload that had not asked for another."""
    asked = {(fact["id"], fact["attempt"]) for fact in ends if fact["outcome"] in ("Again", "Retry")}
    faults = [fact for fact in facts if fact["kind"] == "fault"]
    seen: dict[tuple[str, int], int] = {}
    counted: Counter[str] = Counter()
    for fact in sorted(begins, key=lambda fact: (fact["at"], fact["attempt"])):
        intent = fact["id"], fact["number"]
        if intent in seen and (fact["id"], seen[intent]) not in asked:
            before = [fault["name"] for fault in faults if fault["at"] <= fact["at"]]
            counted[before[-1] if before else "no fault"] += 1
        seen[intent] = fact["attempt"]
    return dict(counted)


def _recovery(facts: Sequence[Fact], ends: Sequence[Fact], began: Mapping[tuple[str, int], float]) -> dict[str, float]:
    longest: dict[str, float] = {}
    for fault in facts:
        if fault["kind"] != "mended":
            continue
        after = [end["at"] for end in ends if began.get((end["id"], end["attempt"]), 0) > fault["at"]]
        if after:
            took = min(after) - fault["at"]
            longest[fault["name"]] = round(max(took, longest.get(fault["name"], 0)), 2)
    return longest
