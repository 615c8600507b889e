"""What a server that is not what it seems may answer: never a crash, never a half-believed reply."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store.errors import ValkeyUnavailable
from store.valkey import replies

ANYTHING: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.integers() | st.binary(max_size=20) | st.booleans() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=8),
    max_leaves=20,
)
READERS: dict[str, Callable[[Any], object]] = {
    "claims": lambda reply: replies.claims(reply, ["t1", "t2"]),
    "dead letters": replies.dead_letters,
    "counts": lambda reply: replies.counts("offer", reply, 4),
    "answers": lambda reply: replies.answers("ack", reply, 2),
    "count": lambda reply: replies.count("flush", reply),
}


@pytest.mark.parametrize("reader", list(READERS))
@settings(deadline=None, max_examples=60)
@given(reply=ANYTHING)
def test_no_reply_makes_a_reader_fail_otherwise(reader: str, reply: Any) -> None:
    with contextlib.suppress(ValkeyUnavailable):
        READERS[reader](reply)


@pytest.mark.parametrize(
    "reply",
    [
        None,
        b"OK",
        [],
        [0],
        [-2, 0],
        [b"0", 0],
        [0, -1],
        [True, 0],
        [0, 0, b"j:1", b"t1", b""],
        [0, 0, b"j:1", b"t3", b"", 0],
        [0, 0, b"j:1", b"t1", b"", 0, b"j:2", b"t1", b"", 0],
        [0, 0, b"", b"t1", b"", 0],
        [0, 0, b"\xff", b"t1", b"", 0],
        [0, 0, b"j:1", b"t1", None, 0],
        [0, 0, b"j:1", b"t1", b"", b"0"],
        [0, 0, "j:1", b"t1", b"", 0],
    ],
)
def test_a_malformed_answer_to_a_claim_is_not_believed(reply: object) -> None:
    with pytest.raises(ValkeyUnavailable, match="'claim'"):
        replies.claims(reply, ["t1", "t2"])


@pytest.mark.parametrize("reply", [[1], [1, 2], [0, 1, 0], [0, None], [True, False], b"01", None])
def test_a_malformed_answer_to_an_ack_is_not_believed(reply: object) -> None:
    with pytest.raises(ValkeyUnavailable, match="'ack'"):
        replies.answers("ack", reply, 2)


@pytest.mark.parametrize("reply", [None, [b"m", b"1"], [b"m", b"x", b""], [b"m", b"9" * 15, b""], [b"m", 1, b""]])
def test_a_malformed_list_of_the_dead_is_not_believed(reply: object) -> None:
    with pytest.raises(ValkeyUnavailable, match="'letters'"):
        replies.dead_letters(reply)
