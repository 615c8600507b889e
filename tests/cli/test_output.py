from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from ops.cli import output
from store.clock import PARKED
from tests.contract.rows import NOW, row


@pytest.mark.parametrize(
    "text", ["\x1b[31mred", "bell\x07", "\x9b31m", "a\nb\r", "\u202etxt.exe", "half \ud800", "nul\x00", "\u2028"]
)
def test_nothing_that_drives_a_terminal_is_printed(text: str) -> None:
    assert output.printable(text).isprintable()


@pytest.mark.parametrize("text", ["plain", "Käse", "日本", "a b", ""])
def test_what_a_person_can_read_stays_as_it_is(text: str) -> None:
    assert output.printable(text) == text


def test_a_moment_is_iso_8601_in_utc_and_parked_is_infinity() -> None:
    berlin = datetime.fromisoformat("2026-12-01T09:00:00+01:00")
    assert output.moment(berlin) == "2026-12-01T08:00:00.000000Z"
    assert output.moment(PARKED) == "infinity"
    assert output.moment(None) is None


def test_a_row_for_scripts_has_values_in_place_of_json_text() -> None:
    document = output.job_document(row(payload='{"n":1}', checkpoint="[2]", run_at=PARKED))
    assert document["payload"] == {"n": 1}
    assert document["checkpoint"] == [2]
    assert document["result"] is None
    assert document["run_at"] == "infinity"
    assert isinstance(document["id"], str)


@pytest.mark.parametrize(
    ("state", "run_at", "word"),
    [
        ("queued", NOW, "ready"),
        ("queued", NOW + timedelta(microseconds=1), "scheduled"),
        ("queued", PARKED, "parked"),
        ("processing", PARKED, "processing"),
        ("completed", PARKED, "completed"),
    ],
)
def test_a_phase_is_derived_from_state_and_run_at(state: str, run_at: datetime, word: str) -> None:
    assert output.phase(row(state, run_at=run_at), NOW) == word


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "now"),
        (5, "in 5 s"),
        (-5, "5 s ago"),
        (90, "in 2 m"),
        (-7200, "2 h ago"),
        (3 * 86_400, "in 3 d"),
        (9e8, "in 29 y"),
    ],
)
def test_times_are_told_relative_to_the_database_s_now(seconds: float, words: str) -> None:
    assert output.relative(NOW + timedelta(seconds=seconds), NOW) == words


def test_what_never_comes_is_a_dash() -> None:
    assert output.relative(PARKED, NOW) == output.relative(None, datetime.now(UTC)) == "-"
