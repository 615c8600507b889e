"""Moments: exact microseconds, and no overflow."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store import clock
from store.clock import EPOCH, PARKED

NOON = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)


@given(st.datetimes(timezones=st.just(UTC)))
def test_microseconds_say_every_moment_exactly(moment: datetime) -> None:
    assert clock.from_micros(clock.micros(moment)) == moment


def test_microseconds_do_not_depend_on_the_zone() -> None:
    assert clock.micros(NOON.astimezone(timezone(timedelta(hours=9)))) == clock.micros(NOON)
    assert clock.micros(EPOCH) == 0


@pytest.mark.parametrize("seconds", [1e12, 1e300, float("inf")])
def test_what_lies_beyond_the_calendar_is_parked(seconds: float) -> None:
    assert clock.later(NOON, seconds) == PARKED


def test_parked_stays_parked() -> None:
    assert clock.later(PARKED, 0.000001) == PARKED
    assert PARKED.tzinfo is UTC


def test_what_a_process_measures_never_goes_back() -> None:
    readings = [clock.elapsed() for _ in range(1000)]

    assert readings == sorted(readings)
    assert clock.wall().tzinfo is UTC
