"""Consumers, retention and SLAs, over each store."""

from __future__ import annotations

import pytest

from store import following, sla
from store.contract import ANY_VERSION, Document, Store
from store.errors import CursorTooOld, NotFound, Refused, UsageError
from store.outbox import Limits
from tests.contract.acts import at_once, take
from tests.contract.rows import NOW, TYPE, later, wake

OLD = -30 * following.DAY


@pytest.fixture
def ten(store: Store) -> Store:
    """Ten events, the first eight of them a month old."""
    assert following.switch_events(store, on=True)
    for number in range(10):
        store.wake([wake(str(number))], now=later(OLD if number < 8 else 0))
    return store


def test_switching_says_whether_it_is_new(store: Store) -> None:
    assert not following.events_on(store)
    assert following.switch_events(store, on=True)
    assert not following.switch_events(store, on=True)
    assert following.events_on(store)
    assert following.switch_events(store, on=False)
    assert not following.events_on(store)


def test_a_consumer_goes_on_where_it_was_and_how_far_it_is_behind_is_seen(ten: Store) -> None:
    mine = following.enlist(ten, "mine")
    assert (mine.cursor, mine.behind, mine.enabled) == (0, 10, True)
    page = ten.events(mine.cursor, limit=4)
    mine = following.advance(ten, mine, page.cursor)
    assert following.enlist(ten, "mine") == mine._replace(behind=6)
    assert following.enlist(ten, "late", newest=True).cursor == 10
    assert [(each.name, each.behind) for each in following.consumers(ten)] == [("late", 0), ("mine", 6)]
    with pytest.raises(UsageError):
        following.enlist(ten, "a\nb")


def test_two_that_follow_under_one_name_hear_of_each_other(ten: Store) -> None:
    first, second = following.enlist(ten, "mine"), following.enlist(ten, "mine")
    following.advance(ten, first, 3)
    with pytest.raises(Refused):
        following.advance(ten, second, 5)
    assert following.enlist(ten, "mine").cursor == 3


def test_one_that_is_disabled_while_it_follows_goes_on(ten: Store) -> None:
    mine = following.enlist(ten, "mine")
    following.enable(ten, "mine", enabled=False)
    mine = following.advance(ten, mine, 4)
    assert (mine.cursor, mine.enabled) == (4, False)
    assert following.advance(ten, mine, 5).cursor == 5


def test_pruning_never_passes_an_enabled_consumer(ten: Store) -> None:
    slow, quick = following.enlist(ten, "slow"), following.enlist(ten, "quick")
    following.advance(ten, slow, 3)
    following.advance(ten, quick, 9)

    assert following.prune(ten, days=7, now=NOW, dry_run=True) == (3, ["slow"], (1, 10))
    assert following.prune(ten, days=7, now=NOW) == (3, ["slow"], (4, 10))
    assert [event.position for event in ten.events(3).events] == list(range(4, 11))

    following.enable(ten, "slow", enabled=False)
    assert following.prune(ten, days=7, now=NOW, dry_run=True).removed == 5
    assert following.prune(ten, days=7, now=NOW) == (5, [], (9, 10))
    with pytest.raises(CursorTooOld):
        ten.events(3)
    [_, hung] = following.consumers(ten)
    assert (hung.name, hung.behind, hung.lost, hung.enabled) == ("slow", 7, 5, False)
    with pytest.raises(NotFound):
        following.enable(ten, "nobody", enabled=True)


def test_nothing_is_pruned_that_is_young(ten: Store) -> None:
    assert following.prune(ten, days=60, now=NOW).removed == 0
    assert following.prune(ten, days=0, now=later(1)).removed == 10
    assert following.prune(ten, days=0, now=later(1)).kept == (11, 10)


def test_readers_and_pruners_at_once_miss_nothing_silently(ten: Store, other: Store) -> None:
    def read() -> bool:
        cursor = 0
        try:
            while cursor < 10:
                page = ten.events(cursor, limit=2)
                assert [event.position for event in page.events] == list(range(cursor + 1, page.cursor + 1))
                cursor = page.cursor
        except CursorTooOld:
            pass
        return True

    def prune() -> bool:
        return following.prune(other, days=7, now=NOW).removed >= 0

    assert all(at_once([read, read, prune]))


def test_limits_are_set_listed_and_removed(store: Store) -> None:
    sla.put(store, TYPE, Limits(queue_latency=30))
    sla.put(store, TYPE, Limits(duration=5), "slow")
    sla.put(store, TYPE, Limits(queue_latency=60, duration=2.5))
    assert sla.every(store) == [(TYPE, None, (60.0, 2.5)), (TYPE, "slow", (None, 5.0))]
    sla.remove(store, TYPE, "slow")
    assert [(each.job_type, each.domain) for each in sla.every(store)] == [(TYPE, None)]
    with pytest.raises(NotFound):
        sla.remove(store, TYPE, "slow")
    for limits in (Limits(), Limits(queue_latency=0), Limits(duration=-1), Limits(duration=float("nan"))):
        with pytest.raises(UsageError):
            sla.put(store, TYPE, limits)


def test_jobs_that_are_over_their_limits_now_are_seen(store: Store) -> None:
    store.put(Document("policy", "other", ANY_VERSION, {"job_type": "other"}))
    sla.put(store, TYPE, Limits(queue_latency=30, duration=10))
    sla.put(store, TYPE, Limits(queue_latency=1000), "slow")
    store.wake([wake("waits"), wake("runs"), wake("waits", domain="slow"), wake("x", job_type="other")], now=NOW)
    store.wake([wake("young")], now=later(35))
    take(store, wake("runs").id, now=later(1))
    assert sla.breaches(store, now=later(5)) == []

    found = sla.breaches(store, now=later(40.5))
    assert [(each.job.key, each.limit, each.seconds, each.allowed) for each in found] == [
        ("runs", "duration", 39.5, 10.0),
        ("waits", "queue_latency", 40.5, 30.0),
    ]
    assert len(sla.breaches(store, now=later(2000))) == 4
