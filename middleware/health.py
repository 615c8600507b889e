"""Signs of life of the loops that do the work, written to a small file that ``dramaturg health`` judges.

A loop signs only after it did its work: a claim or dispatch that the store answered, an access that Valkey answered.
The file says how long ago each did, so a loop that hangs turns it red though its thread lives.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from middleware.credentials import ENDING, Standing
from store import clock

#: Seconds after which a loop that has not signed counts as hung.
LOOP_LIMIT = 30.0

#: Seconds after which a file that was not written anew counts as that of a dead or hung process.
FILE_LIMIT = 15.0

#: Seconds between two looks at the credentials.
CREDENTIALS_EVERY = 60.0

_FOLDER = "health"


class Health:
    """What the loops of this process last did. Safe to share between threads."""

    def __init__(self, home: Path, name: str, credentials: Callable[[], Mapping[str, Standing]] = dict) -> None:
        """``credentials``: how those of this process stand; asked once a minute."""
        self._credentials = credentials
        self._standings: dict[str, dict[str, Any]] = {}
        self._asked = float("-inf")
        self._path = home / _FOLDER / f"{os.getpid()}.json"
        self._name = name
        self._lock = threading.Lock()
        self._signed: dict[str, float] = {}

    def sign(self, loop: str) -> None:
        """A loop did its work just now."""
        with self._lock:
            self._signed[loop] = clock.elapsed()

    def forget(self, loop: str) -> None:
        """A loop ended in good order."""
        with self._lock:
            self._signed.pop(loop, None)

    def idle_for(self, loop: str) -> float:
        """Seconds since that loop signed; infinite if it never did."""
        with self._lock:
            signed = self._signed.get(loop)
        return float("inf") if signed is None else clock.elapsed() - signed

    def write(self) -> None:
        """Put the ages on disk, whole or not at all."""
        with self._lock:
            moment = clock.elapsed()
            ages = {loop: round(moment - signed, 3) for loop, signed in self._signed.items()}
        if moment - self._asked > CREDENTIALS_EVERY:
            self._asked = moment
            self._standings = {name: standing._asdict() for name, standing in self._credentials().items()}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self._path.with_suffix(".new")
        fresh.write_bytes(
            orjson.dumps(
                {
                    "worker": self._name,
                    "pid": os.getpid(),
                    "at": clock.wall().timestamp(),
                    "loops": ages,
                    "credentials": self._standings,
                }
            )
        )
        fresh.replace(self._path)

    def remove(self) -> None:
        """A graceful stop leaves nothing to judge."""
        self._path.unlink(missing_ok=True)


class Verdict(NamedTuple):
    """Whether the workers of a home directory do their work, and why not; ``notes`` tell what soon won't do."""

    healthy: bool
    reasons: list[str]
    workers: list[dict[str, Any]]
    notes: list[str]


def judge(home: Path) -> Verdict:
    """Read the signs of life under ``home``: healthy if at least one worker lives and no loop of any is late."""
    workers, reasons, notes = [], [], []
    folder = home / _FOLDER
    for path in sorted(folder.glob("*.json")) if folder.is_dir() else []:
        try:
            seen = orjson.loads(path.read_bytes())
            worker, pid, loops = str(seen["worker"]), int(seen["pid"]), dict(seen["loops"])
            standings = {str(name): Standing(**one) for name, one in dict(seen.get("credentials", {})).items()}
            age = clock.wall().timestamp() - float(seen["at"])
        except (OSError, ValueError, KeyError, TypeError):
            continue  # it went away, or was cut off: the next look tells
        if age > FILE_LIMIT and not _alive(pid):
            path.unlink(missing_ok=True)  # killed: others do its work, and the file would say so for ever
            continue
        late = [loop for loop, idle in sorted(loops.items()) if idle + max(age, 0) > LOOP_LIMIT]
        if age > FILE_LIMIT:
            reasons.append(f"worker {worker} has not written its signs of life for {age:.0f} s: it hangs or is frozen")
        elif late:
            reasons.append(f"worker {worker}: no work done by {', '.join(late)} for over {LOOP_LIMIT:.0f} s")
        elif not any(loop.startswith("consumer ") for loop in loops):
            reasons.append(f"worker {worker} has not reached Valkey yet")
        elif "store" not in loops:
            reasons.append(f"worker {worker} has not reached the store yet")
        for name, standing in sorted(standings.items()):
            if standing.code is not None:
                reasons.append(f"worker {worker}: credential {name} can't be used ({standing.code}): see its log")
            elif standing.days is not None and standing.days < ENDING.days:
                notes.append(f"worker {worker}: credential {name} ends in {standing.days} days: replace its file")
        told = {name: standing._asdict() for name, standing in standings.items()}
        workers.append({"worker": worker, "pid": pid, "age": round(age, 1), "loops": loops, "credentials": told})
    if not workers:
        reasons.append("no worker is running: start one with `dramatiq actors -p 1` or `dramaturg up`")
    return Verdict(not reasons, reasons, workers, notes)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
