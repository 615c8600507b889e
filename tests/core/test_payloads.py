"""JSON at the door: what is allowed comes back as it was given, the rest is refused without repeating it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given

from store import payloads
from store.errors import PayloadInvalid
from store.payloads import MAX_BYTES, MAX_DEPTH
from tests.contract.rows import json_values


def nested(levels: int, inner: Any = 0) -> Any:
    """``inner`` inside so many lists and dicts, by turns."""
    value = inner
    for level in range(levels):
        value = [value] if level % 2 else {"n": value}
    return value


@given(json_values)
@example([2**63 - 1, -(2**63), 0.1, -0.0, 1e308, 5e-324, 1e22, True, None])
@example({"🎭": "日本\u2028\u007f", "": "\\u0000 is only text", "quotes": '"\\/\b\f\n\r\t'})
@example("99999999999999999999999999")
@example({"9999999999999999999999": 1})
def test_what_is_allowed_comes_back_as_it_was_given(value: Any) -> None:
    text = payloads.encode(value)

    assert repr(payloads.decode(text)) == repr(value)
    assert payloads.check(text) == text


def test_nothing_is_nothing() -> None:
    assert payloads.decode(None) is None
    assert payloads.decode("null") is None


def test_a_text_that_somebody_else_wrote_gets_one_spelling() -> None:
    assert payloads.check(' { "a" : [ 1 , 2.50 ] , "b" : "\\u00e4" } ') == '{"a":[1,2.5],"b":"ä"}'


REFUSED = {
    "NaN": float("nan"),
    "an infinity": float("inf"),
    "a NaN among good numbers": {"a": [1, 2, {"b": float("nan")}]},
    "half a surrogate pair": "a\ud800",
    "half a surrogate pair in a key": {"\udfff": 1},
    "U+0000": "a\x00b",
    "U+0000 in a key": {"a\x00": 1},
    "U+0000 deep inside": [[{"a": ["\x00"]}]],
    "an integer beyond 64 bits": 2**63,
    "a negative one": -(2**63) - 1,
    "a very long integer": 10**3000,
    "one among others": [{"a": 2**64}],
    "bytes": b"abc",
    "a set": {1},
    "an object": object(),
    "too many levels": nested(MAX_DEPTH + 1),
    "far too many levels": nested(10_000),
    "far too many levels with U+0000 at the bottom": nested(400, "\x00"),
    "far too many levels with an integer beyond 64 bits": nested(400, 2**63),
    "too many bytes": "x" * MAX_BYTES,
}


@pytest.mark.parametrize("value", REFUSED.values(), ids=REFUSED)
def test_a_value_that_is_not_allowed_is_refused(value: Any) -> None:
    with pytest.raises(PayloadInvalid, match=r"^result ") as refused:
        payloads.encode(value, what="result")

    assert len(str(refused.value)) < 200


def test_a_circle_is_refused() -> None:
    circle: list[Any] = []
    circle.append(circle)

    with pytest.raises(PayloadInvalid):
        payloads.encode(circle)


TEXTS = {
    "NaN": '{"a": NaN}',
    "Infinity": "[Infinity]",
    "minus Infinity": "-Infinity",
    "a number that overflows": "[1e400]",
    "an integer beyond 64 bits": "[9223372036854775808]",
    "an integer of 5,000 digits": "9" * 5000,
    "U+0000": r'["\u0000"]',
    "U+0000 in a key": r'{"\u0000": 1}',
    "half a surrogate pair": r'["\ud800"]',
    "a single quote": "{'a': 1}",
    "a comma too many": "[1,]",
    "nothing": "",
    "two values": "1 2",
    "a bare word": "yes",
    "a raw control character": '["a\nb"]',
    "10,000 nested lists": "[" * 10_000 + "]" * 10_000,
    "10,000 open lists": "[" * 10_000,
    "10,000 nested dicts": '{"a":' * 10_000 + "1" + "}" * 10_000,
    "one level too many": json.dumps(nested(MAX_DEPTH + 1)),
    "too many bytes": '"' + "x" * MAX_BYTES + '"',
    "too many bytes of UTF-8": '"' + "日" * (MAX_BYTES // 3) + '"',
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_a_text_that_is_not_allowed_is_refused(text: str) -> None:
    with pytest.raises(PayloadInvalid, match=r"^payload ") as refused:
        payloads.check(text)

    assert len(str(refused.value)) < 200


def test_the_limits_themselves_are_allowed() -> None:
    deep = payloads.encode(nested(MAX_DEPTH))
    wide = payloads.encode("x" * (MAX_BYTES - 2))

    assert payloads.check(deep) == deep
    assert payloads.check(wide) == wide
    assert payloads.encode([2**63 - 1, -(2**63)]) == "[9223372036854775807,-9223372036854775808]"


def test_the_limit_counts_bytes_and_can_be_set() -> None:
    assert payloads.encode("日", limit=5) == '"日"'
    with pytest.raises(PayloadInvalid, match="5 bytes; 4 are allowed"):
        payloads.encode("日", limit=4)


def test_many_brackets_side_by_side_or_inside_strings_are_not_deep() -> None:
    flat = payloads.encode([[] for _ in range(1000)])
    quoted = payloads.encode({"a": '[{\\"[' * 1000})

    assert payloads.check(flat) == flat
    assert payloads.check(quoted) == quoted


def test_no_refusal_repeats_what_it_refuses() -> None:
    for bad in ('{"secret-word": NaN}', '{"secret-word": 1,}', '["secret-word", 99999999999999999999]'):
        with pytest.raises(PayloadInvalid) as refused:
            payloads.check(bad)
        assert "secret-word" not in str(refused.value)


def test_keys_that_are_no_strings_are_refused_rather_than_changed() -> None:
    for value in ({1: "a"}, {None: 1}, {True: 1}, {1.5: 1}, [{"a": {7: 7}}]):
        with pytest.raises(PayloadInvalid):
            payloads.encode(value)
