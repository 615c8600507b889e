"""On whose behalf this thread or task works: what a wake inside a run passes on unless it is told otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, NamedTuple


class Lineage(NamedTuple):
    """The request and the trace of a run."""

    request_id: str | None = None
    trace: str | None = None


#: For ``request_id`` and ``trace`` of a wake: those of the run that it is made in, if it is made in one.
INHERITED: Final[Any] = type("Inherited", (), {"__repr__": lambda _: "INHERITED"})()

_NOBODY: Final = Lineage()

_current: ContextVar[Lineage] = ContextVar("lineage", default=_NOBODY)


def current() -> Lineage:
    """That of the run that goes on here; an empty one outside of runs."""
    return _current.get()


@contextmanager
def of_run(request_id: str | None, trace: str | None) -> Iterator[None]:
    """A run goes on in the block. A coroutine that it starts on another thread has it too."""
    token = _current.set(Lineage(request_id, trace))
    try:
        yield
    finally:
        _current.reset(token)
