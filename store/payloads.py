"""JSON at the door: one set of rules for payloads, results and checkpoints, on every path and every store.

Refused: what is not JSON, NaN and infinities, half surrogate pairs, U+0000, more than MAX_DEPTH nested levels, numbers
that no database keeps, and more than the allowed bytes. Nothing is normalised silently: what is not refused comes back
as it was given.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

import orjson

from store.errors import PayloadInvalid

#: Levels of nesting on every path: deep enough for any honest payload, far below where a decoder gives up.
MAX_DEPTH = 64

#: Bytes of UTF-8 at most, unless JOBS_MAX_JSON_BYTES says otherwise (source B).
MAX_BYTES = 1_048_576

#: ``json.dumps`` with options makes one of these at every call.
_ENCODER = json.JSONEncoder(allow_nan=False, ensure_ascii=False, separators=(",", ":"))

#: Integers beyond this many digits are refused: the stores keep them in different ways.
_BIG_NUMBER = re.compile(r"(?<![\w.\"])-?\d{16,}")


def encode(value: Any, *, what: str = "payload", limit: int = MAX_BYTES) -> str:
    """``value`` as JSON text. Raises PayloadInvalid naming ``what`` and the rule, never the value."""
    try:
        text = _ENCODER.encode(value)
    except RecursionError:
        raise PayloadInvalid(f"{what} is nested more than {MAX_DEPTH} levels deep") from None
    except ValueError:
        raise PayloadInvalid(f"{what} holds NaN, an infinity or a circle, which JSON can't say") from None
    except TypeError:
        raise PayloadInvalid(f"{what} holds what JSON can't say: use numbers, strings, lists and dicts") from None
    _check(text, what, limit)
    try:
        orjson.dumps(value)  # strict where json is lenient: it turns keys such as 1 into strings, and may double them
    except TypeError:
        raise PayloadInvalid(f"{what} has a key that is no string, which JSON can't say") from None
    return text


def check(text: str, *, what: str = "payload", limit: int = MAX_BYTES) -> str:
    """Answer the canonical spelling of JSON ``text`` that somebody else wrote; raises as ``encode`` does."""
    if len(text) > limit:  # before any parser sees it
        raise PayloadInvalid(f"{what} is larger than {limit} bytes")
    if _nested_beyond(text):
        raise PayloadInvalid(f"{what} is nested more than {MAX_DEPTH} levels deep")
    try:
        value = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise PayloadInvalid(f"{what} is not JSON: check quotes, commas and that there is no NaN") from None
    return encode(value, what=what, limit=limit)


def decode(text: str | None) -> Any:
    """The value of JSON text that a store gave back; None stays None."""
    return None if text is None else json.loads(text)


def _no_constant(_: str) -> Any:
    raise ValueError


def _check(text: str, what: str, limit: int) -> None:
    try:
        size = len(text.encode("utf-8"))
    except UnicodeEncodeError:
        raise PayloadInvalid(f"{what} holds half of a surrogate pair, which is not a character") from None
    if size > limit:
        raise PayloadInvalid(f"{what} has {size} bytes; {limit} are allowed: store the data elsewhere and pass its id")
    if _nested_beyond(text):  # before anything here recurses
        raise PayloadInvalid(f"{what} is nested more than {MAX_DEPTH} levels deep")
    if "\\u0000" in text and "\x00" in _strings(json.loads(text)):
        raise PayloadInvalid(f"{what} holds U+0000, which the databases can't keep")
    if _BIG_NUMBER.search(text) and _has_big_number(json.loads(text)):
        raise PayloadInvalid(f"{what} holds a whole number beyond 64 bits: pass it as a string")


def _nested_beyond(text: str) -> bool:
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return False
    depth, inside, escaped = 0, False, False
    for char in text:
        if inside:
            escaped, inside = (char == "\\" and not escaped), not (char == '"' and not escaped)
        elif char == '"':
            inside = True
        elif char in "[{":
            depth += 1
            if depth > MAX_DEPTH:
                return True
        elif char in "]}":
            depth -= 1
    return False


def _strings(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return "".join(key + _strings(item) for key, item in value.items())
    if isinstance(value, list):
        return "".join(map(_strings, value))
    return ""


def _has_big_number(value: Any) -> bool:
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return False
    if isinstance(value, int):
        return not -(2**63) <= value < 2**63
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, dict):
        return any(map(_has_big_number, value.values()))
    return any(map(_has_big_number, value))
