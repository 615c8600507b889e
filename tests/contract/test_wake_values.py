"""What a wake may hold: what is allowed comes back as it was given, the rest is refused with its whole batch."""

from __future__ import annotations

from typing import Any

import pytest

from store import identity, payloads
from store.contract import Store
from store.errors import Refused
from tests.contract.acts import read, take
from tests.contract.rows import NOW, wake

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
