"""``up`` from its first look at the repository to its last process' end."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ops.cli.session import settings_of_all
from ops.up.children import STOP_SLACK, Child, ticker_argv, worker_argv
from ops.up.elsewhere import elsewhere
from ops.up.engines import Engines, Kind, kind_of
from ops.up.homes import emptied, held
from ops.up.house import House
from ops.up.screen import Screen
from ops.up.source import Source, find_source
from ops.up.stopping import Stop, StopAsked
from store.contract import Store
from store.engines.sockets import open_home
from store.errors import Refused, StoreUnavailable

if TYPE_CHECKING:
    from ops.up.tracked import Tracked

#: What the demo's programs are told: everything soon. A setting of None is taken away: it fits a longer lease only.
DEMO_SETTINGS: dict[str, str | None] = {
    "PROPOSAL_CHECK_INTERVAL_SECONDS": "5",
    "JOBS_LEASE_SECONDS": "5",
    "JOBS_LEASE_RENEW_SECONDS": None,
    "JOBS_LEASE_RENEW_JITTER_SECONDS": None,
}

#: What a demo says that was ended too early: who asked for it must not take it for one that went well.
CUT_SHORT = "the demo was stopped before everything was shown: run it again to see the rest"

#: Seconds between two looks at the rows.
LOOK = 0.5


class Plan(NamedTuple):
    """What the command line asked for."""

    kind: Kind | None
    repo: str | None
    demo: bool


def up(plan: Plan, make_screen: Callable[[str], Screen]) -> dict[str, Any]:
    """Run until a stop is asked for, or the demo is over; answers what was there at the end.

    ``make_screen`` takes the headline. Whatever happens, nothing that was started here is left running. Raises
    UsageError (then nothing was changed), Unavailable, and Refused: also for a demo that was stopped before its end.
    """
    store, worker = settings_of_all()
    source = find_source(plan.repo, Path.cwd())
    # The demo shows itself on engines of its own, whatever the environment names.
    db_url = None if plan.demo or store.db_url is None else store.db_url.get_secret_value()
    valkey_url = None if plan.demo or store.valkey_url is None else store.valkey_url.get_secret_value()
    kind = kind_of(plan.kind, db_url)
    base = open_home(store.home)
    stop = Stop()
    with stop.listening(), held(base / ("demo.lock" if plan.demo else "up.lock")):
        try:
            home = emptied(base / "demo", stop) if plan.demo else base
            engines = Engines(home, kind, db_url=db_url, valkey_url=valkey_url)
            if plan.demo:
                engines.forget()
            env = _environment(home, engines, plan.demo)
            screen = make_screen(f"dramaturg up: {source.origin} on {kind}, home {home}")
            try:
                return _Performance(plan, source, home, engines, env, screen, stop).run(worker.shutdown_wait_seconds)
            finally:
                screen.close()
        except StopAsked:
            if plan.demo:
                raise Refused(CUT_SHORT) from None
            return {"home": str(base), "repository": None, "proposals": []}


def _environment(home: Path, engines: Engines, demo: bool) -> dict[str, str]:
    """The settings of every program that is started, put into our own environment as well: the job types, which are
    imported only after this, read them there."""
    settings: dict[str, str | None] = {
        "JOBS_HOME": str(home),
        "JOBS_DB_URL": engines.db_url,
        "JOBS_VALKEY_URL": engines.valkey_url,
        **(DEMO_SETTINGS if demo else {}),
    }
    for name, value in settings.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    return dict(os.environ)


class _Performance:
    """One ``up`` in its home."""

    def __init__(
        self, plan: Plan, source: Source, home: Path, engines: Engines, env: dict[str, str], screen: Screen, stop: Stop
    ) -> None:
        self._plan, self._source, self._home, self._engines, self._env = plan, source, home, engines, env
        self._screen, self._stop = screen, stop
        self._house = House(engines, stop, screen.say)

    def run(self, shutdown_wait: float) -> dict[str, Any]:
        """Start everything, show it, end everything."""
        import actors  # noqa: F401 - declares the job types, with the settings that were just put in place
        from middleware.build import broker
        from ops.up.tracked import Tracked, bare_copy

        runtime = broker().runtime
        proposals: list[dict[str, Any]] = []
        copy: Path | None = None
        cut_short = False
        try:
            self._engines.reach_named()
            with self._stop.breaking():
                copy = bare_copy(self._source, self._home)
            self._screen.say(f"the repository is copied to {copy}: push there, and its proposals follow")
            self._engines.start()
            self._screen.hint("in another terminal:", elsewhere(self._engines))
            self._stop.check()
            runtime.store.migrate(runtime.subjects)
            runtime.publish()
            workers = self._start_programs(shutdown_wait + STOP_SLACK)
            tracked = Tracked(runtime.store, copy)
            tracked.open()
            self._perform(runtime.store, tracked, workers)
            proposals = self._at_the_end(tracked)
        except StopAsked:
            cut_short = self._plan.demo
        finally:
            self._screen.say("stopping: the workers first, the engines last")
            runtime.close()
            failed = self._house.close()
            for failure in failed:
                self._screen.say(str(failure))
        if failed:
            raise failed[0]
        self._screen.say("stopped: nothing is left running")
        if cut_short:
            raise Refused(CUT_SHORT)
        return {"home": str(self._home), "repository": str(copy) if copy else None, "proposals": proposals}

    def _at_the_end(self, tracked: Tracked) -> list[dict[str, Any]]:
        """The proposals as they are now; a store that is away is told, and keeps nothing from ending well."""
        from ops.cli.proposals import document

        try:
            return [document(proposal) for proposal in tracked.all()]
        except StoreUnavailable as error:
            self._screen.say(str(error))
            return []

    def _start_programs(self, patience: float) -> list[Child]:
        modules = ["actors", "ops.up.demo_jobs"] if self._plan.demo else ["actors"]
        (self._home / "logs").mkdir(exist_ok=True)
        names = ["worker-1", "worker-2"] if self._plan.demo else ["worker-1"]
        workers = [Child(name, worker_argv(modules), self._home, self._env, patience) for name in names]
        for child in (*workers, Child("periodiq", ticker_argv(["actors"]), self._home, self._env, patience)):
            self._house.add(child)
            self._screen.say(f"{child.name} runs as process {child.pid}, its log is {child.log}")
        return workers

    def _perform(self, store: Store, tracked: Tracked, workers: list[Child]) -> None:
        if self._plan.demo:
            from ops.up.demo import Demo

            Demo(store, tracked, self._house, workers, self._screen, self._stop).play()
            return
        self._watch(store, tracked)

    def _watch(self, store: Store, tracked: Tracked) -> None:
        from ops.up.seen import look

        told: str | None = None
        while not self._screen.lost:
            self._house.tend()
            try:
                self._screen.show(look(store, tracked.all))
                told = None
            except StoreUnavailable as error:
                if told != str(error):
                    self._screen.say(told := str(error))
            if self._stop.wait(LOOK):
                return
