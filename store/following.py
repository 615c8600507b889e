"""What is done with lifecycle events, once for all stores: switching them, consumers with a cursor, retention."""

from __future__ import annotations

import time
from datetime import datetime
from typing import NamedTuple

from store.contract import ANY_VERSION, Document, Store
from store.errors import NotFound, Refused, StoreUnavailable
from store.identity import check_name
from store.outbox import Extent

#: Tries to switch the triggers while transactions that write jobs are open, and seconds between two.
_TRIES, _PAUSE = 5, 0.2

#: Events that one committed batch of pruning removes at most.
BATCH = 10_000

DAY = 86_400.0


def armed(store: Store) -> bool:
    """Have the store act as its documents say: ``Store.arm``, with patience. Raises StoreUnavailable."""
    for _ in range(_TRIES - 1):
        try:
            return store.arm()
        except StoreUnavailable:
            time.sleep(_PAUSE)  # whoever was waiting behind us goes first
    return store.arm()


def events_on(store: Store) -> bool:
    """Whether lifecycle events are written."""
    document = store.get("outbox", "events")
    return document is not None and document.body.get("on") is True


def switch_events(store: Store, *, on: bool) -> bool:
    """Write lifecycle events from here on, or no more; whether that is new. Raises StoreUnavailable."""
    changes = events_on(store) != on
    if changes:
        store.put(Document("outbox", "events", ANY_VERSION, {"on": on}))
    armed(store)
    return changes


class Consumer(NamedTuple):
    """Somebody who follows the events. ``behind``: events that it has not committed yet; ``lost``: of those the ones
    that are gone. One that is not enabled keeps no event from being pruned."""

    name: str
    cursor: int
    enabled: bool
    behind: int
    lost: int
    version: int


def consumers(store: Store) -> list[Consumer]:
    """All consumers, by name, with how far they are behind."""
    kept = store.extent()
    return [_consumer(document, kept) for document in store.list("consumer") if "cursor" in document.body]


def consumer(store: Store, name: str) -> Consumer | None:
    """One consumer; None where nobody made it."""
    document = store.get("consumer", check_name("consumer", name))
    return None if document is None or "cursor" not in document.body else _consumer(document, store.extent())


def enlist(store: Store, name: str, *, newest: bool = False) -> Consumer:
    """The consumer of that name, made at the oldest event that is kept (or behind the newest) where there is none."""
    found = consumer(store, name)
    if found is None:
        kept = store.extent()
        cursor = kept.newest if newest else kept.oldest - 1
        document = store.get("consumer", name)
        version = 0 if document is None else document.version
        store.put(Document("consumer", name, version, {"cursor": cursor, "enabled": True}))
        found = consumer(store, name)
        assert found is not None
    return found


def advance(store: Store, follower: Consumer, cursor: int) -> Consumer:
    """Commit ``cursor`` for a consumer; raises Refused where another process follows under its name."""
    now = follower
    for _ in range(_TRIES):
        body = {"cursor": cursor, "enabled": now.enabled}
        if store.put(Document("consumer", now.name, now.version, body)):
            return now._replace(cursor=cursor, version=now.version + 1)
        now = consumer(store, follower.name) or now
        if now.cursor != follower.cursor:
            break  # not only enabled or disabled by somebody
    raise Refused(f"somebody else moved the consumer {follower.name!r}: let one process at a time follow under a name")


def enable(store: Store, name: str, *, enabled: bool) -> Consumer:
    """Have a consumer keep its events from being pruned, or no longer. Raises NotFound."""
    found = consumer(store, name)
    if found is None:
        raise NotFound(f"there is no consumer {name!r}: see `dramaturg events consumers`")
    store.put(Document("consumer", name, ANY_VERSION, {"cursor": found.cursor, "enabled": enabled}))
    return found._replace(enabled=enabled, version=found.version + 1)


class Pruned(NamedTuple):
    """What pruning removed, the consumers that hold events which are old enough, and what is kept."""

    removed: int
    held_by: list[str]
    kept: Extent


def prune(store: Store, *, days: float, now: datetime | None = None, dry_run: bool = False) -> Pruned:
    """Remove events that are older than ``days``, in committed batches, none that an enabled consumer has yet to see.

    A dry run counts the same events and removes none.
    """
    enabled = [each for each in consumers(store) if each.enabled]
    kept = store.extent()
    through = min([kept.newest, *(each.cursor for each in enabled)])
    removed = 0
    if dry_run:
        removed = _old(store, days * DAY, through, now)
    else:
        while (gone := store.prune_events(seconds=days * DAY, through=through, limit=BATCH, now=now)) > 0:
            removed += gone
    held: list[str] = []
    if through < kept.newest and _old(store, days * DAY, through + 1, now, after=through):
        held = sorted(each.name for each in enabled if each.cursor == through)
    return Pruned(removed, held, store.extent())


def _old(store: Store, seconds: float, through: int, now: datetime | None, after: int | None = None) -> int:
    """Events behind ``after`` that pruning would remove."""
    moment, found, cursor = now or store.ping(), 0, after
    while True:
        page = store.events(cursor, limit=BATCH)
        for event in page.events:
            if event.position > through or (moment - event.at).total_seconds() <= seconds:
                return found
            found += 1
        if not page.events:
            return found
        cursor = page.cursor


def _consumer(document: Document, kept: Extent) -> Consumer:
    cursor = int(document.body["cursor"])
    behind = max(0, kept.newest - cursor)
    lost = max(0, kept.oldest - 1 - cursor)
    return Consumer(document.key, cursor, document.body.get("enabled") is True, behind, lost, document.version)
