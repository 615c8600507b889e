"""When schedules are due."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import pairwise
from zoneinfo import ZoneInfo

import pendulum
import periodiq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from scheduler.ticks import CatchUp, Cron, cron, missed, next_tick, parse, ticks
from store.errors import UsageError
from tests.scheduler.expressions import SCHEDULES

NEW_YORK = ZoneInfo("America/New_York")  # 8 March 2026: 02:00 -> 03:00; 1 November 2026: 02:00 -> 01:00
LORD_HOWE = ZoneInfo(
    "Australia/Lord_Howe"
)  # half an hour: 5 April 2026: 02:00 -> 01:30; 4 October 2026: 02:00 -> 02:30
HAVANA = ZoneInfo("America/Havana")  # 8 March 2026: 00:00 -> 01:00; 1 November 2026: 01:00 -> 00:00
ST_JOHNS = ZoneInfo("America/St_Johns")  # 7 November 2010: 00:01 -> 23:01 of the day before
TORONTO = ZoneInfo("America/Toronto")  # 30 March 1919: 23:30 -> 00:30 of the day after
APIA = ZoneInfo("Pacific/Apia")  # 30 December 2011 did not happen
UTC_ZONE = ZoneInfo("UTC")


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def local(found: list[datetime], zone: ZoneInfo) -> list[str]:
    return [f"{tick.astimezone(zone):%d %H:%M%z}" for tick in found]


def day_of(text: str, zone: ZoneInfo, days: int = 1) -> tuple[datetime, datetime]:
    """The instants just before a local day begins and just before the day after it (or several days after it)."""
    start = datetime.fromisoformat(text).replace(tzinfo=zone)
    end = (start.replace(tzinfo=None) + timedelta(days=days)).replace(tzinfo=zone)
    return start.astimezone(UTC) - timedelta(seconds=1), end.astimezone(UTC) - timedelta(seconds=1)


# -- changing clocks, as the rule is written --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "zone", "day", "expected"),
    [
        # The clocks skip 02:30: it fires at the first moment after the gap.
        ("30 2 * * *", NEW_YORK, "2026-03-08", ["08 03:00-0400"]),
        ("30 1 * * *", NEW_YORK, "2026-03-08", ["08 01:30-0500"]),
        ("0 2,3 * * *", NEW_YORK, "2026-03-08", ["08 03:00-0400"]),
        ("*/20 2 * * *", NEW_YORK, "2026-03-08", ["08 03:00-0400"]),
        ("0 */6 * * *", NEW_YORK, "2026-03-08", ["08 00:00-0500", "08 06:00-0400", "08 12:00-0400", "08 18:00-0400"]),
        # They show 01:30 twice: it fires at the first.
        ("30 1 * * *", NEW_YORK, "2026-11-01", ["01 01:30-0400"]),
        ("30 2 * * *", NEW_YORK, "2026-11-01", ["01 02:30-0500"]),
        ("30 0-2 * * *", NEW_YORK, "2026-11-01", ["01 00:30-0400", "01 01:30-0400", "01 02:30-0500"]),
        # Half an hour, either way.
        ("15 2 * * *", LORD_HOWE, "2026-10-04", ["04 02:30+1100"]),
        ("45 2 * * *", LORD_HOWE, "2026-10-04", ["04 02:45+1100"]),
        ("45 1 * * *", LORD_HOWE, "2026-04-05", ["05 01:45+1100"]),
        ("0 2 * * *", LORD_HOWE, "2026-04-05", ["05 02:00+1030"]),
        # At midnight: the day begins at 01:00, or has two midnights.
        ("@daily", HAVANA, "2026-03-08", ["08 01:00-0400"]),
        ("@daily", HAVANA, "2026-11-01", ["01 00:00-0400"]),
        ("0 0 8 3 *", HAVANA, "2026-03-08", ["08 01:00-0400"]),
        ("30 2 * * *", UTC_ZONE, "2026-03-08", ["08 02:30+0000"]),
    ],
)  # fmt: skip
def test_a_fixed_time_fires_once_a_local_day(text: str, zone: ZoneInfo, day: str, expected: list[str]) -> None:
    assert local(ticks(parse(text), *day_of(day, zone), zone), zone) == expected


@pytest.mark.parametrize("zone", [NEW_YORK, LORD_HOWE, HAVANA, UTC_ZONE])
@pytest.mark.parametrize("text", ["30 2 * * *", "30 1 * * *", "0 0 * * *", "59 23 * * *"])
def test_a_fixed_time_fires_on_every_local_day_of_a_year_once(text: str, zone: ZoneInfo) -> None:
    found = ticks(parse(text), *day_of("2026-01-01", zone, days=365), zone, limit=1000)
    days = [tick.astimezone(zone).date() for tick in found]
    assert len(days) == len(set(days)) == 365


@pytest.mark.parametrize(
    ("text", "minutes"), [("*/15 * * * *", 15), ("* * * * *", 1), ("@hourly", 60), ("7 * * * *", 60)]
)
@pytest.mark.parametrize("day", ["2026-03-08", "2026-11-01"])
@pytest.mark.parametrize("zone", [NEW_YORK, HAVANA, UTC_ZONE])
def test_an_interval_goes_on_in_real_time_through_both_changes(
    text: str, minutes: int, day: str, zone: ZoneInfo
) -> None:
    begin, end = day_of(day, zone)
    found = ticks(parse(text), begin, end, zone, limit=2000)
    assert {later - earlier for earlier, later in pairwise(found)} == {timedelta(minutes=minutes)}
    assert found[0] - begin <= timedelta(minutes=minutes)
    assert end - found[-1] < timedelta(minutes=minutes)


def test_an_interval_keeps_to_the_minutes_of_the_clock_when_it_changes_by_half_an_hour() -> None:
    back, forth = day_of("2026-04-05", LORD_HOWE), day_of("2026-10-04", LORD_HOWE)
    assert local(ticks(parse("30 * * * *"), *back, LORD_HOWE, 4), LORD_HOWE) == [
        "05 00:30+1100",
        "05 01:30+1100",
        "05 01:30+1030",
        "05 02:30+1030",
    ]
    assert local(ticks(parse("45 * * * *"), *forth, LORD_HOWE, 4), LORD_HOWE) == [
        "04 00:45+1030",
        "04 01:45+1030",
        "04 02:45+1100",
        "04 03:45+1100",
    ]
    for day in (back, forth):
        found = ticks(parse("*/15 * * * *"), *day, LORD_HOWE, 1000)
        assert {later - earlier for earlier, later in pairwise(found)} == {timedelta(minutes=15)}


def test_days_that_overlap_and_a_day_that_never_was_keep_the_order_and_fire_once() -> None:
    found = ticks(parse("*/30 * * * *"), *day_of("2010-11-06", ST_JOHNS, days=2), ST_JOHNS, 1000)
    assert len(found) == 98
    assert found == sorted(set(found))
    assert local(ticks(parse("0 0,12 * * *"), *day_of("2011-12-29", APIA, days=3), APIA), APIA) == [
        "29 00:00-1000",
        "29 12:00-1000",
        "31 00:00+1400",
        "31 12:00+1400",
    ]


# -- against an oracle that looks at every minute ---------------------------------------------------------------------

WINDOWS = {
    "utc": (UTC_ZONE, at("2026-02-27"), 3),
    "new york, forward": (NEW_YORK, at("2026-03-07"), 2),
    "new york, back": (NEW_YORK, at("2026-10-31"), 2),
    "lord howe, back": (LORD_HOWE, at("2026-04-04"), 2),
    "lord howe, forward": (LORD_HOWE, at("2026-10-03"), 2),
    "havana, forward": (HAVANA, at("2026-03-07"), 2),
    "havana, back": (HAVANA, at("2026-10-31"), 2),
    "st johns, back": (ST_JOHNS, at("2010-11-06"), 2),
    "toronto, forward": (TORONTO, at("1919-03-30"), 2),
    "apia": (APIA, at("2011-12-29"), 2),
}


@cache
def every_minute(window: str) -> list[tuple[datetime, datetime, list[datetime]]]:
    """Each minute of a window: the instant, what the clock shows, and what it skipped just before."""
    zone, start, days = WINDOWS[window]
    seen = []
    before = (start - timedelta(minutes=1)).astimezone(zone).replace(tzinfo=None)
    for number in range(days * 1440):
        instant = start + timedelta(minutes=number)
        shown = instant.astimezone(zone)
        wall = shown.replace(tzinfo=None, fold=0)
        gap = int((wall - before) / timedelta(minutes=1)) - 1
        seen.append((instant, shown, [before + timedelta(minutes=step + 1) for step in range(gap)]))
        before = wall
    return seen


def oracle(schedule: Cron, window: str) -> list[datetime]:
    def fits(wall: datetime) -> bool:
        by_date, by_weekday = wall.day in schedule.days, wall.isoweekday() % 7 in schedule.weekdays
        either = len(schedule.days) < 31 and len(schedule.weekdays) < 7
        return (
            wall.minute in schedule.minutes
            and wall.hour in schedule.hours
            and wall.month in schedule.months
            and ((by_date or by_weekday) if either else (by_date and by_weekday))
        )

    interval = schedule.hours == frozenset(range(24))
    return [
        instant
        for instant, shown, skipped in every_minute(window)
        if (fits(shown) and (interval or shown.fold == 0)) or (not interval and any(fits(wall) for wall in skipped))
    ]


@pytest.mark.parametrize("text", ["0,30 * * * *", "0,30 0,12,23 * * *", "45 0-2,23 * * *"])
@pytest.mark.parametrize("window", sorted(WINDOWS))
def test_whatever_clocks_do_each_tick_leads_to_the_next_and_is_the_last_one_due(text: str, window: str) -> None:
    schedule, (zone, start, days) = parse(text), WINDOWS[window]
    second = timedelta(seconds=1)
    expected = oracle(schedule, window)
    assert ticks(schedule, start - second, start + timedelta(days=days) - second, zone, 1000) == expected
    before = start - second
    last: list[datetime] = []
    for tick in expected:
        assert next_tick(schedule, before, zone) == tick
        assert missed(schedule, start - second, tick - second, zone, "last") == last
        assert missed(schedule, start - second, tick, zone, "last") == [tick]
        assert missed(schedule, before, tick + 59 * second, zone, "none") == [tick]
        before, last = tick, [tick]


@settings(max_examples=70, deadline=None)
@given(SCHEDULES, st.sampled_from(sorted(WINDOWS)), st.integers(0, 2000), st.integers(1, 200))
@example("30 2 * * *", "new york, forward", 0, 100)
@example("*/7 * * * *", "st johns, back", 0, 200)
def test_the_ticks_are_those_that_a_look_at_every_minute_finds(text: str, window: str, offset: int, limit: int) -> None:
    schedule = parse(text)
    zone, start, days = WINDOWS[window]
    after = start + timedelta(minutes=offset, seconds=-1)
    until = start + timedelta(days=days) - timedelta(seconds=1)
    expected = [tick for tick in oracle(schedule, window) if tick > after]
    assert ticks(schedule, after, until, zone, limit) == expected[:limit]
    assert missed(schedule, after, until, zone, "last") == expected[-1:]
    if expected:
        assert next_tick(schedule, after, zone) == expected[0]
        assert next_tick(schedule, expected[0] - timedelta(microseconds=1), zone) == expected[0]
        assert next_tick(schedule, expected[0], zone) > expected[0]


@settings(max_examples=40, deadline=None)
@given(SCHEDULES, st.sampled_from(["utc", "new york, back", "havana, forward"]), st.data())
def test_steps_from_tick_to_tick_meet_every_tick_once(text: str, window: str, data: st.DataObject) -> None:
    schedule = parse(text)
    zone, start, days = WINDOWS[window]
    stops = data.draw(st.lists(st.integers(0, days * 1440 - 1), max_size=8).map(sorted))
    last, fired = start, []
    for stop in stops:
        due = missed(schedule, last, start + timedelta(minutes=stop), zone, "all", limit=10_000)
        fired += due
        last = due[-1] if due else last
    end = start + timedelta(minutes=stops[-1]) if stops else start
    assert fired == [tick for tick in oracle(schedule, window) if start < tick <= end]


# -- days -------------------------------------------------------------------------------------------------------------


def test_a_restricted_day_of_month_and_a_restricted_weekday_are_alternatives() -> None:
    either = ticks(parse("0 0 13 * fri"), at("2026-02-01"), at("2026-02-28"), UTC_ZONE)
    assert [tick.day for tick in either] == [6, 13, 20, 27]
    either = ticks(parse("0 0 1 * mon"), at("2026-01-31"), at("2026-02-10"), UTC_ZONE)
    assert [tick.day for tick in either] == [1, 2, 9]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0 0 29 2 *", ["2028-02-29", "2032-02-29"]),
        ("0 0 31 * *", ["2026-01-31", "2026-03-31"]),
        ("0 0 31 2,4,5 *", ["2026-05-31", "2027-05-31"]),
        ("0 0 * 2 sun", ["2026-02-01", "2026-02-08"]),
        ("@yearly", ["2027-01-01", "2028-01-01"]),
        ("0 0 * * 7", ["2026-01-04", "2026-01-11"]),
        ("0 0 * * 0", ["2026-01-04", "2026-01-11"]),
        ("0 0 30 2 mon", ["2026-02-02", "2026-02-09"]),
    ],
)
def test_rare_days_are_found(text: str, expected: list[str]) -> None:
    assert ticks(parse(text), at("2026-01-01"), at("2040-01-01"), UTC_ZONE, 2) == [at(day) for day in expected]


def test_the_longest_wait_of_all_has_an_end() -> None:
    assert next_tick(parse("0 0 29 2 *"), at("2096-03-01"), NEW_YORK) == at("2104-02-29T05:00")
    with pytest.raises(UsageError):
        next_tick(parse("0 0 29 2 *"), datetime(9990, 1, 1, tzinfo=UTC), UTC_ZONE)


def test_a_tick_is_later_than_after_and_not_later_than_until() -> None:
    noon = at("2026-05-01T12:00")
    schedule = parse("0 12 * * *")
    assert ticks(schedule, noon - timedelta(microseconds=1), noon, UTC_ZONE) == [noon]
    assert ticks(schedule, noon, noon + timedelta(hours=23), UTC_ZONE) == []
    assert ticks(schedule, noon, noon - timedelta(days=1), UTC_ZONE) == []
    assert next_tick(schedule, noon, UTC_ZONE) == noon + timedelta(days=1)


def test_times_in_any_zone_are_instants_and_the_answers_are_utc() -> None:
    after = datetime(2026, 5, 1, 12, tzinfo=NEW_YORK)
    (found,) = ticks(parse("0 18 * * *"), after, after + timedelta(days=1), NEW_YORK)
    assert found == at("2026-05-01T22:00")
    assert found.tzinfo is UTC


def test_a_time_without_a_zone_is_refused() -> None:
    naive, aware = datetime(2026, 5, 1), at("2026-05-02")
    with pytest.raises(UsageError, match="without a zone"):
        next_tick(parse("@daily"), naive, NEW_YORK)
    with pytest.raises(UsageError, match="without a zone"):
        ticks(parse("@daily"), naive, aware, NEW_YORK)
    with pytest.raises(UsageError, match="without a zone"):
        missed(parse("@daily"), naive, aware, NEW_YORK, "last")


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_below_one_is_refused(limit: int) -> None:
    with pytest.raises(UsageError, match="limit"):
        ticks(parse("@daily"), at("2026-01-01"), at("2026-02-01"), UTC_ZONE, limit)


# -- what was missed --------------------------------------------------------------------------------------------------

POLICIES: list[CatchUp] = ["none", "last", "all"]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_schedule_that_is_seen_for_the_first_time_fires_nothing(policy: CatchUp) -> None:
    assert missed(parse("* * * * *"), None, at("2026-01-01T00:00"), UTC_ZONE, policy) == []


@pytest.mark.parametrize("policy", POLICIES)
def test_a_tick_on_time_fires_under_every_policy_and_only_once(policy: CatchUp) -> None:
    tick = at("2026-01-01T12:00")
    schedule = parse("0 12 * * *")
    for late in (0, 1, 59):
        now = tick + timedelta(seconds=late)
        assert missed(schedule, tick - timedelta(days=1), now, UTC_ZONE, policy) == [tick]
        assert missed(schedule, tick, now, UTC_ZONE, policy) == []
    assert missed(schedule, tick - timedelta(days=1), tick - timedelta(seconds=1), UTC_ZONE, policy) == []


@pytest.mark.parametrize("policy", POLICIES)
def test_a_clock_that_went_back_fires_nothing(policy: CatchUp) -> None:
    assert missed(parse("* * * * *"), at("2026-01-02"), at("2026-01-01"), UTC_ZONE, policy) == []


def test_after_an_outage_nothing_the_last_one_or_all_are_made_up_for() -> None:
    schedule, last, now = parse("@hourly"), at("2026-01-01T10:00"), at("2026-01-01T14:01")
    hours = [at(f"2026-01-01T{hour}:00") for hour in (11, 12, 13, 14)]
    assert missed(schedule, last, now, UTC_ZONE, "none") == []
    assert missed(schedule, last, now, UTC_ZONE, "last") == hours[-1:]
    assert missed(schedule, last, now, UTC_ZONE, "all") == hours


def test_a_long_backlog_is_worked_off_oldest_first_in_bounded_steps() -> None:
    schedule, last, now = parse("* * * * *"), at("2023-01-01"), at("2026-01-01")
    first = missed(schedule, last, now, UTC_ZONE, "all")
    assert first == [last + timedelta(minutes=number) for number in range(1, 101)]
    assert missed(schedule, first[-1], now, UTC_ZONE, "all", limit=1) == [last + timedelta(minutes=101)]
    assert missed(schedule, last, now, UTC_ZONE, "last") == [now]


def test_the_last_tick_of_a_rare_schedule_is_found_years_back() -> None:
    assert missed(parse("0 0 29 2 *"), at("1999-01-01"), at("2027-12-31"), UTC_ZONE, "last") == [at("2024-02-29")]
    assert missed(parse("0 0 29 2 *"), at("2024-02-29"), at("2027-12-31"), UTC_ZONE, "last") == []


# -- for periodiq's process -------------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(SCHEDULES, st.sampled_from(["America/New_York", "UTC"]), st.integers(0, 2 * 1440))
@example("0 0 * * 0", "UTC", 1440)  # periodiq itself never finds this one
@example("0,30 9 * * *", "UTC", 610)  # nor 09:00 here
@example("30 2 * * *", "America/New_York", 400)
def test_periodiqs_process_wakes_at_our_ticks(text: str, zone_name: str, offset: int) -> None:
    spec, zone = cron(text), ZoneInfo(zone_name)
    now = pendulum.datetime(2026, 3, 7, tz="UTC").add(minutes=offset, seconds=20).in_timezone(zone_name)
    following = spec.next_valid_date(now)
    assert following == next_tick(parse(text), now, zone)
    assert (following - now).total_seconds() > 0
    shown = pendulum.instance(following)
    assert spec.validate(shown.add(seconds=30))
    minute_before = shown.subtract(seconds=1)
    assert spec.validate(minute_before) == (
        following - timedelta(minutes=1) in _due_in_the_minute_before(text, following, zone)
    )


def _due_in_the_minute_before(text: str, following: datetime, zone: ZoneInfo) -> list[datetime]:
    minute = timedelta(minutes=1)
    return ticks(parse(text), following - 2 * minute, following - minute, zone)


def test_our_cron_is_a_value_of_periodiqs_kind_and_survives_its_changes() -> None:
    spec = cron("30 2 * * mon-fri")
    assert isinstance(spec, periodiq.CronSpec)
    assert str(spec) == "30 2 * * mon-fri"
    assert spec == periodiq.cron("30 2 * * 1-5")
    hourly = spec.replace(h=list(range(24)), dow=list(range(7)))
    assert hourly.next_valid_date(pendulum.datetime(2026, 1, 1, 12, 30)) == at("2026-01-01T13:30")
