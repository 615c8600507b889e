"""Changing the key of deleted jobs that were kept, on every store: the same rules as for those that are there."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from store import archive
from store.archive import Archiving
from store.boundary import Boundary, guarded
from store.contract import ARCHIVE_START, Store
from store.errors import PayloadSealed, UsageError
from store.events import Cancel
from store.filters import Filter
from store.operations import apply
from store.rotation import BATCH, Rotated, rotate_archive
from store.scope import ScopedStore
from store.sealing import Key, Sealing, is_sealed, key_id
from store.sweeps import prune
from tests.contract.rows import TYPE, wake

OLD, NEW, LOST = Key(b"o" * 32), Key(b"n" * 32), Key(b"l" * 32)
BEFORE, NOW_, AFTER, GONE = (
    Boundary(Sealing(*keys, everywhere=True)) for keys in ((OLD,), (NEW, OLD), (NEW,), (LOST,))
)
HERE = Filter(job_type=TYPE)
KEPT_AT = datetime(2026, 3, 1, 9, 0, tzinfo=UTC)
PAYLOAD = '{"n":9007199254740993,"x":"é"}'


def keep(store: Store, boundary: Boundary, *keys: str, how: Archiving | None = None, domain: str = "default") -> None:
    """Jobs of these keys, woken through ``boundary``, ended, deleted and kept."""
    wakes = [wake(key, payload=PAYLOAD, domain=domain) for key in keys]
    ids = [woken.id for woken in guarded(store, boundary).wake(wakes)]
    apply(store, Filter(ids=ids), Cancel())
    assert prune(store, Filter(ids=ids), archive=how or Archiving(), now=KEPT_AT).affected == len(keys)


@pytest.mark.parametrize("how", [Archiving(), Archiving(compress=True), Archiving(compress=True, drop_json=True)])
def test_what_is_kept_is_sealed_anew_and_opens_with_the_new_key_alone(store: Store, how: Archiving) -> None:
    keep(store, BEFORE, "a", how=how)
    [before] = store.archive_page()
    places = archive.texts(before)
    assert all(is_sealed(text) for text in places.values())

    dry = rotate_archive(store, NOW_.sealing, HERE, dry_run=True)
    assert store.archive_page() == [before]
    assert rotate_archive(store, NOW_.sealing, HERE) == dry == Rotated(1, len(places), 0, 0, 0, 0, None)

    [after] = store.archive_page()
    assert after.archived_at == before.archived_at == KEPT_AT
    assert {key_id(text) for text in archive.texts(after).values()} == {NEW.id}
    assert set(archive.texts(after)) == set(places)
    opened, earlier = AFTER.opened_archive(after), BEFORE.opened_archive(before)
    assert archive.read(opened) == archive.read(earlier)
    assert archive.read(opened)["payload"] == json.loads(PAYLOAD)
    with pytest.raises(PayloadSealed):
        BEFORE.opened_archive(after)


def test_columns_that_are_not_sealed_stay_as_they_were_spelled(store: Store) -> None:
    keep(store, BEFORE, "a")
    [kept] = store.archive_page()
    spelled = kept.job.replace('"result":null', '"result":{ "x" : [1.10, 1e5, "\\u00e9,}\\""] }')
    assert spelled != kept.job
    with store.transaction() as tx:
        tx.archive([kept._replace(job=spelled)])
    [before] = store.archive_page()
    assert rotate_archive(store, NOW_.sealing, HERE) == Rotated(1, 1, 0, 1, 0, 0, None)
    [after] = store.archive_page()
    assert archive.texts(after)["result"] == archive.texts(before)["result"]
    assert archive.read(after) | {"payload": 0} == archive.read(before) | {"payload": 0}


def test_what_no_key_opens_is_counted_and_never_touched(store: Store) -> None:
    keep(store, GONE, "lost")
    keep(store, BEFORE, "ours")
    [lost] = [kept for kept in store.archive_page() if kept.key == "lost"]
    told: list[Any] = []
    assert rotate_archive(store, NOW_.sealing, HERE, told=told.append) == Rotated(2, 1, 0, 0, 1, 0, None)
    assert told == [lost]
    assert store.archived(lost.id) == [lost]


def test_what_is_kept_in_the_clear_is_left_unless_it_is_asked_for(store: Store) -> None:
    keep(store, Boundary(), "a")
    assert rotate_archive(store, NOW_.sealing, HERE) == Rotated(1, 0, 0, 1, 0, 0, None)
    assert rotate_archive(store, NOW_.sealing, HERE, seal_clear=True) == Rotated(1, 1, 0, 0, 0, 0, None)
    [kept] = store.archive_page()
    assert archive.read(NOW_.opened_archive(kept))["payload"] == json.loads(PAYLOAD)


def test_bounded_calls_go_on_where_the_last_one_ended_and_each_life_counts(store: Store) -> None:
    number = BATCH + 3
    keep(store, BEFORE, *(str(n) for n in range(number)))
    keep(store, BEFORE, "0")
    after, calls, resealed = ARCHIVE_START, 0, 0
    while True:
        done = rotate_archive(store, NOW_.sealing, HERE, after=after, limit=20)
        calls, resealed = calls + 1, resealed + done.resealed
        if done.last_id is None:
            break
        id_, _, generation = done.last_id.partition(":")
        after = (id_, int(generation))
    assert (calls, resealed) == (3, number + 1)
    page = store.archive_page(limit=1000)
    assert [(kept.id, kept.generation) for kept in page] == sorted((kept.id, kept.generation) for kept in page)
    assert rotate_archive(store, AFTER.sealing, HERE).current == number + 1


def test_filters_narrow_it_down_and_those_that_it_does_not_know_are_refused(store: Store) -> None:
    keep(store, BEFORE, "a")
    keep(store, BEFORE, "b", domain="office")
    assert rotate_archive(store, NOW_.sealing, Filter(domain="office")).resealed == 1
    assert rotate_archive(store, NOW_.sealing, Filter(key="b")).jobs == 1
    with pytest.raises(UsageError):
        rotate_archive(store, NOW_.sealing, Filter(states=("completed",)))
    with pytest.raises(UsageError):
        rotate_archive(store, Sealing(), HERE)


def test_a_store_that_works_for_some_domains_rotates_theirs_alone(store: Store) -> None:
    keep(store, BEFORE, *(str(n) for n in range(5)))
    keep(store, BEFORE, *(str(n) for n in range(5)), domain="office")
    office: Store = ScopedStore(store, ["office"])  # type: ignore[assignment]
    assert rotate_archive(office, NOW_.sealing, HERE, limit=3).resealed == 3
    assert rotate_archive(office, NOW_.sealing, HERE) == Rotated(5, 2, 3, 0, 0, 0, None)
    assert rotate_archive(store, AFTER.sealing, HERE) == Rotated(10, 0, 5, 0, 5, 0, None)
