"""Limits: which queues and job types are allowed, and how much there may be of a domain's or an owner's work.

Documents are the truth, so that a wake in any language and a claim in any process obey the same figures:

- kind ``allow``, key ``queues`` or ``types``, U+001F, a domain (empty: all domains), body ``{"names": [...]}``. A
  domain's list adds to the one for all domains; where neither is there, everything is allowed. The queues that always
  exist are always allowed.
- kind ``quota``, key domain (or nothing), U+001F, owner (or nothing), body with one or more of ``FIGURES``.

Of each figure a row is governed by the most specific quota that sets it (domain and owner, owner, domain, all), and it
counts for that one and for no other. What was submitted stands in documents of kind ``spent`` under the same key, which
racing wakes take turns at; claims take turns at those of kind ``flight``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final, NamedTuple

from store.contract import Document, Store
from store.errors import NotAllowed, NotFound, QuotaExceeded, StoreUnavailable, UsageError
from store.filters import Filter
from store.identity import SEPARATOR, STANDARD_QUEUES, check_name
from store.job import Job, State

ALLOW: Final = "allow"
QUOTA: Final = "quota"
SPENT: Final = "spent"

#: What a quota may bound, with how people are told of it.
FIGURES: Final = {
    "max_queued": "jobs that wait",
    "submits_per_minute": "submits in a minute",
    "max_in_flight": "jobs that run",
}

#: A figure at most.
MOST: Final = 1_000_000_000


class Quota(NamedTuple):
    """One quota; ``domain`` or ``owner`` None: of all. A figure of None is not set here."""

    domain: str | None
    owner: str | None
    max_queued: int | None = None
    submits_per_minute: int | None = None
    max_in_flight: int | None = None


class Limits(NamedTuple):
    """All limits of a store as they were read. ``figures``: by figure, then by the quota's key."""

    lists: Mapping[str, frozenset[str]]
    figures: Mapping[str, Mapping[str, int]]

    def fault(self, domain: str, queue: str, job_type: str) -> str | None:
        """Why a row of these names may not run, in our words; None where it may."""
        if queue not in STANDARD_QUEUES and not self._listed("queues", domain, queue):
            return f"queue {queue!r} is not on the list of allowed queues (JOBS_ALLOWED_QUEUES)"
        if not self._listed("types", domain, job_type):
            return f"job type {job_type!r} is not on the list of allowed job types (JOBS_ALLOWED_JOB_TYPES)"
        return None

    def governing(self, figure: str, domain: str, owner: str | None) -> str | None:
        """The key of the quota that governs a row for this figure; None where none does."""
        keys = self.figures[figure]
        return next((key for key in scopes(domain, owner) if key in keys), None)

    def _listed(self, what: str, domain: str, name: str) -> bool:
        found = [self.lists[key] for key in (list_key(what), list_key(what, domain)) if key in self.lists]
        return not found or any(name in names for names in found)


def kept_back(store: Store, job: Job, now: datetime) -> str | None:
    """Why limits keep a job from starting, in our words; None where they don't, or it is not due."""
    if job.state != State.QUEUED or job.run_at > now or (there := limits(store)) is None:
        return None
    if (fault := there.fault(job.domain, job.queue, job.job_type)) is not None:
        return f"{fault} for domain {job.domain!r}"
    if (key := there.governing("max_in_flight", job.domain, job.owner)) is None:
        return None
    running = store.find(Filter(states=(State.PROCESSING,), lapsed=False), limit=10_000)
    live = sum(there.governing("max_in_flight", row.domain, row.owner) == key for row in running)
    most = there.figures["max_in_flight"][key]
    return None if live < most else f"the quota of {most} {FIGURES['max_in_flight']} for {scope(key)} is reached"


def scopes(domain: str, owner: str | None) -> list[str]:
    """The keys under which a quota for a row may stand, the most specific one first."""
    ofowner = [] if owner is None else [scope_key(domain, owner), scope_key(None, owner)]
    return [*ofowner, scope_key(domain, None), scope_key(None, None)]


def scope_key(domain: str | None, owner: str | None) -> str:
    """The key of a quota."""
    return f"{domain or ''}{SEPARATOR}{owner or ''}"


def list_key(what: str, domain: str | None = None) -> str:
    """The key of an allow-list of ``queues`` or ``types``."""
    return f"{what}{SEPARATOR}{domain or ''}"


def limits_of(documents: Iterable[Document]) -> Limits | None:
    """The limits in documents of both kinds; None where there are none. What can't be read limits nothing."""
    lists: dict[str, frozenset[str]] = {}
    figures: dict[str, dict[str, int]] = {figure: {} for figure in FIGURES}
    for document in documents:
        if document.kind == ALLOW:
            names = document.body.get("names")
            if isinstance(names, list):
                lists[document.key] = frozenset(name for name in names if isinstance(name, str))
        elif document.kind == QUOTA:
            for figure in FIGURES:
                most = document.body.get(figure)
                if isinstance(most, int):
                    figures[figure][document.key] = most
    return Limits(lists, figures) if lists or any(figures.values()) else None


def limits(store: Store) -> Limits | None:
    """The limits of a store, None where there are none."""
    return limits_of([*store.list(ALLOW), *store.list(QUOTA)])


def exceeded(figure: str, key: str, most: int) -> QuotaExceeded:
    """The error that says which quota is reached."""
    return QuotaExceeded(
        f"the quota of {most} {FIGURES[figure]} for {scope(key)} is reached: nothing was changed; wait, or raise it "
        "(dramaturg quota set)"
    )


def not_allowed(fault: str, domain: str) -> NotAllowed:
    """The error that says what is on no list."""
    return NotAllowed(f"{fault} for domain {domain!r}: nothing was changed; add it to the list, or choose another")


def scope(key: str) -> str:
    """The scope of a quota's key, for people."""
    domain, _, owner = key.partition(SEPARATOR)
    parts = ([f"domain {domain}"] if domain else []) + ([f"owner {owner}"] if owner else [])
    return " and ".join(parts) or "everything"


# --- what an operator does --------------------------------------------------------------------------------------------


def quotas(store: Store) -> list[Quota]:
    """Every quota, ordered by domain and owner."""
    found = []
    for document in store.list(QUOTA):
        domain, _, owner = document.key.partition(SEPARATOR)
        figures = {figure: most for figure in FIGURES if isinstance(most := document.body.get(figure), int)}
        found.append(Quota(domain or None, owner or None, **figures))
    return found


def set_quota(store: Store, quota: Quota) -> Quota:
    """Set the figures that are given, leave the others of that quota as they are, and answer the whole.

    Raises UsageError for a figure that can't be, or none at all.
    """
    for name, value in (("domain", quota.domain), ("owner", quota.owner)):
        if value is not None:
            check_name(name, value)
    figures = {figure: most for figure in FIGURES if (most := getattr(quota, figure)) is not None}
    for figure, most in figures.items():
        if isinstance(most, bool) or not isinstance(most, int) or not 0 <= most <= MOST:
            raise UsageError(f"{figure} must be a whole number from 0 to {MOST}")
    if not figures:
        raise UsageError(f"a quota sets at least one of {', '.join(FIGURES)}")
    key = scope_key(quota.domain, quota.owner)
    for _ in range(5):
        there = store.get(QUOTA, key)
        old = {} if there is None else {figure: most for figure, most in there.body.items() if figure in FIGURES}
        whole = Quota(quota.domain, quota.owner, **(old | figures))
        if old == old | figures or store.put(Document(QUOTA, key, there.version if there else 0, old | figures)):
            return whole
    raise StoreUnavailable("others change the same quota all the time: try again")


def remove_quota(store: Store, domain: str | None, owner: str | None) -> None:
    """Take a quota away, and its counters with it. Raises NotFound."""
    key = scope_key(domain, owner)
    if not store.remove(QUOTA, key):
        raise NotFound(f"there is no quota for {scope(key)}: see `dramaturg quota list`")
    for kind in (SPENT, "flight"):
        store.remove(kind, key)
