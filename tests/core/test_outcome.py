"""What a handler may answer."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from store.errors import UsageError
from store.outcome import MAX_DELAY, UNSET, Again, Done, Fail, Park, Retry

NOON = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)


def test_a_checkpoint_that_is_left_out_is_told_from_one_that_is_none() -> None:
    assert Again().checkpoint is UNSET
    assert Retry("code").checkpoint is UNSET
    assert Park().checkpoint is UNSET
    assert Again(checkpoint=None).checkpoint is None
    assert Park(None).checkpoint is None


def test_again_adds_its_parts_up() -> None:
    assert Again(days=1, hours=2, minutes=3, seconds=4.5).delay == 86_400 + 7200 + 180 + 4.5
    assert Again().delay == 0
    assert Again().at is None


def test_again_takes_a_moment_in_any_zone() -> None:
    assert Again(at=NOON).at == NOON


@pytest.mark.parametrize(
    "asked",
    [
        {"seconds": -1},
        {"seconds": -0.001},
        {"hours": 1, "minutes": -61},
        {"seconds": MAX_DELAY + 1},
        {"days": 1e9},
        {"days": 1e300},
        {"seconds": float("nan")},
        {"seconds": float("inf")},
        {"seconds": "5"},
        {"seconds": None},
        {"at": NOON.replace(tzinfo=None)},
        {"at": "2026-05-04"},
        {"at": NOON.timestamp()},
        {"at": NOON, "seconds": 1},
        {"at": NOON.date()},
        {"at": timedelta(seconds=5)},
    ],
    ids=repr,
)
def test_again_refuses_what_is_no_time(asked: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="Again"):
        Again(**asked)


def test_a_hundred_years_are_allowed() -> None:
    assert Again(seconds=MAX_DELAY).delay == MAX_DELAY


@pytest.mark.parametrize("outcome", [Retry, Fail])
@pytest.mark.parametrize("code", ["", "with space", "7up", "x" * 65, None, "line\n", "https://user:word@host/"])
def test_a_failure_needs_a_stable_code(outcome: type[Retry] | type[Fail], code: Any) -> None:
    with pytest.raises(UsageError, match="a code is a letter"):
        outcome(code)


def test_outcomes_are_values() -> None:
    assert Done() == Done(None)
    assert Done(1) != Done(2)
    assert Again(seconds=60) == Again(minutes=1)
    assert Fail("x") == Fail("x")
    with pytest.raises(AttributeError):
        Done().result = 5  # type: ignore[misc]
