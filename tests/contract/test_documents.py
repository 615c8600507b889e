"""Small keyed documents, written by compare-and-set."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from store.contract import ANY_VERSION, Document, Store
from store.identity import SEPARATOR
from tests.contract.acts import at_once


def test_a_document_that_was_removed_can_be_created_again(store: Store) -> None:
    assert not store.remove("tick", "nightly")
    store.put(Document("tick", "nightly", 0, {"at": 1}))
    store.put(Document("tick", "hourly", 0, {"at": 1}))

    assert store.remove("tick", "nightly")

    assert store.get("tick", "nightly") is None
    assert not store.remove("tick", "nightly")
    assert [document.key for document in store.list("tick")] == ["hourly"]
    assert store.put(Document("tick", "nightly", 0, {"at": 2}))


def test_a_document_is_created_once(store: Store) -> None:
    assert store.get("tick", "nightly") is None

    assert store.put(Document("tick", "nightly", 0, {"at": 1}))
    assert not store.put(Document("tick", "nightly", 0, {"at": 2}))

    assert store.get("tick", "nightly") == Document("tick", "nightly", 1, {"at": 1})


def test_a_document_is_replaced_only_by_who_has_read_it(store: Store) -> None:
    store.put(Document("tick", "nightly", 0, {"at": 1}))
    read = store.get("tick", "nightly")
    assert read is not None

    assert store.put(read._replace(body={"at": 2}))
    assert not store.put(read._replace(body={"at": 3}))
    assert not store.put(read._replace(version=7, body={"at": 3}))

    assert store.get("tick", "nightly") == Document("tick", "nightly", 2, {"at": 2})


def test_a_version_of_what_is_not_there_is_nobodys(store: Store) -> None:
    assert not store.put(Document("tick", "nightly", 3, {"at": 1}))

    assert store.get("tick", "nightly") is None


def test_any_version_makes_and_replaces(store: Store) -> None:
    for version in (1, 2, 3):
        assert store.put(Document("policy", "x", ANY_VERSION, {"n": version}))
        assert store.get("policy", "x") == Document("policy", "x", version, {"n": version})


def test_of_racing_writers_one_wins_each_version(store: Store) -> None:
    for version in range(3):
        written = at_once([partial(store.put, Document("tick", "x", version, {"n": n})) for n in range(8)])

        assert sum(written) == 1
        assert store.get("tick", "x") == Document("tick", "x", version + 1, {"n": written.index(True)})


def test_racing_writers_of_any_version_all_write(store: Store) -> None:
    assert all(at_once([partial(store.put, Document("policy", "x", ANY_VERSION, {"n": n})) for n in range(8)]))

    document = store.get("policy", "x")
    assert document is not None
    assert document.version == 8


def test_a_kind_is_listed_by_key(store: Store) -> None:
    keys = ["b", "B", "a", "Z", "ä", "a" + SEPARATOR + "b", "a-b", "ab", "🎭", "0", "_"]
    for key in keys:
        store.put(Document("shelf", key, 0, {"key": key}))
    store.put(Document("other", "x", 0, {}))

    assert store.list("shelf") == [Document("shelf", key, 1, {"key": key}) for key in sorted(keys)]
    assert store.list("nothing") == []


BODIES: list[dict[str, Any]] = [
    {},
    {"日本": "🎭", "null": None, "list": [1, 2.5, True, {"a": []}]},
    {"n": 2**63 - 1, "m": -(2**63), "f": 1e22, "z": -0.0},
    {"text": "\u2028 ' \" \\ \\u0000 %s :x ? $1"},
]


@pytest.mark.parametrize("body", BODIES)
def test_a_body_comes_back_as_it_was_given(store: Store, body: dict[str, Any]) -> None:
    store.put(Document("shelf", "x", 0, body))

    found = store.get("shelf", "x")
    assert found is not None
    assert {key: repr(value) for key, value in found.body.items()} == {key: repr(body[key]) for key in body}


@pytest.mark.parametrize("name", ["a'b", "%s", "%(kind)s", ":key", "?", "日本🎭", "a" + SEPARATOR + "b"])
def test_a_key_may_hold_any_character(store: Store, name: str) -> None:
    assert store.put(Document("shelf", name, 0, {}))

    assert store.get("shelf", name) == Document("shelf", name, 1, {})
