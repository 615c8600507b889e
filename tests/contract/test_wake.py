"""A wake: this work is wanted."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta, timezone
from functools import partial
from typing import Any

import pytest

from store import clock, identity, payloads
from store.clock import PARKED
from store.contract import Store
from store.errors import Refused
from store.events import Kind
from store.policy import Policy
from store.transitions import after
from tests.contract import rows
from tests.contract.acts import at_once, change, differences, read, settle, take
from tests.contract.adapters import Adapter
from tests.contract.rows import NOW, TYPE, later, row, wake

POLICY = Policy(TYPE)


class GivenUp(Exception):
    """What a caller's own code raises."""


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
    [parked, beyond] = store.wake([wake("p", run_at=PARKED, delay=5), wake("b", delay=1e12)], now=NOW)

    for woken in (parked, beyond):
        assert (woken.run_at, woken.due) == (PARKED, False)
        assert read(store, woken.id).run_at == PARKED


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


REFUSED: dict[str, dict[str, Any]] = {
    "priority 0": {"priority": 0},
    "priority 11": {"priority": 11},
    "101 retries": {"max_retries": 101},
    "minus one retries": {"max_retries": -1},
    "a line break in the key": {"key": "a\nb"},
    "the separator in the key": {"key": "a\x1fb"},
    "U+0000 in the key": {"key": "a\x00b"},
    "a C1 control in the key": {"key": "a\x85b"},
    "DEL in the domain": {"domain": "a\x7f"},
    "a tab in the queue": {"queue": "a\tb"},
    "an escape in the type": {"job_type": "\x1b[31m"},
    "an empty domain": {"domain": ""},
    "an empty queue": {"queue": ""},
    "an empty type": {"job_type": ""},
    "an empty key": {"key": ""},
    "a long domain": {"domain": "d" * 129},
    "a long queue": {"queue": "d" * 129},
    "a long type": {"job_type": "d" * 129},
    "a long key": {"key": "d" * 513},
    "no id": {"id": "not-an-id"},
}


@pytest.mark.parametrize("changes", REFUSED.values(), ids=REFUSED)
def test_a_row_that_the_schema_forbids_is_refused_and_nothing_of_its_batch_is_written(
    store: Store, changes: dict[str, Any]
) -> None:
    store.wake([wake("old", payload="[0]")], now=NOW)
    bad = wake("bad")._replace(**changes)

    with pytest.raises(Refused) as refused:
        store.wake([wake("old", payload="[1]"), wake("a"), bad, wake("z"), wake("a", payload="[2]")], now=NOW)

    assert store.read([wake("a").id, wake("z").id, wake("bad").id]) == [None, None, None]
    assert read(store, wake("old").id).payload == "[0]"
    shown = str(refused.value)
    assert not any(str(value) in shown for value in changes.values() if len(str(value)) > 3)


def test_a_batch_is_refused_as_a_whole_when_a_later_wake_of_one_id_breaks_it(store: Store) -> None:
    with pytest.raises(Refused):
        store.wake([wake("a"), wake("b"), wake("a", priority=0)], now=NOW)

    assert store.read([wake("a").id, wake("b").id]) == [None, None]


def test_an_id_that_does_not_follow_from_its_names_makes_no_second_row(store: Store) -> None:
    store.wake([wake()], now=NOW)

    with pytest.raises(Refused):
        store.wake([wake(id=identity.new_id())], now=NOW)


def nested(levels: int, value: Any) -> Any:
    """``value`` inside so many lists."""
    return nested(levels - 1, [value]) if levels else value


PAYLOADS: dict[str, Any] = {
    "the largest integer": {"n": 2**63 - 1},
    "the smallest integer": {"n": -(2**63)},
    "beyond a double's precision": {"n": 2**53 + 1},
    "floats": [0.1, 1e-7, 1.5e300, 5e-324, 1e22, -0.0, 1.0, 100.0],
    "emoji": {"🎭": "👩‍👩‍👧 🇩🇪"},
    "scripts": {"日本": "Ελληνικά العربية עברית"},
    "odd characters": "\u2028 \u2029 \ufeff \ufffd \U0010fffd \x7f \x01 ' \" \\ \\u0000 %s %(a)s :b ? $1 {} --",
    "a nested value": {"a": [{"b": [[], {}, None, True, False, ""]}]},
    "null": None,
    "true": True,
    "a number": 7,
    "a text": "text",
    "a text that looks like a number": "7",
    "an empty list": [],
    "keys in an order": {"b": 1, "a": 2, "": 3},
    "a megabyte": "x" * (payloads.MAX_BYTES - 2),
    "64 levels": nested(63, {"deep": 1}),
}


@pytest.mark.parametrize("value", PAYLOADS.values(), ids=PAYLOADS)
def test_a_payload_comes_back_as_it_was_given(store: Store, value: Any) -> None:
    [woken] = store.wake([wake(payload=payloads.encode(value))], now=NOW)

    for job in (read(store, woken.id), take(store, woken.id, now=NOW)):
        found = payloads.decode(job.payload)
        if isinstance(value, dict):
            assert found.keys() == value.keys()
            found = {key: found[key] for key in value}
        assert repr(found) == repr(value)


@pytest.mark.parametrize(
    "key", ["a'b", 'a"b', "a\\b", "%s", "%(id)s", ":id", "?", "$1", "--", "; DROP TABLE job", "{}", "ß", "日本", "🎭"]
)
def test_a_name_may_hold_any_character_that_is_no_control(store: Store, key: str) -> None:
    event = wake(key, domain=key, queue=key, owner=key)

    [woken] = store.wake([event], now=NOW)

    job = read(store, woken.id)
    assert (job.domain, job.queue, job.key, job.owner) == (key, key, key, key)


def test_names_may_be_as_long_as_they_may_be_in_characters(store: Store) -> None:
    event = wake("🎭" * 512, domain="日" * 128, queue="ä" * 128, owner="🎭" * 256)

    [woken] = store.wake([event], now=NOW)

    assert read(store, woken.id).key == event.key


def test_twenty_racing_wakes_of_one_key_make_one_row(store: Store) -> None:
    woken = at_once([lambda: store.wake([wake()])[0]] * 20)

    assert {one.id for one in woken} == {wake().id}
    assert sum(one.created for one in woken) == 1
    first = min(one.generation for one in woken)
    assert sorted(one.generation for one in woken) == list(range(first, first + 20))
    assert read(store, wake().id).generation == first + 19


def test_twenty_racing_wakes_once_get_one_original(store: Store) -> None:
    def ask(number: int) -> tuple[Any, str]:
        text = f'{{"n":{number}}}'
        return store.wake([wake(payload=text, once=True)])[0], text

    answers = at_once([partial(ask, number) for number in range(20)])

    [created] = [text for woken, text in answers if woken.created]
    assert sum(woken.repeated for woken, _ in answers) == 19
    assert len({woken.generation for woken, _ in answers}) == 1
    assert read(store, wake().id).payload == created


def test_racing_batches_in_opposite_orders_all_get_through(store: Store) -> None:
    keys = [str(number) for number in range(60)]
    batches = [keys, keys[::-1], keys[30:] + keys[:30], keys[::2] + keys[1::2]]

    at_once([partial(store.wake, [wake(key) for key in batch]) for batch in batches * 2])

    found = [read(store, wake(key).id) for key in keys]
    assert {job.generation - clock.micros(job.created_at) for job in found} == {7}


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
