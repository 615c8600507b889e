"""Cron expressions: periodiq's grammar, with what can't be meant refused.

    minute hour day-of-month month weekday        for instance  */15 9-17 * * mon-fri

Each field is a list of ``*``, ``a`` or ``a-b``, the first and the last also with a step as in ``*/5``. Weekdays are
0-7, where both 0 and 7 are Sunday, or sun..sat. ``@hourly``, ``@daily``, ``@midnight``, ``@weekly``, ``@monthly``,
``@yearly`` and ``@annually`` stand for the expressions that everyone knows. When such an expression is due is told
in ``ticks.py``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import date

from periodiq import CronSpec

from store.errors import UsageError

_NAMED = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_WEEKDAYS = {name: number for number, name in enumerate(("sun", "mon", "tue", "wed", "thu", "fri", "sat"))}
_FIELDS = (("minute", 0, 59), ("hour", 0, 23), ("day of month", 1, 31), ("month", 1, 12), ("weekday", 0, 7))
_PART = re.compile(r"(?P<star>\*)|(?P<first>[a-z0-9]+)(?:-(?P<last>[a-z0-9]+))?")
_NUMBER = re.compile(r"[0-9]{1,4}")
_LONGEST_MONTH = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


@dataclass(frozen=True, slots=True)
class Cron:
    """A schedule, as the values that its fields allow. Equal when they allow the same."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    """Days of the month, 1..31."""
    months: frozenset[int]
    weekdays: frozenset[int]
    """0..6 from Sunday."""
    text: str = field(compare=False)
    """What the schedule was written as."""

    @property
    def fixed_times(self) -> bool:
        """Whether it names times of day, by leaving out an hour; else it names an interval."""
        return len(self.hours) < 24

    def fits(self, day: date) -> bool:
        """Whether it is due on this day at all: see ``ticks.py`` for the rule."""
        if day.month not in self.months:
            return False
        by_date, by_weekday = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        if len(self.days) < 31 and len(self.weekdays) < 7:
            return by_date or by_weekday
        return by_date and by_weekday


def parse(text: str) -> Cron:
    """Reads a cron expression.

    Raises UsageError, which says what is wrong where: a wrong number of fields, a value out of range, a step of zero
    or one that never fits, a range that runs backwards, a date that no year has, anything that is not the grammar."""
    if not isinstance(text, str):
        raise UsageError(f"a cron expression is a text such as '*/5 * * * *', not a {type(text).__name__}")
    words = text.split()
    if len(words) == 1 and words[0].startswith("@"):
        if words[0] not in _NAMED:
            raise UsageError(f"cron {_shown(text)}: the names are {', '.join(_NAMED)}")
        words = _NAMED[words[0]].split()
    if len(words) != len(_FIELDS):
        raise UsageError(
            f"cron {_shown(text)}: it has {len(words)} fields and needs 5: minute, hour, day of month, month, weekday"
        )
    return _checked([_values(text, word, *_FIELDS[place]) for place, word in enumerate(words)], text)


def from_spec(spec: CronSpec) -> Cron:
    """Takes over periodiq's own value, by the text that it was parsed from, else by its values.

    Raises UsageError where ``parse`` does: periodiq lets more pass."""
    if not isinstance(spec, CronSpec):
        raise UsageError(f"a schedule is written cron('*/5 * * * *'), not as a {type(spec).__name__}")
    if spec.parsed_from is not None:
        return parse(spec.parsed_from)
    return from_values(spec)


def from_values(spec: CronSpec) -> Cron:
    """Takes over the values of periodiq's value, whatever its text says. Raises UsageError as ``parse`` does."""
    for values, (name, least, most) in zip(spec.astuple(), _FIELDS, strict=True):
        for value in values:
            if type(value) is not int or not least <= value <= most:
                raise UsageError(f"cron {_shown(str(values))}: {name} {value!r} is out of range, {least}-{most}")
    return _checked(spec.astuple(), " ".join(",".join(map(str, values)) for values in spec.astuple()))


def _values(text: str, word: str, name: str, least: int, most: int) -> set[int]:
    """The values of one field."""
    found: set[int] = set()
    where = f"cron {_shown(text)}: {name}"
    for item in word.lower().split(","):
        span, slash, step_text = item.partition("/")
        part = _PART.fullmatch(span)
        if part is None:
            raise UsageError(f"{where}: {_shown(item)} is none of *, a value, a range a-b")
        if part["star"]:
            first, last = least, most
        else:
            first = _number(where, part["first"], name, least, most)
            last = first if part["last"] is None else _number(where, part["last"], name, least, most)
        if last < first:
            raise UsageError(
                f"{where}: the range {span} runs backwards; write {first}-{most},{least}-{last} if it wraps"
            )
        step = 1
        if slash:
            if not part["star"] and part["last"] is None:
                raise UsageError(f"{where}: a step needs * or a range, so write {first}-{most}/{step_text[:9]}")
            if not _NUMBER.fullmatch(step_text) or not 1 <= int(step_text) <= most - least + 1:
                raise UsageError(
                    f"{where}: {_shown(step_text)} is no step; it is a number from 1 to {most - least + 1}"
                )
            step = int(step_text)
        found.update(range(first, last + 1, step))
    return found


def _number(where: str, word: str, name: str, least: int, most: int) -> int:
    if name == "weekday" and word in _WEEKDAYS:
        return _WEEKDAYS[word]
    if not _NUMBER.fullmatch(word):
        names = " or sun, mon, tue, wed, thu, fri, sat" if name == "weekday" else ""
        raise UsageError(f"{where}: {_shown(word)} is not a number{names}")
    if not least <= int(word) <= most:
        raise UsageError(f"{where}: {word} is out of range, {least}-{most}")
    return int(word)


def _checked(fields: Iterable[Iterable[int]], text: str) -> Cron:
    minutes, hours, days, months, weekdays = (frozenset(values) for values in fields)
    cron = Cron(minutes, hours, days, months, frozenset(day % 7 for day in weekdays), text)
    if not all((minutes, hours, days, months, weekdays)):
        raise UsageError(f"cron {_shown(text)}: a field allows nothing at all")
    longest = max(_LONGEST_MONTH[month - 1] for month in months)
    if len(cron.weekdays) == 7 and min(days) > longest:
        raise UsageError(
            f"cron {_shown(text)}: no year has such a date, these months end on the {longest}th at the latest"
        )
    return cron


def _shown(text: str) -> str:
    return repr(text[:100])
