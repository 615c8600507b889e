"""SLAs: how long a job of a type may wait once it is due, and how long a run may take.

They are documents of their own and not part of a type's policy, since operators set them and workers publish policies.
The triggers that write lifecycle events look at them (``Store.arm``), in the transaction of a claim and of a finish; a
database in which none is set has no such trigger.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, NamedTuple

from store.contract import ANY_VERSION, Document, Store
from store.errors import NotFound, UsageError
from store.filters import Filter
from store.following import armed
from store.identity import SEPARATOR, check_name
from store.job import Job, State
from store.outbox import DURATION, QUEUE_LATENCY, Limits

#: Seconds that a limit may have.
LEAST, MOST = 0.001, 366 * 86_400.0

#: Running rows that are looked at for breaches: far more than a fleet has slots.
_RUNNING_MOST, _PAGE = 10_000, 1_000


class Sla(NamedTuple):
    """The limits of a type, in one domain or (None) in all that have none of their own."""

    job_type: str
    domain: str | None
    limits: Limits


class Breach(NamedTuple):
    """A job that is over a limit right now."""

    job: Job
    limit: str  # ``queue_latency`` or ``duration``
    seconds: float
    allowed: float


def put(store: Store, job_type: str, limits: Limits, domain: str | None = None) -> None:
    """Set the limits of a type; in place of those that it had. Raises UsageError and StoreUnavailable."""
    if limits == Limits():
        raise UsageError("an SLA has a queue latency or a duration, or both")
    for name, value in limits._asdict().items():
        if value is not None and not (LEAST <= value <= MOST):
            raise UsageError(f"{name} lies between {LEAST} and {MOST:.0f} seconds")
    body = {name: float(value) for name, value in limits._asdict().items() if value is not None}
    store.put(Document("sla", _key(job_type, domain), ANY_VERSION, body))
    armed(store)


def remove(store: Store, job_type: str, domain: str | None = None) -> None:
    """Take the limits of a type away. Raises NotFound."""
    key = _key(job_type, domain)
    document = store.get("sla", key)
    if document is None or document.body.get("removed"):
        raise NotFound("there is no such SLA: see `dramaturg sla list`")
    store.put(Document("sla", key, ANY_VERSION, {"removed": True}))
    armed(store)


def every(store: Store) -> list[Sla]:
    """All that are set, by type and domain."""
    found = []
    for document in store.list("sla"):
        if not document.body.get("removed"):
            job_type, _, domain = document.key.partition(SEPARATOR)
            limits = Limits(document.body.get(QUEUE_LATENCY), document.body.get(DURATION))
            found.append(Sla(job_type, domain or None, limits))
    return found


def breaches(store: Store, *, limit: int = 100, now: datetime | None = None) -> list[Breach]:
    """Jobs that wait or run beyond their limits at this moment, the worst first, at most ``limit`` of each SLA's two
    kinds. What was breached before is in each job's history, and in the events."""
    slas = every(store)
    moment = now or store.ping()
    own: set[tuple[str, str | None]] = {(sla.job_type, sla.domain) for sla in slas if sla.domain is not None}
    found: list[Breach] = []
    for sla in slas:
        if sla.limits.queue_latency is not None:
            over = moment - timedelta(seconds=sla.limits.queue_latency)
            filter = Filter(domain=sla.domain, job_type=sla.job_type, phase="ready", run_before=over)
            found += [
                Breach(job, QUEUE_LATENCY, (moment - job.run_at).total_seconds(), sla.limits.queue_latency)
                for job in store.find(filter, order="claim", limit=limit, now=moment)
                if _governs(sla, job, own)
            ]
        if sla.limits.duration is not None:
            found += _running(store, sla, own, moment)[:limit]
    return sorted(found, key=lambda breach: breach.seconds - breach.allowed, reverse=True)


def _running(store: Store, sla: Sla, own: set[tuple[str, str | None]], moment: datetime) -> list[Breach]:
    allowed = sla.limits.duration
    assert allowed is not None
    found: list[Breach] = []
    page = Filter(domain=sla.domain, job_type=sla.job_type, states=(State.PROCESSING,))
    for _ in range(_RUNNING_MOST // _PAGE):
        rows = store.find(page, limit=_PAGE)
        for job in rows:
            seconds = (moment - job.started_at).total_seconds() if job.started_at is not None else 0.0
            if seconds > allowed and _governs(sla, job, own):
                found.append(Breach(job, DURATION, seconds, allowed))
        if len(rows) < _PAGE:
            break
        page = page._replace(after_id=rows[-1].id)
    return sorted(found, key=lambda breach: breach.seconds, reverse=True)


def _governs(sla: Sla, job: Job, own: set[tuple[str, str | None]]) -> bool:
    return sla.domain is not None or (job.job_type, job.domain) not in own


def document(sla: Sla) -> dict[str, Any]:
    """An SLA for scripts."""
    return {"type": sla.job_type, "domain": sla.domain, **sla.limits._asdict()}


def _key(job_type: str, domain: str | None) -> str:
    check_name("job type", job_type)
    return job_type if domain is None else f"{job_type}{SEPARATOR}{check_name('domain', domain)}"
