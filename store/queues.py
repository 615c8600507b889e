"""Queue controls: an operator stops a queue's claims, for one domain or for all, and lets them go on.

The store holds the operator's word (a document of kind ``queue``), and no claim passes it. A pause for all domains is
told to Valkey as well, so that nothing is taken there either, ordinary messages included; should Valkey lose it, the
scheduler says it again. What runs goes on, and what a worker had taken and not yet started goes back unpunished.
"""

from __future__ import annotations

import time
from datetime import datetime
from typing import NamedTuple

from store import clock
from store.contract import ANY_VERSION, Document, Store
from store.errors import StoreUnavailable, UsageError, ValkeyUnavailable
from store.filters import Filter
from store.identity import SEPARATOR, check_name
from store.valkey.entries import Offer
from store.valkey.leases import Leases
from store.valkey.scores import job_score

#: The kind of these documents.
KIND = "queue"

#: Rows that a resume offers by itself; the scheduler follows.
OFFERED_AT_ONCE = 100

#: Seconds between two looks of somebody who waits for a queue to be drained, at least and at most.
_LOOK = (0.05, 1.0)


class Control(NamedTuple):
    """An operator's word on a queue; ``domain`` None: for all domains. ``drain``: paused, and somebody waits for the
    last run to end."""

    queue: str
    domain: str | None
    paused: bool
    drain: bool


class Standing(NamedTuple):
    """Where a queue stands, for one domain or for all. ``paused`` and ``drain`` count the word for all domains too;
    ``running`` are those whose lease stands; ``oldest_ready`` is when the one that has waited longest became due."""

    queue: str
    domain: str | None
    paused: bool
    drain: bool
    running: int
    ready: int
    oldest_ready: datetime | None


class Told(NamedTuple):
    """``changed``: the word is a new one. ``reached``: Valkey has heard it, or needs not; else the scheduler tells it
    within a second or so, and the store enforces it at once."""

    changed: bool
    reached: bool


def pause(store: Store, leases: Leases | None, queue: str, domain: str | None = None, *, drain: bool = False) -> Told:
    """No claims from here on. Pausing what is drained leaves it drained. ``leases`` None:
    there is no Valkey to tell. Raises UsageError and StoreUnavailable."""
    changed = _say(store, queue, domain, paused=True, drain=drain)
    if domain is not None or leases is None:
        return Told(changed, True)  # of one domain the rows' claims are refused, one by one
    try:
        leases.pause(queue)
    except ValkeyUnavailable:
        return Told(changed, False)
    return Told(changed, True)


def resume(store: Store, leases: Leases | None, queue: str, domain: str | None = None) -> Told:
    """Claims go on, at once: rows that are due are offered here and now. A pause for a domain is not ended by a resume
    for all, nor the other way round. Raises UsageError and StoreUnavailable."""
    changed = _say(store, queue, domain, paused=False, drain=False)
    if leases is None:
        return Told(changed, True)
    try:
        if domain is None:
            leases.resume(queue)
        _offer(store, leases, queue)
    except ValkeyUnavailable:
        return Told(changed, False)
    return Told(changed, True)


def controls(store: Store) -> list[Control]:
    """Every word that stands or stood, by queue; one that can't be read counts as none."""
    found = []
    for document in store.list(KIND):
        queue, _, domain = document.key.partition(SEPARATOR)
        paused, drain = document.body.get("paused"), document.body.get("drain")
        found.append(Control(queue, domain or None, paused is True, paused is True and drain is True))
    return found


def standing(store: Store, queue: str, domain: str | None = None, *, now: datetime | None = None) -> Standing:
    """Where a queue stands. Raises UsageError for what can't be a name."""
    _check(queue, domain)
    words = [word for word in controls(store) if word.queue == queue and word.domain in (None, domain)]
    running = store.tally(Filter(queue=queue, domain=domain, states=("processing",), lapsed=False), now=now)
    waiting = store.tally(Filter(queue=queue, domain=domain, phase="ready"), now=now)
    return Standing(
        queue,
        domain,
        any(word.paused for word in words),
        any(word.drain for word in words),
        sum(one.processing for one in running),
        sum(one.ready for one in waiting),
        min((one.oldest_ready for one in waiting if one.oldest_ready is not None), default=None),
    )


def wait_drained(store: Store, queue: str, domain: str | None, seconds: float) -> Standing:
    """Wait until nothing of a queue runs, at most so many seconds; answers where it stands then. Whoever resumes the
    queue meanwhile ends the wait."""
    deadline = clock.elapsed() + seconds
    pause_, longest = _LOOK
    while True:
        now = standing(store, queue, domain)
        left = deadline - clock.elapsed()
        if not now.running or not now.paused or left <= 0:
            return now
        time.sleep(min(pause_, left))
        pause_ = min(2 * pause_, longest)


def _say(store: Store, queue: str, domain: str | None, *, paused: bool, drain: bool) -> bool:
    _check(queue, domain)
    key = queue if domain is None else f"{queue}{SEPARATOR}{domain}"
    for _ in range(5):
        old = store.get(KIND, key)
        body = {} if old is None else old.body
        drains = paused and (drain or (body.get("paused") is True and body.get("drain") is True))
        said = {"paused": paused, "drain": drains}
        if (body.get("paused") is True, body.get("drain") is True) == (paused, drains):
            return False
        if store.put(Document(KIND, key, 0 if old is None else old.version, said)):
            return True
    # Others change their minds all the time: of so many words this is simply the last one.
    return store.put(Document(KIND, key, ANY_VERSION, {"paused": paused, "drain": drain}))


def _check(queue: str, domain: str | None) -> None:
    check_name("queue", queue)
    if queue == "scheduler":
        raise UsageError("the queue 'scheduler' is the scheduler's own: a pause of it would stop every queue")
    if domain is not None:
        check_name("domain", domain)


def _offer(store: Store, leases: Leases, queue: str) -> None:
    try:
        due = [row for row in store.due(limit=OFFERED_AT_ONCE) if row.queue == queue]
    except StoreUnavailable:
        return  # the word was kept all the same, and the scheduler offers what is due
    offers = [Offer(f"j:{row.id}", job_score(row.priority, clock.micros(row.run_at) // 1000)) for row in due]
    leases.offer(queue, offers, watermark=OFFERED_AT_ONCE, force=True)
