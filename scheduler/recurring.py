"""Recurring jobs: the published schedules, their stored last ticks, and the one transaction that fires."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

from middleware import logs
from middleware.ringing import Hint
from middleware.runtime import Runtime
from scheduler.ticks import Cron, missed, next_tick, parse
from store import clock, payloads
from store.contract import Document
from store.errors import StoreUnavailable, UsageError
from store.events import Wake
from store.identity import DEFAULT_DOMAIN, job_id
from store.job import Job, State
from store.operations import read_policy
from store.policy import Policy
from store.settings import ALL

#: Seconds between two readings of the published schedules.
READ_EVERY = 15.0

#: Ticks that one schedule may catch up in one look; the rest follow in the next.
CATCH_UP_MOST = 100


class Recurring:
    """Fires what is due. A schedule that can't be read is told once and leaves the others alone."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._schedules: list[tuple[Policy, Cron, ZoneInfo]] = []
        self._read_at = 0.0
        self._look_at: datetime | None = None
        self._told: set[str] = set()

    def fire(self) -> None:
        """Fire every schedule whose tick has come by the store's clock. Raises StoreUnavailable."""
        moment = clock.elapsed()
        if moment >= self._read_at:
            self._read_at = moment + READ_EVERY
            self._schedules = self._read()
            self._look_at = None
        # The machine's clock only says when it is worth asking; the store's says what is due.
        if not self._schedules or (self._look_at is not None and clock.wall() < self._look_at):
            return
        now = self._runtime.store.ping()
        coming = []
        for policy, cron, zone in self._schedules:
            try:
                more = fire_due(self._runtime, policy, cron, zone, now)
                coming.append(now if more else next_tick(cron, now, zone))
            except StoreUnavailable:
                raise
            except Exception as error:  # noqa: BLE001 - one schedule's trouble, whatever it is, is not the others'
                self._tell(policy.job_type, error)
        self._look_at = min(coming, default=None)

    def _read(self) -> list[tuple[Policy, Cron, ZoneInfo]]:
        scope = self._runtime.settings.scope
        if scope is not None and not {DEFAULT_DOMAIN, ALL} & set(scope):
            return []  # their rows stand in a domain that a fleet with it in scope looks after
        found = []
        for document in self._runtime.store.list("policy"):
            try:
                if document.body.get("periodic") is None:
                    continue
                policy = read_policy(document)
                if policy is None or policy.periodic is None:
                    raise UsageError("its policy can't be read")
                found.append((policy, parse(policy.periodic), ZoneInfo(policy.zone)))
            except Exception as error:  # noqa: BLE001 - whatever a document holds, it leaves the others alone
                self._tell(document.key, error)
        return found

    def _tell(self, schedule: str, error: Exception) -> None:
        if schedule not in self._told:
            self._told.add(schedule)
            logs.schedule_unusable(schedule, error)


def fire_due(runtime: Runtime, policy: Policy, cron: Cron, zone: ZoneInfo, now: datetime) -> bool:
    """Fire what has come of one schedule since the stored tick; True if more is to be caught up soon.

    One transaction moves the last tick on by compare-and-set and writes the wake, so that two schedulers never fire
    twice and a crash in between fires neither zero times nor twice. A schedule has one live row: ticks that come while
    it waits or runs coalesce, except with catch-up ``all``, where each tick waits for the run of the one before.
    """
    stored = runtime.store.get("schedule", policy.job_type)
    last = _last_tick(stored)
    ticks = missed(cron, last, now, zone, policy.catch_up, limit=CATCH_UP_MOST)
    if last is not None and not ticks:
        return False
    identity = job_id(DEFAULT_DOMAIN, policy.queue, policy.job_type, policy.job_type)
    if policy.catch_up == "all" and ticks and _busy(runtime.store.read([identity])[0]):
        return True
    fired = ticks[:1] if policy.catch_up == "all" else ticks[-1:]
    marker = Document(
        "schedule",
        policy.job_type,
        0 if stored is None else stored.version,
        {"last_tick": clock.micros(fired[0] if fired else now)},
    )
    with runtime.store.transaction() as tx:
        if not tx.put(marker):
            return True  # another scheduler was faster
        tx.wake([_wake(identity, policy, tick) for tick in fired])
    runtime.ring(Hint(policy.queue, identity, policy.priority) for _ in fired)
    return len(ticks) > len(fired) and policy.catch_up == "all"


def _busy(job: Job | None) -> bool:
    return job is not None and (
        job.state == State.PROCESSING or (job.state == State.QUEUED and job.run_at != clock.PARKED)
    )


def _wake(identity: str, policy: Policy, tick: datetime) -> Wake:
    return Wake(
        id=identity,
        domain=DEFAULT_DOMAIN,
        queue=policy.queue,
        job_type=policy.job_type,
        key=policy.job_type,
        payload=payloads.encode({"tick": tick.isoformat()}),
        priority=policy.priority,
        max_retries=policy.max_retries,
    )


def _last_tick(stored: Document | None) -> datetime | None:
    if stored is None:
        return None
    value = stored.body.get("last_tick") if isinstance(stored.body, dict) else None
    if not isinstance(value, int) or isinstance(value, bool):
        raise UsageError("the stored tick can't be read: delete the document of this schedule to start it anew")
    try:
        return clock.from_micros(value)
    except OverflowError:
        raise UsageError(
            "the stored tick is no moment: delete the document of this schedule to start it anew"
        ) from None
