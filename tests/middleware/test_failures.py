"""What may be written down of an error: class, code, place, and a message only where we worded it."""

from __future__ import annotations

import errno

import psycopg
import pytest

from middleware.failures import MAX_MESSAGE, describe
from store.errors import PayloadInvalid

SECRET = "postgresql://user:hunter2@db/x <img src=x onerror=alert(1)> \x00" + "x" * 1_000_000


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:
        return caught


class Web(Exception):
    status_code = 503


class Answer:
    status_code = 404


class Wrapped(Exception):
    response = Answer()


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ValueError(SECRET), "ValueError"),
        (ConnectionRefusedError(errno.ECONNREFUSED, SECRET), "ECONNREFUSED"),
        (Web(SECRET), "HTTP_503"),
        (Wrapped(SECRET), "HTTP_404"),
        (psycopg.errors.UniqueViolation(SECRET), "SQLSTATE_23505"),
        (KeyError(SECRET), "KeyError"),
        (type("Bad name <b>\x1b[31m", (Exception,), {})(SECRET), "Bad_name__b___31m"),
        (OSError(SECRET), "OSError"),
        (SystemExit(SECRET), "SystemExit"),
    ],
)
def test_a_foreign_error_leaves_a_stable_code_and_nothing_of_its_text(error: BaseException, code: str) -> None:
    failure = describe(raised(error))
    assert failure.code == code
    assert failure.message is None
    assert "hunter2" not in repr(failure)
    assert "hunter2" not in failure.json + failure.line
    assert len(failure.json) < 1_000


def test_an_error_of_ours_keeps_its_text_within_bounds() -> None:
    failure = describe(raised(PayloadInvalid("the payload does not fit" + "!" * 10_000)))
    assert failure.code == "payload_invalid"
    assert failure.message is not None
    assert len(failure.message) == MAX_MESSAGE


def test_the_place_is_in_the_developers_code_and_not_in_a_library() -> None:
    import json

    try:
        json.loads("{")
    except ValueError as error:
        failure = describe(error)
    assert failure.place is not None
    assert failure.place.startswith("tests/middleware/test_failures.py:")
    assert failure.place.endswith("in test_the_place_is_in_the_developers_code_and_not_in_a_library")


def test_an_error_that_was_never_raised_has_no_place() -> None:
    assert describe(ValueError()).place is None
