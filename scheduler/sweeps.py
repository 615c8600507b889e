"""The sweeps as recurring jobs of our own: bounded passes, again at once while there is more.

They are declared in every process, so that whoever serves them knows them, and scheduled where the settings say so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from middleware.broker import Broker
from middleware.job import Tick, declare
from middleware.run import Run
from scheduler.settings import INTERVALS, SweepSettings
from store import following, sweeps
from store.identity import MAINTENANCE
from store.outcome import Again, Done, Outcome
from store.settings import load

RETENTION, TTL, INTEGRITY, EVENTS = MAINTENANCE

#: After everything else that is due.
PRIORITY = 10

#: Rows that one run looks at most; the next one follows at once.
MOST = 10_000


class _Sweep(NamedTuple):
    job_type: str
    enforced: bool
    interval: int
    work: Callable[[Run], sweeps.Passed | sweeps.Sound]


def declare_sweeps(broker: Broker) -> None:
    """Declare the sweeps on ``broker``, once. Raises SettingsInvalid."""
    if RETENTION in broker.actors:
        return
    settings = load(SweepSettings)
    runtime = broker.runtime

    def retention(run: Run) -> sweeps.Passed:
        return sweeps.retention(
            runtime.store,
            settings.days,
            settings.scope,
            dry_run=settings.prune_dry_run,
            archive=settings.archiving,
            limit=MOST,
            check=run.check,
        )

    def ttl(run: Run) -> sweeps.Passed:
        return sweeps.expire(runtime.store, settings.limits, limit=MOST, check=run.check)

    def integrity(run: Run) -> sweeps.Sound:
        return sweeps.integrity(runtime.store, fix=settings.integrity_fix, limit=MOST, check=run.check)

    for sweep in (
        _Sweep(RETENTION, settings.prune_enforce, settings.prune_interval, retention),
        _Sweep(TTL, settings.ttl_enforce, settings.ttl_interval, ttl),
        _Sweep(INTEGRITY, settings.integrity_enabled, settings.integrity_interval, integrity),
    ):
        _declare(broker, sweep, moves_on=not (sweep.job_type == RETENTION and settings.prune_dry_run))
    _declare_events(broker)


def _declare_events(broker: Broker) -> None:
    """Old events go once an hour wherever events are kept; none that an enabled consumer has yet to see."""

    def handler(_: Tick, run: Run) -> Outcome:
        found = following.prune(broker.runtime.store, days=broker.runtime.settings.events_retention_days)
        return Done({"removed": found.removed, "held_by": found.held_by})

    options: dict[str, Any] = {"priority": PRIORITY}
    if broker.runtime.settings.events_outbox:
        options["periodic"] = INTERVALS[3600]
    declare(broker, handler, EVENTS, Tick, None, options)


def _declare(broker: Broker, sweep: _Sweep, *, moves_on: bool) -> None:
    def handler(_: Tick, run: Run) -> Outcome:
        found = sweep.work(run)
        if not found.led:
            # Somebody is at it, or died at it: then nobody else would finish it before the next tick.
            return Again(seconds=sweeps.TERM)
        # A pass that changed nothing would only be repeated.
        changed = found.fixed if isinstance(found, sweeps.Sound) else found.affected
        return Again() if found.more and changed and moves_on else Done(found._asdict())

    options: dict[str, Any] = {"priority": PRIORITY}
    if sweep.enforced:
        options["periodic"] = INTERVALS[sweep.interval]
    declare(broker, handler, sweep.job_type, Tick, None, options)
