from __future__ import annotations

from datetime import UTC, datetime

import pytest

from ops.cli.when import moment_of, seconds_of
from store.errors import UsageError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("10s", 10), ("5m", 300), ("2h", 7200), ("1d", 86_400), ("1.5h", 5400), (" 3 m ", 180), ("0s", 0)],
)
def test_a_length_of_time_is_a_number_and_a_unit(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "10", "s", "-5m", "5 minutes", "1e3s", "inf", "nan", "5m3", "9" * 5000 + "s", "99999999d"]
)
def test_what_is_no_length_of_time_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--in"):
        seconds_of(text)


@pytest.mark.parametrize(
    "text",
    [
        "2026-12-01T08:00Z",
        "2026-12-01T09:00+01:00",
        "2026-12-01 09:00:00+01:00",
        "2026-12-01 09:00 Europe/Berlin",
        "2026-12-01T09:00:00 Europe/Berlin",
        "2026-12-01 08:00 UTC",
        "  2026-12-01 03:00 America/New_York ",
    ],
)
def test_a_moment_has_an_offset_or_a_zone(text: str) -> None:
    assert moment_of(text) == datetime(2026, 12, 1, 8, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("2026-12-01 09:00", "no time zone"),
        ("2026-12-01T09:00:00", "no time zone"),
        ("2026-12-01 09:00 Mars/Base", "not known"),
        ("2026-12-01 09:00 Europe", "not known"),
        ("2026-12-01 09:00 Etc/../UTC", "no time|not known"),
        ("2026-12-01 09:00+01:00 Europe/Berlin", "leave one"),
        ("2026-13-01 09:00 Europe/Berlin", "no time"),
        ("tomorrow", "no time"),
        ("infinity", "no time"),
        ("", "no time"),
        ("0001-01-01T00:00+01:00", "years"),
        ("9999-12-31T23:59:59.999999Z", "years"),
    ],
)
def test_what_is_no_moment_is_refused(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        moment_of(text)


def test_a_time_that_clocks_skip_is_refused() -> None:
    with pytest.raises(UsageError, match="skip"):
        moment_of("2026-03-29 02:30 Europe/Berlin")


def test_a_time_that_clocks_show_twice_is_the_first_of_the_two() -> None:
    assert moment_of("2026-10-25 02:30 Europe/Berlin") == datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
