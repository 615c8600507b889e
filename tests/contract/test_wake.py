"""A wake: this work is wanted."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta, timezone
from functools import partial
from typing import Any

import pytest

from store import clock
from store.clock import PARKED
from store.contract import Store
from store.events import Kind
from store.policy import Policy
from store.transitions import after
from tests.contract import rows
from tests.contract.acts import GivenUp, at_once, change, differences, read, settle, take
from tests.contract.adapters import Adapter
from tests.contract.rows import NOW, TYPE, later, row, wake

POLICY = Policy(TYPE)


TERMINAL = ("completed", "failed", "cancelled")


def test_a_wake_makes_a_row(store: Store) -> None:
    event = wake(owner="o", priority=2, max_retries=3, request_id="r", trace="t", run_at=later(-5), delay=2.5)

    [woken] = store.wake([event], now=NOW)

    assert not differences(read(store, event.id), after(None, event, NOW, POLICY))
    assert woken[:4] == (event.id, "queued", read(store, event.id).generation, later(-2.5))
    assert (woken.created, woken.repeated, woken.due) == (True, False, True)


def test_a_row_is_read_with_the_types_that_it_declares(store: Store) -> None:
    store.wake([wake()], now=NOW)

    job = read(store, wake().id)

    assert {name: type(getattr(job, name)) for name in ("id", "payload", "generation", "priority", "stopping")} == {
        "id": str,
        "payload": str,
        "generation": int,
        "priority": int,
        "stopping": bool,
    }
    assert job.run_at.utcoffset() == timedelta(0)


def test_a_wake_without_a_time_is_due_at_the_databases_now(store: Store) -> None:
    before = store.ping()
    [now, soon] = store.wake([wake("now"), wake("soon", delay=3600)])
    after_ = store.ping()

    assert before <= now.run_at <= after_
    assert before <= soon.run_at - timedelta(hours=1) <= after_
    assert (now.due, soon.due) == (True, False)
    job = read(store, now.id)
    assert job.created_at == job.updated_at
    assert before <= job.created_at <= after_


def test_a_moment_is_kept_to_the_microsecond_whatever_its_zone(store: Store) -> None:
    moment = later(3600) + timedelta(microseconds=123457)

    store.wake([wake(run_at=moment.astimezone(timezone(timedelta(hours=-9, minutes=-30))))], now=NOW)

    assert read(store, wake().id).run_at == moment


def test_a_wake_for_no_time_is_parked(store: Store) -> None:
    [woken] = store.wake([wake(run_at=PARKED, delay=5)], now=NOW)

    assert (woken.run_at, woken.due) == (PARKED, False)
    assert read(store, woken.id).run_at == PARKED


@pytest.mark.parametrize("seconds", [2.2e11, 2.7e11, 1e12])
def test_a_wake_beyond_the_calendar_is_parked_and_one_within_it_is_not(store: Store, seconds: float) -> None:
    [woken] = store.wake([wake(delay=seconds)], now=NOW)

    assert woken.run_at == clock.later(NOW, seconds)
    assert (woken.run_at == PARKED) == (seconds > 2.6e11)
    assert read(store, woken.id).run_at == woken.run_at


@pytest.mark.parametrize("state", ["queued", "processing"])
def test_a_wake_joins_a_live_row(store: Store, adapter: Adapter, state: str) -> None:
    before = row(state, owner="first", priority=4, retries=2, failure_streak=2, failure_code="x", run_at=later(50))
    adapter.plant(store, [before])
    event = wake(owner="second", priority=6, payload="[2]", delay=10, max_retries=9)

    [woken] = store.wake([event], now=NOW)

    found = read(store, before.id)
    assert not differences(found, after(before, event, NOW, POLICY))
    assert (found.owner, found.priority, found.payload, found.run_at) == ("first", 4, "[2]", later(10))
    assert woken == (before.id, state, before.generation + 1, later(10), False, False, False)


def test_the_more_urgent_priority_and_the_earlier_time_win(store: Store) -> None:
    store.wake([wake(priority=7, run_at=later(5))], now=NOW)

    [woken] = store.wake([wake(priority=2, run_at=later(50))], now=NOW)

    assert woken.run_at == later(5)
    assert read(store, woken.id).priority == 2


@pytest.mark.parametrize("state", rows.STATES)
def test_a_wake_once_leaves_the_original_untouched(store: Store, adapter: Adapter, state: str) -> None:
    before = row(state)
    adapter.plant(store, [before])

    [woken] = store.wake([wake(payload='{"n":2}', priority=1, once=True)], now=NOW)

    assert not differences(read(store, before.id), before)
    assert woken == (before.id, state, before.generation, before.run_at, False, True, state == "queued")


def test_once_works_again_when_the_original_is_gone(store: Store) -> None:
    [first] = store.wake([wake(once=True)], now=NOW)
    job = take(store, first.id, now=NOW)
    assert settle(store, job, rows.finish(job), Policy(TYPE, keep_finished=False), now=NOW)

    [second] = store.wake([wake(once=True)], now=later(1))

    assert (second.created, second.repeated) == (True, False)


def test_a_held_row_stays_held_and_its_waker_is_told(store: Store, adapter: Adapter) -> None:
    adapter.plant(store, [row("quarantined")])

    [woken] = store.wake([wake(payload="[2]", delay=3)], now=NOW)

    assert (woken.state, woken.due, woken.created) == ("quarantined", False, False)
    assert read(store, woken.id).payload == "[2]"
    assert read(store, woken.id).held_at == row("quarantined").held_at


@pytest.mark.parametrize("state", TERMINAL)
def test_an_ended_row_starts_afresh(store: Store, adapter: Adapter, state: str) -> None:
    before = row(
        state, priority=2, retries=4, failure='{"code":"x"}', failure_code="x", failure_streak=4, last_error="e"
    )
    adapter.plant(store, [before])

    [woken] = store.wake([wake(priority=8, delay=20)], now=NOW)

    found = read(store, before.id)
    assert not differences(found, after(before, wake(priority=8, delay=20), NOW, POLICY))
    assert (found.state, found.retries, found.priority, found.finished_at) == ("queued", 0, 8, None)
    assert (woken.state, woken.created, woken.run_at) == ("queued", False, later(20))


def test_a_wake_withdraws_a_cancel_that_stands(store: Store, adapter: Adapter) -> None:
    adapter.plant(store, [row("processing", cancel_requested_at=later(-1))])

    store.wake([wake()], now=NOW)

    assert read(store, row().id).cancel_requested_at is None


def test_a_job_that_was_deleted_and_is_woken_again_is_a_new_one(store: Store) -> None:
    [first] = store.wake([wake()], now=NOW)
    job = take(store, first.id, now=NOW)
    assert settle(store, job, rows.finish(job), Policy(TYPE, keep_finished=False), now=NOW)

    [second] = store.wake([wake()], now=later(1))

    assert second.id == first.id
    assert second.created
    assert second.generation > job.generation
    assert read(store, second.id).attempt == 0
    assert not settle(store, job, rows.finish(job))


def test_one_id_several_times_in_a_call_takes_effect_in_order(store: Store) -> None:
    events = [
        wake("a", payload="[1]", priority=7, delay=30),
        wake("b", payload="[1]"),
        wake("a", payload="[2]", priority=3, delay=60),
        wake("a", payload="[3]", once=True),
        wake("a", payload="[4]", priority=9, delay=10),
        wake("b", payload="[2]"),
    ]

    woken = store.wake(events, now=NOW)

    a, b = read(store, events[0].id), read(store, events[1].id)
    assert (a.payload, a.priority, a.run_at, a.generation) == ("[4]", 3, later(10), woken[0].generation + 2)
    assert (b.payload, b.generation) == ("[2]", woken[1].generation + 1)
    assert [one.created for one in woken] == [True, True, False, False, False, False]
    assert [one.repeated for one in woken] == [False, False, False, True, False, False]
    assert [one.run_at for one in woken if one.id == a.id] == [later(30), later(30), later(30), later(10)]


def test_answers_come_in_the_order_asked(store: Store) -> None:
    keys = [f"{number * 7919 % 1000:03d}" for number in range(300)]

    woken = store.wake([wake(key, delay=float(key)) for key in keys], now=NOW)

    assert [one.id for one in woken] == [wake(key).id for key in keys]
    assert [one.run_at for one in woken] == [later(float(key)) for key in keys]


def test_nothing_asked_is_nothing_answered(store: Store) -> None:
    assert store.wake([]) == []


def test_twenty_racing_wakes_of_one_key_make_one_row(store: Store) -> None:
    for key in map(str, range(20)):
        woken = [one for [one] in at_once([partial(store.wake, [wake(key)])] * 20)]

        assert {one.id for one in woken} == {wake(key).id}
        assert sum(one.created for one in woken) == 1
        first = min(one.generation for one in woken)
        assert sorted(one.generation for one in woken) == list(range(first, first + 20))
        assert read(store, wake(key).id).generation == first + 19


def test_twenty_racing_wakes_once_get_one_original(store: Store) -> None:
    def ask(number: int) -> tuple[Any, str]:
        text = f'{{"n":{number}}}'
        return store.wake([wake(payload=text, once=True)])[0], text

    answers = at_once([partial(ask, number) for number in range(20)])

    [created] = [text for woken, text in answers if woken.created]
    assert sum(woken.repeated for woken, _ in answers) == 19
    assert len({woken.generation for woken, _ in answers}) == 1
    assert read(store, wake().id).payload == created


def test_racing_batches_in_any_order_all_get_through(store: Store) -> None:
    keys = [str(number) for number in range(200)]
    orders = (keys, keys[::-1], keys[100:] + keys[:100], keys[::2] + keys[1::2])

    for turn in range(4):
        batches = [[wake(f"{turn}-{key}") for key in order] for order in orders * 2]
        at_once([partial(store.wake, batch) for batch in batches])

        found = [job for job in store.read([one.id for one in batches[0]]) if job]
        assert [job.generation - clock.micros(job.created_at) for job in found] == [7] * 200


def test_a_wake_beside_an_open_one_waits_and_ends_with_a_real_row(store: Store, other: Store) -> None:
    entered = threading.Event()

    def wake_beside() -> Any:
        entered.set()
        return other.wake([wake(payload="[2]")])[0]

    with ThreadPoolExecutor(1) as pool:
        with suppress(GivenUp), store.transaction() as tx:
            tx.wake([wake(payload="[1]")])
            beside = pool.submit(wake_beside)
            assert entered.wait(10)
            raise GivenUp
        woken = beside.result(30)

    assert woken.created
    assert read(store, woken.id).payload == "[2]"


def test_a_thousand_wakes_go_in_one_call(store: Store) -> None:
    woken = store.wake([wake(str(number)) for number in range(1000)], now=NOW)

    assert len({one.id for one in woken}) == 1000
    assert all(store.read([one.id for one in woken]))


def test_a_wake_in_mid_run_is_kept_for_afterwards(store: Store) -> None:
    [first] = store.wake([wake(payload="[1]")], now=NOW)
    job = take(store, first.id, now=NOW)

    [second] = store.wake([wake(payload="[2]", delay=5)], now=NOW)
    assert (second.state, second.due) == ("processing", False)
    held = read(store, first.id)
    assert settle(store, held, rows.finish(job, Kind.DONE), now=NOW)

    left = read(store, first.id)
    assert (left.state, left.payload, left.run_at) == ("queued", "[2]", later(5))


def test_without_a_key_every_wake_is_a_job_of_its_own(store: Store) -> None:
    woken = store.wake([wake(None), wake(None)], now=NOW)

    assert [one.created for one in woken] == [True, True]
    assert [job.key for job in store.read([one.id for one in woken]) if job] == [None, None]


def test_the_same_key_elsewhere_is_another_job(store: Store) -> None:
    events = [wake(), wake(queue="high"), wake(domain="else"), wake(job_type="test.other")]

    assert [one.created for one in store.wake(events, now=NOW)] == [True] * 4


def test_an_owner_is_taken_where_there_was_none(store: Store) -> None:
    store.wake([wake()], now=NOW)
    store.wake([wake(owner="somebody")], now=NOW)
    store.wake([wake(owner="else")], now=NOW)

    assert read(store, wake().id).owner == "somebody"


def test_a_wake_moves_the_revision_so_that_older_decisions_fail(store: Store) -> None:
    store.wake([wake()], now=NOW)
    seen = read(store, wake().id)
    store.wake([wake()], now=NOW)

    assert store.swap([change(seen, retries=3)], now=NOW) == [False]
