"""Changing the key on every store: all that can be opened is sealed anew, nothing is lost, and no run is disturbed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from store import rotation
from store.boundary import Boundary, guarded, place_of
from store.contract import Change, Store
from store.errors import StoreUnavailable, UsageError
from store.events import Kind, Wake
from store.filters import Filter
from store.following import switch_events
from store.job import Job
from store.operations import Item, settle
from store.policy import Policy
from store.rotation import BATCH, Rotated, rotate
from store.sealing import Key, Sealing, is_sealed, key_id
from store.transitions import Answer
from tests.contract.acts import change, read, take
from tests.contract.rows import TYPE, finish, row, wake

OLD, NEW, LOST = Key(b"o" * 32), Key(b"n" * 32), Key(b"l" * 32)
BEFORE = Boundary(Sealing(OLD, everywhere=True))
NOW_ = Boundary(Sealing(NEW, OLD, everywhere=True))
AFTER = Boundary(Sealing(NEW, everywhere=True))
HERE = Filter(job_type=TYPE)


def sealed_wakes(store: Store, boundary: Boundary, *wakes: Wake) -> list[str]:
    return [woken.id for woken in guarded(store, boundary).wake(list(wakes))]


def finished(store: Store, boundary: Boundary, id_: str, **values: Any) -> Job:
    """A run of the row that leaves these behind."""
    job = take(store, id_)
    kept = {field: boundary.keep(job, field, json.dumps(value)) for field, value in values.items()}
    end = finish(job, Kind.DONE, **kept) if "result" in kept else finish(job, Kind.PARK, sets_checkpoint=True, **kept)
    assert settle(store, [Item(id_, end, Policy(TYPE), job)])[0].answer is Answer.APPLIED
    return read(store, id_)


def test_a_wake_through_a_guarded_store_is_sealed_whichever_way_it_goes(store: Store) -> None:
    safe = guarded(store, BEFORE)
    ids = [safe.wake([wake("own")])[0].id]
    with safe.transaction() as tx:
        ids += [tx.wake([wake("tx")])[0].id, safe.adopt(tx).wake([wake("adopted")])[0].id]
    for id_ in ids:
        job = read(store, id_)
        assert is_sealed(job.payload)
        assert BEFORE.read(job, "payload") == '{"n":1}'
        assert '"n"' not in job.payload


def test_the_same_key_is_the_same_job_and_has_the_newest_payload(store: Store) -> None:
    [first] = sealed_wakes(store, BEFORE, wake("k", payload='{"n":1}'))
    [second] = sealed_wakes(store, NOW_, wake("k", payload='{"n":2}'))
    assert first == second
    assert NOW_.read(read(store, first), "payload") == '{"n":2}'


def test_nothing_stands_in_the_way_where_nothing_is_asked_for(store: Store) -> None:
    assert guarded(store, Boundary(Sealing(OLD))) is store
    only = Boundary(Sealing(OLD, domains={"office": True}))
    plain, office = sealed_wakes(store, only, wake("a"), wake("a", domain="office"))
    assert not is_sealed(read(store, plain).payload)
    assert is_sealed(read(store, office).payload)


def test_all_three_columns_are_sealed_anew_and_open_with_the_new_key_alone(store: Store) -> None:
    a, b = sealed_wakes(store, BEFORE, wake("a", payload='{"n":"one"}'), wake("b", payload='{"n":"two"}'))
    finished(store, BEFORE, a, result={"r": 1})
    finished(store, BEFORE, b, checkpoint={"c": 2})
    before = {id_: read(store, id_) for id_ in (a, b)}

    dry = rotate(store, NOW_.sealing, HERE, dry_run=True)
    assert {id_: read(store, id_) for id_ in (a, b)} == before
    assert rotate(store, NOW_.sealing, HERE) == dry == Rotated(2, 4, 0, 0, 0, 0, None)

    for id_ in (a, b):
        job = read(store, id_)
        opened, earlier = AFTER.opened(job), BEFORE.opened(before[id_])
        same = {"revision": 0, "updated_at": None}
        assert opened._replace(**same) == earlier._replace(**same)  # type: ignore[arg-type]
    assert rotate(store, AFTER.sealing, HERE) == Rotated(2, 0, 4, 0, 0, 0, None)


def test_what_no_key_opens_is_counted_and_never_touched(store: Store) -> None:
    lost, fine = sealed_wakes(store, Boundary(Sealing(LOST, everywhere=True)), wake("lost"), wake("lost too"))
    sealed_wakes(store, BEFORE, wake("lost too"))
    moved = read(store, fine).payload
    [other] = sealed_wakes(store, BEFORE, wake("moved"))
    assert store.swap([change(read(store, other), payload=moved)]) == [True]
    [odd] = sealed_wakes(store, Boundary(), wake("odd", payload='{"_encrypted": {"_enc": "rot13"}}'))
    before = {id_: read(store, id_) for id_ in (lost, other, odd)}
    told: list[str] = []

    done = rotate(store, NOW_.sealing, HERE, told=lambda job: told.append(job.id))

    assert done == Rotated(4, 1, 0, 0, 3, 0, None)
    assert sorted(told) == sorted([lost, other, odd])
    assert {id_: read(store, id_) for id_ in before} == before


def test_what_stands_in_the_clear_is_left_unless_it_is_asked_for(store: Store) -> None:
    clear, open_house = (woken.id for woken in store.wake([wake("a"), wake("a", domain="open")]))
    some = Boundary(Sealing(NEW, everywhere=True, domains={"open": False}))
    assert rotate(store, some.sealing, HERE) == Rotated(2, 0, 0, 2, 0, 0, None)
    assert rotate(store, some.sealing, HERE, seal_clear=True) == Rotated(2, 1, 0, 1, 0, 0, None)
    assert json.loads(some.read(read(store, clear), "payload") or "") == {"n": 1}
    assert not is_sealed(read(store, open_house).payload)


def test_bounded_calls_go_on_where_the_last_one_ended(store: Store) -> None:
    number = BATCH + 7
    sealed_wakes(store, BEFORE, *(wake(str(n)) for n in range(number)))
    page, calls, resealed = HERE, 0, 0
    while True:
        done = rotate(store, NOW_.sealing, page, limit=20)
        calls, resealed = calls + 1, resealed + done.resealed
        assert done.jobs <= 20
        if done.last_id is None:
            break
        page = page._replace(after_id=done.last_id)
    assert resealed == number
    assert calls == 3
    assert {key_id(job.payload) for job in store.find(HERE, limit=1000)} == {NEW.id}


def test_filters_narrow_it_down(store: Store) -> None:
    a, b = sealed_wakes(store, BEFORE, wake("a"), wake("b", domain="office"))
    assert rotate(store, NOW_.sealing, Filter(domain="office")).resealed == 1
    assert key_id(read(store, a).payload) == OLD.id
    assert key_id(read(store, b).payload) == NEW.id


def test_a_run_that_goes_on_meanwhile_ends_as_if_nothing_had_been(store: Store) -> None:
    [id_] = sealed_wakes(store, BEFORE, wake("k"))
    job = take(store, id_)

    assert rotate(store, NOW_.sealing, HERE).resealed == 1

    held = read(store, id_)
    assert (held.lease_id, held.attempt, held.generation, held.run_at, held.leased_until) == (
        job.lease_id, job.attempt, job.generation, job.run_at, job.leased_until,
    )  # fmt: skip
    [told] = settle(store, [Item(id_, finish(job, Kind.DONE, result="1"), Policy(TYPE), job)])
    assert told.answer is Answer.APPLIED
    ended = read(store, id_)
    assert ended.state == "completed"
    assert AFTER.read(ended, "payload") == '{"n":1}'


class Rushed:
    """The store, in which somebody else is faster before the first of our writes."""

    def __init__(self, store: Store, rush: Any, times: int = 1) -> None:
        self._store, self._rush, self._times = store, rush, times

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def swap(self, changes: Sequence[Change], **options: Any) -> list[bool]:
        if self._times:
            self._times -= 1
            self._rush()
        return self._store.swap(changes, **options)


def test_a_wake_that_is_faster_keeps_its_payload(store: Store) -> None:
    [id_] = sealed_wakes(store, BEFORE, wake("k", payload='{"n":1}'))
    rush = Rushed(store, lambda: sealed_wakes(store, BEFORE, wake("k", payload='{"n":2}')))
    assert rotate(rush, NOW_.sealing, HERE) == Rotated(1, 1, 0, 0, 0, 0, None)  # type: ignore[arg-type]
    assert AFTER.read(read(store, id_), "payload") == '{"n":2}'


def test_a_row_that_keeps_changing_is_told_and_left(store: Store) -> None:
    [id_] = sealed_wakes(store, BEFORE, wake("k"))
    rush = Rushed(store, lambda: sealed_wakes(store, BEFORE, wake("k")), rotation.ROUNDS)
    assert rotate(rush, NOW_.sealing, HERE) == Rotated(1, 0, 0, 0, 0, 1, None)  # type: ignore[arg-type]
    assert BEFORE.read(read(store, id_), "payload") == '{"n":1}'


def test_a_row_that_was_deleted_meanwhile_is_no_trouble(store: Store) -> None:
    from store.events import Prune
    from store.operations import apply

    [id_] = sealed_wakes(store, BEFORE, wake("k"))
    finished(store, BEFORE, id_, result=1)
    rush = Rushed(store, lambda: apply(store, HERE, lambda job: Prune(job.generation)))
    assert rotate(rush, NOW_.sealing, HERE) == Rotated(1, 0, 0, 0, 0, 0, None)  # type: ignore[arg-type]
    assert store.read([id_]) == [None]


def test_a_database_that_goes_away_in_between_leaves_every_row_whole(store: Store) -> None:
    sealed_wakes(store, BEFORE, *(wake(str(n)) for n in range(2 * BATCH)))
    calls = iter([False, True])

    def rush() -> None:
        if next(calls):
            raise StoreUnavailable("away in this test")

    with pytest.raises(StoreUnavailable):
        rotate(Rushed(store, rush, 2), NOW_.sealing, HERE)  # type: ignore[arg-type]
    jobs = store.find(HERE, limit=1000)
    assert {key_id(job.payload) for job in jobs} == {OLD.id, NEW.id}
    assert all(NOW_.read(job, "payload") == '{"n":1}' for job in jobs)
    done = rotate(store, NOW_.sealing, HERE)
    assert (done.resealed, done.current) == (BATCH, BATCH)


def test_events_of_others_do_not_tell_of_it(store: Store) -> None:
    switch_events(store, on=True)
    sealed_wakes(store, BEFORE, wake("k"))
    before = store.events(None, limit=1000)
    assert rotate(store, NOW_.sealing, HERE).resealed == 1
    after = store.events(None, limit=1000)
    assert before.events
    assert after.events == before.events


def test_without_a_key_nothing_is_rotated(store: Store) -> None:
    with pytest.raises(UsageError):
        rotate(store, Sealing(), HERE)


def test_every_row_that_the_schema_allows_can_hold_envelopes(store: Store) -> None:
    big = json.dumps({"text": "é" * 200_000})
    [id_] = sealed_wakes(store, BEFORE, wake("big", payload=big))
    job = read(store, id_)
    assert BEFORE.read(job, "payload") == big
    assert place_of(job, "payload").domain == row().domain


def test_a_replay_of_once_leaves_the_sealed_original_as_it_is(store: Store) -> None:
    first = wake("k", payload='{"n":1}', once=True)
    [id_] = sealed_wakes(store, BEFORE, first)
    before = read(store, id_)
    [again] = guarded(store, NOW_).wake([wake("k", payload='{"n":2}', once=True)])
    assert again.id == id_
    assert read(store, id_) == before
    assert BEFORE.read(before, "payload") == '{"n":1}'
