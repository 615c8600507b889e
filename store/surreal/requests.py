"""How statements are put to the server: a step at a time, conflicts tried again, or several in one transaction.

A ``Step`` is one expression of SurrealQL with its parameters. It may use ``$now``, the moment of its transaction in
microseconds.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple, TypeVar

from store import clock
from store.errors import DramaturgError, NotAllowed, QuotaExceeded, Refused, StoreUnavailable
from store.surreal.connections import Connections
from store.surreal.errors import Conflict, Thrown, results

Answer = TypeVar("Answer")

#: One request to the server, answered with the raw response.
Ask = Callable[[str, Mapping[str, Any]], Mapping[str, Any]]

#: Seconds to wait before a conflict is tried again: a draw up to the first, which doubles up to the second.
_PAUSE: Final = (0.002, 0.05)

#: Seconds to wait at most until other threads of this process have settled their conflicts.
_QUEUEING: Final = 60.0

NOW: Final = "LET $now = $at ?? time::micros(time::now());"

#: The server's results are told apart by this name, never by their places: not every version answers BEGIN and COMMIT.
_OUT: Final = "dramaturg"


class Step(NamedTuple):
    """``text`` is one expression; its parameters are named by a letter and a number."""

    text: str
    values: Mapping[str, Any]


def read(connections: Connections, step: Step, now: datetime | None = None) -> Any:
    """What a step that writes nothing answers, on one snapshot. Raises StoreUnavailable and Refused."""
    return _one(connections, f"{NOW} LET $out = {step.text}; {{ {_OUT}: $out }};", step, now)


def write(connections: Connections, step: Step, now: datetime | None = None) -> Any:
    """What a step answers, in a transaction of its own, all of it or nothing. Raises StoreUnavailable and Refused."""
    return _one(connections, f"BEGIN; {NOW} LET $out = {step.text}; {{ {_OUT}: $out }}; COMMIT;", step, now)


def _one(connections: Connections, statements: str, step: Step, now: datetime | None) -> Any:
    values = {**step.values, "at": None if now is None else clock.micros(now)}

    def ask() -> Any:
        with connections.lend() as link:
            return out(results(link.query(statements, values)))

    return persistently(ask, connections.patience, connections.turn)


def out(found: list[Any]) -> Any:
    """The answer among the results of a request."""
    for result in found:
        if isinstance(result, dict) and result.keys() == {_OUT}:
            return result[_OUT]
    raise StoreUnavailable("SurrealDB answered something else than it was asked: try again")


#: What our own statements throw for limits begins so.
_LIMITS: Final = {"quota ": QuotaExceeded, "list ": NotAllowed}


def _refusal(word: str) -> DramaturgError:
    for beginning, error in _LIMITS.items():
        if word.startswith(beginning):
            return error(word.removeprefix(beginning))
    return Refused(f"the database refuses that ({word})")


def persistently(ask: Callable[[], Answer], patience: float, turn: threading.Lock) -> Answer:
    """What ``ask`` answers, asked again after each conflict for up to ``patience`` seconds. Raises StoreUnavailable.

    The first try is free; whoever meets a conflict tries again in ``turn`` with the others of this process. Large
    batches on the same rows would else be in each other's way for ever: each commit undoes the work of all others.
    """
    try:
        return _told(ask)
    except Conflict:
        pass
    if not turn.acquire(timeout=_QUEUEING):
        raise StoreUnavailable(f"other threads' conflicts were being settled for {_QUEUEING:.0f} s: try again")
    try:
        deadline = clock.elapsed() + patience
        pause, longest = _PAUSE
        while True:
            # Who has waited long waits no longer than other processes: with a pause that only grew, one might never
            # get through.
            time.sleep(random.uniform(0, pause))
            pause = min(2 * pause, longest)
            try:
                return _told(ask)
            except Conflict:
                if clock.elapsed() >= deadline:
                    raise StoreUnavailable(
                        f"other transactions were in the way for {patience:.0f} s (TransactionConflict): try again"
                    ) from None
    finally:
        turn.release()


def _told(ask: Callable[[], Answer]) -> Answer:
    try:
        return ask()
    except Thrown as thrown:
        raise _refusal(thrown.word) from None
