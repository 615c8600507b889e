"""A place in the ready set as one number: urgency first, then how long it has been due.

``band * 10**13 + due_ms``, written out in full: at most 8,999,999,999,999,999, which a double holds exactly (2**53 is a
little more). Jobs of priority p have the band 10 * p, ordinary messages 50 + p, so that the defaults of both (5 and 0)
share a lane and the older goes first. Members with equal scores go in the order of their bytes.
"""

from __future__ import annotations

from store.errors import UsageError

_BAND = 10**13  # ms: until the year 2286
_LAST = 899


def job_score(priority: int, due_ms: int) -> str:
    """The score of a job. ``priority`` is 1 to 10, lower first; ``due_ms`` is when it became due, in ms since 1970.

    Raises UsageError for any other priority.
    """
    if not 1 <= priority <= 10:
        raise UsageError(f"a job's priority is 1 to 10, not {priority}")
    return _score(10 * priority, due_ms)


def message_score(priority: int, due_ms: int) -> str:
    """The score of an ordinary message. ``priority`` is any number, lower first; it is cut to -50..849."""
    return _score(min(max(50 + priority, 0), _LAST), due_ms)


def _score(band: int, due_ms: int) -> str:
    return str(band * _BAND + min(max(due_ms, 0), _BAND - 1))
