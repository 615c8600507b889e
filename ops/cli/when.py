"""Moments and lengths of time as a person writes them."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from store.errors import UsageError
from store.outcome import MAX_DELAY

_LENGTH = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)\s*([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_ZONED = re.compile(r"(\S.*?)\s+([A-Za-z][A-Za-z0-9_+/-]{0,63})")

#: Years that every store can keep, with room on both sides.
_YEARS = range(1970, 9000)


def seconds_of(text: str, option: str = "--in") -> float:
    """``10s``, ``5m``, ``2h`` or ``1d`` in seconds. Raises UsageError."""
    if not (match := _LENGTH.fullmatch(text.strip())):
        raise UsageError(f"{option} wants a length of time such as 10s, 5m, 2h or 1d")
    seconds = float(match[1]) * _SECONDS[match[2]]
    if seconds > MAX_DELAY:
        raise UsageError(f"{option} lies more than 100 years ahead: use a job that is woken when it is wanted")
    return seconds


def moment_of(text: str) -> datetime:
    """An aware moment in UTC, from ISO 8601 with an offset (``2026-12-01T09:00+01:00``) or with a zone's name after it
    (``2026-12-01 09:00 Europe/Berlin``). A time that clocks show twice is the first of the two. Raises UsageError.
    """
    named = _ZONED.fullmatch(text.strip())
    local = _parsed(named[1] if named else text.strip())
    if local.year not in _YEARS:
        raise UsageError(f"--at must lie in the years {_YEARS.start} to {_YEARS.stop - 1}")
    if named:
        if local.tzinfo is not None:
            raise UsageError("--at has an offset and a zone: leave one of them out")
        local = _in_zone(local, named[2])
    if local.tzinfo is None:
        raise UsageError(
            "--at has no time zone: write 2026-12-01T09:00Z, 2026-12-01T09:00+01:00 or '2026-12-01 09:00 Europe/Berlin'"
        )
    return local.astimezone(UTC)


def _parsed(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            "--at is no time that can be read: write 2026-12-01T09:00+01:00 or '2026-12-01 09:00 Europe/Berlin'"
        ) from None


def _in_zone(local: datetime, name: str) -> datetime:
    try:
        zone = ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):  # OSError: the name of a folder of zones, such as Europe
        raise UsageError(
            f"--at names the time zone {name}, which is not known here: write it like Europe/Berlin"
        ) from None
    found = local.replace(tzinfo=zone)
    if found.astimezone(UTC).astimezone(zone).replace(tzinfo=None) != local:
        raise UsageError(f"--at names a time that clocks in {name} skip: choose another")
    return found
