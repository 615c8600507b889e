"""How statements are put to the server: a step at a time, conflicts tried again, or several in one transaction.

A ``Step`` is one expression of SurrealQL with its parameters. It may use ``$now``, the moment of its transaction in
microseconds.
"""

from __future__ import annotations

import random
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

    return persistently(ask, connections.patience)


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


def persistently(ask: Callable[[], Answer], patience: float) -> Answer:
    """What ``ask`` answers, asked again after each conflict for up to ``patience`` seconds. Raises StoreUnavailable."""
    deadline = clock.elapsed() + patience
    pause, longest = _PAUSE
    while True:
        try:
            return ask()
        except Conflict:
            if clock.elapsed() >= deadline:
                raise StoreUnavailable(
                    f"other transactions were in the way for {patience:.0f} s (TransactionConflict): try again"
                ) from None
        except Thrown as thrown:
            raise _refusal(thrown.word) from None
        # Who has waited long waits no longer than the others: with a pause that only grew, one might never get through.
        time.sleep(random.uniform(0, pause))
        pause = min(2 * pause, longest)
