"""A wall clock that is stepped: on PYTHONPATH, in every worker under torture.

``TORTURE_CLOCK`` names a file with the seconds by which this process' wall clock is off; it is read again a few times a
second, so the clock can be stepped while the process runs. The monotonic clock is left alone, as an operator's
``date -s`` leaves it.
"""

from __future__ import annotations

import datetime
import os
import time
from typing import Any

_LOOK = 0.25  # seconds between two looks at the file
_path = os.environ["TORTURE_CLOCK"]
_true_time, _true_ns, _monotonic = time.time, time.time_ns, time.monotonic
_true_datetime = datetime.datetime
_seen = (-_LOOK, 0)


def _offset() -> int:
    global _seen
    now = _monotonic()
    if now - _seen[0] >= _LOOK:
        try:
            with open(_path) as file:
                _seen = now, int(file.read() or 0)
        except FileNotFoundError:
            _seen = now, 0
    return _seen[1]


class _Kind(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _true_datetime)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, _true_datetime)


class _Stepped(_true_datetime, metaclass=_Kind):
    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> Any:
        return _true_datetime.now(tz) + datetime.timedelta(seconds=_offset())

    @classmethod
    def utcnow(cls) -> Any:
        return _true_datetime.now(datetime.UTC).replace(tzinfo=None) + datetime.timedelta(seconds=_offset())


_Stepped.__name__ = _Stepped.__qualname__ = "datetime"
time.time = lambda: _true_time() + _offset()
time.time_ns = lambda: _true_ns() + _offset() * 1_000_000_000
datetime.datetime = _Stepped  # type: ignore[misc]
