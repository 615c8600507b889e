"""When a recurring job is due: cron arithmetic without I/O and without a clock.

A *tick* is an instant at which a schedule is due, on a whole minute. However many times of day fall together on one
instant, it is one tick. Instants are timezone-aware datetimes, UTC in all answers; the zone is the one in which the
schedule's fields are read.

**Days.** A day fits when its month fits and its day of month or its weekday fits: either, when both are restricted;
the restricted one, when one is; any day otherwise. A field that lists all of its values is unrestricted.

**When clocks change.** One rule, in two halves, told apart by the hour field:

- A schedule with *fixed times* (the hour field leaves out at least one hour) fires once for each of its times on each
  fitting local day. A time that the clocks skip fires at the first moment after the gap; a time that they show twice
  fires at the first of the two.
- A schedule with *intervals* (the hour field allows every hour) fires whenever the local clock shows a fitting minute
  on a fitting day. Through a change by whole hours it goes on in real time as if nothing had happened. Where clocks
  change by half an hour it keeps to the minutes of the clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from itertools import chain, islice
from typing import Literal, assert_never

from periodiq import CronSpec

from scheduler.crontab import Cron, from_spec, from_values, parse
from store.errors import UsageError

__all__ = ["GRAIN", "CatchUp", "Cron", "cron", "from_spec", "missed", "next_tick", "parse", "ticks"]

GRAIN = timedelta(minutes=1)
"""The grain of all schedules, and how old a tick may be when it is seen and still be on time."""

CatchUp = Literal["none", "last", "all"]

_DAY = timedelta(days=1)
_HOUR = timedelta(hours=1)
# The longest that a possible schedule waits: from one 29 February to the next over a century that has none.
_LONGEST_WAIT = timedelta(days=8 * 366 + 2)
_YEARS = range(1900, 9980)  # far from datetime's ends, so that no step of ours can fall off


def next_tick(schedule: Cron, after: datetime, zone: tzinfo) -> datetime:
    """The first tick later than ``after``, which every schedule has. Raises UsageError for a time without a zone, or
    one before the year 1900 or thousands of years ahead."""
    return next(_forward(schedule, after, after + _LONGEST_WAIT, zone))


def ticks(schedule: Cron, after: datetime, until: datetime, zone: tzinfo, limit: int = 100) -> list[datetime]:
    """The ticks later than ``after`` and not later than ``until``, in order; the oldest ``limit`` of them.

    Costs time in proportion to the answer and to the days between. Raises UsageError as ``next_tick`` does, and for a
    limit below 1."""
    if limit < 1:
        raise UsageError(f"a limit of {limit} ticks makes no sense; it is at least 1")
    return list(islice(_forward(schedule, after, until, zone), limit))


def missed(
    schedule: Cron, last: datetime | None, now: datetime, zone: tzinfo, policy: CatchUp, limit: int = 100
) -> list[datetime]:
    """The ticks to fire now, in order, when ``last`` is the newest tick that was fired (or the time at which the
    schedule was first seen). Whoever fires them keeps the last of them as the new ``last``, and ``last`` where there
    are none; of a schedule seen for the first time (None) it keeps ``now``, and fires nothing.

    ``none`` makes up for nothing: only a tick that is on time, less than GRAIN old. ``last`` fires the newest one that
    is due. ``all`` fires all that are due, the oldest ``limit`` of them: what is left over is due at the next call, so
    that a long backlog is worked off in order and in bounded steps. A ``now`` before ``last`` fires nothing.

    Raises UsageError as ``ticks`` does."""
    if last is None:
        return []
    match policy:
        case "all":
            return ticks(schedule, last, now, zone, limit)
        case "last":
            newest = _newest(schedule, last, now, zone)
        case "none":
            newest = _newest(schedule, max(last, now - GRAIN), now, zone)
        case _:
            assert_never(policy)
    return [] if newest is None else [newest]


def cron(text: str) -> CronSpec:
    """What a developer writes: ``periodic=cron("*/5 * * * *")``. Raises UsageError as ``parse`` does.

    The answer is periodiq's own kind of value, so that periodiq's process accepts it, but one that reckons by this
    module. (periodiq's reckoning never finds Sunday written as 0, and may pass over times and days when it has to
    move on by hours or months.)"""
    parse(text)
    return _ExactSpec.parse(text)


class _ExactSpec(CronSpec):  # type: ignore[misc]  # periodiq has no types
    def setup(self, m: list[int], h: list[int], dom: list[int], month: list[int], dow: list[int]) -> None:
        super().setup(m, h, dom, month, dow)
        self._schedule = from_values(self)

    def validate(self, date: datetime) -> bool:
        minute = date.astimezone(UTC).replace(second=0, microsecond=0)
        return next_tick(self._schedule, minute - GRAIN, _zone(date)) == minute

    def next_valid_date(self, last: datetime) -> datetime:
        return next_tick(self._schedule, last, _zone(last)).astimezone(_zone(last))


def _zone(moment: datetime) -> tzinfo:
    if moment.tzinfo is None:
        raise UsageError("a time without a zone is no instant: give it one")
    return moment.tzinfo


def _local_day(moment: datetime, zone: tzinfo) -> date:
    _zone(moment)
    if moment.year not in _YEARS:
        raise UsageError(f"the year {moment.year} is out of range, {_YEARS.start}-{_YEARS.stop - 1}")
    local = moment.astimezone(zone)
    return date(local.year, local.month, local.day)


def _forward(schedule: Cron, after: datetime, until: datetime, zone: tzinfo) -> Iterator[datetime]:
    # A day early: clocks set back over midnight show the end of a day again when the next has already begun.
    day, final = _local_day(after, zone) - _DAY, _local_day(until, zone)
    held: list[datetime] = []
    while day <= final:
        if day.month not in schedule.months and not held:
            day = (day.replace(day=1) + 31 * _DAY).replace(day=1)
            continue
        due = _ticks_of(schedule, day, zone, after, until)
        if held:
            due, held = iter(sorted({*held, *due})), []
        day += _DAY
        # Clocks that change at midnight make the end of a day meet or pass the start of the next: hold that end back.
        border = _first_moment(day, zone)
        for tick in due:
            if tick >= border:
                held.append(tick)
            elif after < tick <= until:
                yield tick


def _newest(schedule: Cron, after: datetime, until: datetime, zone: tzinfo) -> datetime | None:
    """The newest tick later than ``after`` and not later than ``until``."""
    day, final = _local_day(until, zone) + _DAY, _local_day(after, zone) - _DAY
    while day >= final:
        if day.month not in schedule.months:
            day = day.replace(day=1) - _DAY
            continue
        # Two days together, because clocks set back over midnight make days overlap.
        both = (_ticks_of(schedule, one, zone, after, until) for one in (day - _DAY, day))
        newest = max((tick for tick in chain(*both) if after < tick <= until), default=None)
        if newest is not None:
            return newest
        day -= _DAY
    return None


def _ticks_of(schedule: Cron, day: date, zone: tzinfo, after: datetime, until: datetime) -> Iterator[datetime]:
    """The ticks that a local day's times of day make, in order, as UTC; hours that can't matter may be left out."""
    if not schedule.fits(day):
        return
    minutes = sorted(schedule.minutes)
    if _same_offset_all_day(day, zone):
        start = _first_moment(day, zone)
        for hour in sorted(schedule.hours):
            top = start + hour * _HOUR
            if top + _HOUR > after and top <= until:
                yield from (top + minute * GRAIN for minute in minutes)
        return
    moments = [datetime.combine(day, time(hour, minute)) for hour in schedule.hours for minute in minutes]
    if schedule.fixed_times:
        yield from sorted({_once(moment, zone) for moment in moments})
    else:
        yield from sorted({shown for moment in moments for shown in _shown(moment, zone)})


def _same_offset_all_day(day: date, zone: tzinfo) -> bool:
    ends = (datetime.combine(edge, time(), zone) for edge in (day, day + _DAY))
    return len({end.replace(fold=fold).utcoffset() for end in ends for fold in (0, 1)}) == 1


def _first_moment(day: date, zone: tzinfo) -> datetime:
    """The instant of a local midnight, or of the end of the gap in which it lies."""
    return _once(datetime.combine(day, time()), zone)


def _shown(moment: datetime, zone: tzinfo) -> list[datetime]:
    """The instants, none to two, at which the zone's clocks show a local time."""
    readings = (moment.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
    return [reading for reading in readings if reading.astimezone(zone).replace(tzinfo=None) == moment]


def _once(moment: datetime, zone: tzinfo) -> datetime:
    """The one instant at which a local time fires."""
    shown = _shown(moment, zone)
    if shown:
        return min(shown)
    # In a gap, the earlier offset reads the time as an instant after the change, the later offset as one before it.
    after, before = (moment.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
    offset = before.astimezone(zone).utcoffset()
    while after - before > timedelta(seconds=1):
        middle = (before + (after - before) / 2).replace(microsecond=0)
        if middle.astimezone(zone).utcoffset() == offset:
            before = middle
        else:
            after = middle
    return after
