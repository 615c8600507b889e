"""What a job type asks for: limits, backoff, and the document it is published as."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.errors import UsageError
from store.policy import Policy

DEFAULT = Policy("test.job")


@pytest.mark.parametrize("jitter", [0.0, 0.25, 0.5, 1.0])
def test_backoff_stays_between_floor_and_cap_for_attempts_1_to_5000(jitter: float) -> None:
    delays = [DEFAULT.backoff(attempt, jitter) for attempt in range(1, 5001)]

    assert min(delays) >= DEFAULT.backoff_first * (1 - DEFAULT.backoff_jitter)
    assert max(delays) <= DEFAULT.backoff_cap
    assert delays == sorted(delays)


def test_backoff_doubles_from_five_seconds_to_five_minutes() -> None:
    delays = [DEFAULT.backoff(attempt, 0.5) for attempt in range(1, 9)]

    assert delays == [5, 10, 20, 40, 80, 160, 300, 300]


@given(st.integers(1, 5000), st.floats(0, 1))
def test_jitter_moves_a_delay_by_at_most_a_fifth(attempt: int, jitter: float) -> None:
    plain = DEFAULT.backoff(attempt, 0.5)
    moved = DEFAULT.backoff(attempt, jitter)

    assert plain * 0.8 <= moved <= min(plain * 1.2, 300)


def test_jitter_spreads_the_capped_delays_too() -> None:
    assert DEFAULT.backoff(1000, 0.0) == 240
    assert DEFAULT.backoff(1000, 1.0) == 300


def test_a_type_without_jitter_has_one_delay() -> None:
    policy = Policy("test.job", backoff_first=2, backoff_cap=9, backoff_jitter=0)

    assert {policy.backoff(3, jitter) for jitter in (0.0, 0.3, 1.0)} == {8}
    assert policy.backoff(10**9, 0.7) == 9


@pytest.mark.parametrize(
    "policy",
    [
        DEFAULT,
        Policy(
            "x.y",
            queue="low",
            priority=1,
            max_retries=0,
            quarantine_after=3,
            keep_finished=False,
            periodic="* * * * *",
            zone="Europe/Berlin",
            catch_up="all",
            time_limit=5,
            interrupt=True,
        ),
    ],
)
def test_a_policy_comes_back_from_its_document(policy: Policy) -> None:
    assert Policy.from_document(json.loads(json.dumps(policy.document()))) == policy


def test_a_document_of_a_newer_program_is_read_and_of_an_older_one_completed() -> None:
    assert Policy.from_document({"job_type": "test.job", "colour": "green"}) == DEFAULT


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"priority": 0}, "priority"),
        ({"priority": 11}, "priority"),
        ({"priority": None}, "priority"),
        ({"priority": 5.0}, "priority"),
        ({"priority": True}, "priority"),
        ({"max_retries": -1}, "max_retries"),
        ({"max_retries": 101}, "max_retries"),
        ({"max_retries": "3"}, "max_retries"),
        ({"quarantine_after": 0}, "quarantine_after"),
        ({"quarantine_after": 101}, "quarantine_after"),
        ({"backoff_first": 0}, "backoff_first"),
        ({"backoff_first": -1}, "backoff_first"),
        ({"backoff_first": float("nan")}, "backoff_first"),
        ({"backoff_first": 301}, "backoff_cap"),
        ({"backoff_cap": 8 * 86_400}, "backoff_cap"),
        ({"backoff_cap": float("inf")}, "backoff_cap"),
        ({"backoff_jitter": 0.21}, "backoff_jitter"),
        ({"backoff_jitter": -0.1}, "backoff_jitter"),
        ({"time_limit": 0}, "time_limit"),
        ({"time_limit": True}, "time_limit"),
        ({"catch_up": "some"}, "catch_up"),
        ({"queue": ""}, "queue"),
        ({"queue": "a\nb"}, "queue"),
        ({"job_type": " "}, "job type"),
    ],
)
def test_a_policy_that_can_not_be_is_refused_by_the_name_of_what_is_wrong(changes: dict[str, Any], names: str) -> None:
    with pytest.raises(UsageError, match=names):
        Policy(**({"job_type": "test.job"} | changes))


def test_the_limits_themselves_are_allowed() -> None:
    assert Policy("test.job", priority=1, max_retries=100, quarantine_after=1).priority == 1
    assert Policy("test.job", priority=10, max_retries=0, quarantine_after=100).priority == 10
