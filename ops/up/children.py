"""The programs that ``up`` runs: each behind a keeper, which ends it when we are gone, however we went.

The keeper's lock is inherited by all that a program forks, so a name is free again only when the last of it has ended.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from store import clock
from store.engines.launch import Engine, launch
from store.errors import EngineFailed, Refused

#: Seconds that a program which was killed with its owner may take to be gone.
LEFTOVER = 60.0
_LOCK_WAIT = 0.5

#: Seconds that Dramatiq needs to stop, beyond what its runs get.
STOP_SLACK = 20.0

#: Seconds before a program that ended by itself is started again: doubling, as long as it does not live for long.
FIRST_PAUSE, LONGEST_PAUSE, LONG_LIFE = 1.0, 30.0, 30.0

#: Where the packages are, for programs that are started elsewhere.
ROOT = Path(__file__).resolve().parents[2]


def worker_argv(modules: Sequence[str]) -> list[str]:
    """``dramatiq actors -p 1``, tethered; the main process alone is signalled, and stops its worker."""
    return [sys.executable, "-P", "-m", "dramatiq", *modules, "ops.up.tether", "-p", "1", "--path", str(ROOT)]


def ticker_argv(modules: Sequence[str]) -> list[str]:
    """``periodiq actors``."""
    return [sys.executable, "-P", "-c", "import periodiq; periodiq.entrypoint()", *modules, "--path", str(ROOT)]


def pause_before(deaths: int) -> float:
    """Seconds to wait before the next start, after so many short lives in a row (from 1)."""
    return float(min(FIRST_PAUSE * 2.0 ** min(deaths - 1, 10), LONGEST_PAUSE))


class Child:
    """One program under a home. ``tend`` starts it again when it ended by itself."""

    def __init__(self, name: str, argv: Sequence[str], home: Path, env: Mapping[str, str], patience: float) -> None:
        self.name = name
        self.log = home / "logs" / f"{name}.log"
        self._argv, self._home, self._env, self._patience = list(argv), home, dict(env), patience
        self._engine: Engine | None = None
        self._born = 0.0
        self._deaths = 0
        self._start_at: float | None = None

    @property
    def pid(self) -> int | None:
        """The program's first process, while it lives."""
        return self._engine.pid if self._engine is not None and self._engine.running else None

    def start(self) -> bool:
        """Start it; False while an earlier one of that name is still ending. Raises EngineFailed."""
        engine = launch(
            {
                "owner": os.getpid(),
                "lock": str(self._home / "logs" / f"{self.name}.lock"),
                "lock_wait": _LOCK_WAIT,
                "log": str(self.log),
                "account": None,
                "env": self._env,
                "preparation": None,
                "pid_files": [],
                "cwd": str(self._home),
                "argv": self._argv,
                "text": "",
                "farewell": [(int(signal.SIGTERM), self._patience), (int(signal.SIGKILL), 5.0)],
                # Should the keeper be killed, the program still stops in good order.
                "orphan_signal": int(signal.SIGTERM),
            },
            self.name,
        )
        if engine is None:
            return False
        self._engine, self._born, self._start_at = engine, clock.elapsed(), None
        return True

    def tend(self) -> str | None:
        """Look after it; what there is to tell, if anything. Raises EngineFailed."""
        moment = clock.elapsed()
        if self._start_at is None:
            if self.pid is not None:
                return None
            self.stop()  # it is gone: this lets go of its keeper
            self._deaths = 1 if moment - self._born >= LONG_LIFE else self._deaths + 1
            pause = pause_before(self._deaths)
            self._start_at = moment + pause
            return f"{self.name} ended by itself: it is started again in {pause:.0f} s (see {self.log})"
        if moment < self._start_at or not self.start():
            return None
        return f"{self.name} was started again (process {self.pid})"

    def stop(self) -> None:
        """End it and return when it is gone. Raises EngineFailed if it can't be ended."""
        self._start_at = None
        if self._engine is not None:
            self._engine.stop()


def stop_all(children: Sequence[Child]) -> list[EngineFailed]:
    """Stop them side by side; answers what could not be stopped."""

    def stop(child: Child) -> EngineFailed | None:
        try:
            child.stop()
        except EngineFailed as error:
            return error
        return None

    if not children:
        return []
    with ThreadPoolExecutor(len(children)) as pool:
        return [error for error in pool.map(stop, children) if error is not None]


def refuse_leftover(child: Child) -> Refused:
    """The error for a name that does not become free."""
    return Refused(
        f"{child.name} of an earlier `up` still runs on this home after {LEFTOVER:.0f} s: see {child.log}, and end it"
    )
