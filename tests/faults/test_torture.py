"""A short torture with a fixed seed on each store; ``make torture`` is the long one."""

from __future__ import annotations

from pathlib import Path

import pytest

from ops.torture.auditor import audit
from ops.torture.run import torture


@pytest.mark.parametrize("store", ["sqlite", "postgres", "surreal"])
def test_under_one_fault_after_the_other_nothing_is_lost_and_nothing_is_stuck(store: str, fresh_home: Path) -> None:
    report, _ = torture(store, fresh_home, seconds=20, seed=7, pace=0.1, rest=60)
    assert report.committed > 20
    assert report.runs > 20
    assert (report.lost, report.ghosts, report.doubled, report.stuck) == ([], [], [], [])


def test_the_auditor_sees_what_is_lost_ghostly_doubled_and_stuck() -> None:
    begin = {"kind": "begin", "at": 2.0, "attempt": 1}
    facts = [
        {"kind": "committed", "at": 1.0, "ids": ["a", "b"], "numbers": [1, 2]},
        {"kind": "rolledback", "at": 1.0, "ids": ["c"], "numbers": [3]},
        {**begin, "id": "a", "number": 1},
        {**begin, "id": "a", "number": 1},
        {**begin, "id": "c", "number": 3},
    ]
    report = audit(facts, {"b": "cancelled"}, ["d"])
    assert (report.lost, report.ghosts, report.doubled, report.stuck) == ([("b", 2)], [("c", 3)], [("a", 1)], ["d"])
    assert not report.sound
    assert audit([*facts[:1], {"kind": "cancel", "ids": ["b"]}], {"b": "cancelled"}, []).lost == [("a", 1)]
