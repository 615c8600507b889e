"""Counts of jobs by domain, queue and type, with the groups that are empty and still named by somebody."""

from __future__ import annotations

from datetime import datetime

from store.contract import Store
from store.filters import Filter, Tally
from store.identity import DEFAULT_DOMAIN, SEPARATOR
from store.operations import policies


def counts(store: Store, filter: Filter, *, now: datetime | None = None) -> list[Tally]:
    """``Store.tally``, and a record of zeros for each group that has no rows but is named: every published type in its
    queue, for the default domain, and for each domain in which that queue is paused by itself.

    A filter that asks for more than domain, queue and type is about rows, and names no groups.
    """
    found = store.tally(filter, now=now)
    if filter != Filter(domain=filter.domain, queue=filter.queue, job_type=filter.job_type):
        return found
    there = {(tally.domain, tally.queue, tally.job_type) for tally in found}
    served = {(tally.queue, tally.job_type) for tally in found}
    published = [(policy.queue, job_type) for job_type, policy in policies(store).items()]
    named = {(DEFAULT_DOMAIN, *group) for group in published if group not in served}
    for document in store.list("queue"):
        queue, _, domain = document.key.partition(SEPARATOR)
        if domain and document.body.get("paused"):
            named |= {(domain, *group) for group in published if group[0] == queue}
    empty = [Tally(*group, 0, 0, 0, 0, 0, 0, 0, 0, None) for group in named - there if _asked(filter, group)]
    return sorted([*found, *empty], key=lambda tally: (tally.domain, tally.queue, tally.job_type))


def _asked(filter: Filter, group: tuple[str, str, str]) -> bool:
    asked = (filter.domain, filter.queue, filter.job_type)
    return all(wanted in (None, name) for wanted, name in zip(asked, group, strict=True))
