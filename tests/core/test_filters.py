"""A filter that narrows nothing down is told from one that does."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from store.filters import Filter

NARROWING: dict[str, Any] = {
    "ids": ["x"],
    "domain": "d",
    "queue": "q",
    "job_type": "t",
    "key": "k",
    "owner": "o",
    "states": ("queued",),
    "phase": "ready",
    "lapsed": False,
    "failure_code": "broken",
    "lease_id": "11111111-1111-4111-8111-111111111111",
    "created_before": datetime(2026, 1, 1, tzinfo=UTC),
    "run_before": datetime(2026, 1, 1, tzinfo=UTC),
    "finished_before": datetime(2026, 1, 1, tzinfo=UTC),
    "waiting_over": 60.0,
    "running_over": 60.0,
    "lapsed_over": 60.0,
    "ended_over": 60.0,
}


def test_every_field_is_known_here() -> None:
    assert {*NARROWING, "after_id"} == set(Filter._fields)


@pytest.mark.parametrize("field", NARROWING)
def test_each_field_narrows(field: str) -> None:
    assert Filter(**{field: NARROWING[field]}).narrows()


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"after_id": "x"},
        {"ids": []},
        {"states": ()},
        {"ids": (), "after_id": "x"},
        {"domain": ""},
        {"owner": " "},
        {"ids": [""]},
        {"states": (), "domain": "d"},
        {"queue": "", "ended_over": 60.0},
    ],
)
def test_an_empty_scope_narrows_nothing(fields: dict[str, Any]) -> None:
    assert not Filter(**fields).narrows()
