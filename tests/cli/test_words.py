"""Whatever word is given for a moment, a length of time or a position: it is read, or it is a usage error."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC
from typing import TypeVar

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ops.cli.events import _position
from ops.cli.when import moment_of, seconds_of
from store.errors import UsageError

V = TypeVar("V")


def read(decode: Callable[[str], V], word: str) -> V | None:
    """What ``word`` stands for; None for one that is refused as it should be."""
    try:
        return decode(word)
    except UsageError as error:
        told = str(error)
    assert len(told) < 300
    return None


WORDS = st.text() | st.text("0123456789-:.TZ+ smhdEurope/Blin", max_size=40)


@given(WORDS)
@example("2026-12-01 09:00 America")
@example("2026-12-01 09:00 Europe/")
@example("2026-12-01 09:00 A/" + "B/" * 30)
@example("1970-01-01T00:00+23:59")
def test_a_moment(word: str) -> None:
    moment = read(moment_of, word)
    assert moment is None or moment.tzinfo is UTC


@given(WORDS)
@example("9" * 5000 + "s")
def test_a_length_of_time(word: str) -> None:
    seconds = read(seconds_of, word)
    assert seconds is None or seconds >= 0


@given(WORDS)
@example("9" * 5000)
@example("\u00b2")
def test_a_position(word: str) -> None:
    position = read(_position, word)
    assert position is None or position == int(word)


def test_the_words_themselves_are_read() -> None:
    assert _position("newest") is None
    assert _position("7") == 7
    with pytest.raises(UsageError):
        _position(str(2**63))
