"""Every error of the driver becomes one of ours, and nothing of its text comes along."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from store.contract import Store
from store.errors import DramaturgError, Refused, StoreUnavailable, UsageError
from store.postgres.errors import failure, worded
from tests.contract.rows import wake

SECRET = "hidden-word"

MEANS: dict[str, type[DramaturgError]] = {
    "08006": StoreUnavailable,  # connection failure
    "0A000": Refused,  # not supported
    "21000": Refused,  # cardinality
    "22001": Refused,  # too long
    "22P02": Refused,  # not that type's text
    "23502": Refused,  # not null
    "23505": Refused,  # unique
    "23514": Refused,  # check
    "25006": StoreUnavailable,  # read only: this is no primary any more
    "25P02": Refused,  # in a failed transaction
    "25P03": StoreUnavailable,  # idle in transaction
    "28000": StoreUnavailable,  # not let in
    "3D000": StoreUnavailable,  # no such database
    "3F000": Refused,  # no such schema
    "40001": StoreUnavailable,  # serialization
    "40P01": StoreUnavailable,  # deadlock
    "42501": Refused,  # no right
    "42601": Refused,  # syntax
    "42883": Refused,  # no such function
    "42P01": Refused,  # no such table
    "53100": StoreUnavailable,  # disk full
    "53300": StoreUnavailable,  # too many connections
    "54001": Refused,  # too complex
    "55P03": StoreUnavailable,  # lock
    "57014": StoreUnavailable,  # cancelled
    "57P01": StoreUnavailable,  # shut down
    "58030": StoreUnavailable,  # I/O
    "P0001": Refused,  # raised by somebody
    "XX000": StoreUnavailable,  # internal
}


@pytest.mark.parametrize("state", MEANS)
def test_a_sqlstate_means_the_same_wherever_it_comes_from(store: Store, state: str) -> None:
    raising = f"DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '{state}', MESSAGE = '{SECRET}'; END $$"

    with pytest.raises(DramaturgError) as raised, store.transaction() as tx:
        tx.execute(raising)

    assert type(raised.value) is MEANS[state]
    assert state in str(raised.value)
    assert SECRET not in str(raised.value)
    assert raised.value.__suppress_context__
    assert store.ping()


def errors() -> Iterator[type[psycopg.Error]]:
    """Every class of error that the driver has."""
    waiting = [psycopg.Error]
    while waiting:
        kind = waiting.pop()
        yield kind
        waiting += kind.__subclasses__()


def test_no_class_of_the_drivers_is_left_without_a_meaning() -> None:
    for kind in errors():
        meant = failure(kind(SECRET))
        assert isinstance(meant, (StoreUnavailable, Refused))
        assert SECRET not in str(meant)


def test_what_our_own_sql_says_is_told_as_it_is(store: Store) -> None:
    with pytest.raises(UsageError, match="key is empty: give it at least one visible character"):
        with store.transaction() as tx:
            tx.execute("SELECT dramaturg.wake('x', key => '')")


def test_a_broken_rule_is_named(store: Store) -> None:
    with pytest.raises(Refused, match="job_priority"):
        store.wake([wake(priority=11)])
    with pytest.raises(Refused, match="lane_name"):
        store.wake([wake(domain="a\nb")])


def test_a_text_that_is_no_text_is_refused(store: Store) -> None:
    with pytest.raises(UsageError, match="surrogate"):
        store.wake([wake(trace="\ud800")])
    with pytest.raises(UsageError, match="surrogate"), store.transaction() as tx:
        tx.execute("SELECT %(text)s::text", {"text": "\ud800"})
    with pytest.raises(Refused), store.transaction() as tx:
        tx.execute("SELECT %(text)s::text", {"text": "a\x00b"})


@pytest.mark.parametrize("parameters", [None, {}, {"a": 1}, {"id": object()}])
def test_parameters_that_do_not_fit_are_refused(store: Store, parameters: dict[str, object] | None) -> None:
    with pytest.raises(Refused), store.transaction() as tx:
        tx.execute("SELECT %(id)s", parameters)


def test_errors_that_are_not_the_drivers_pass_through() -> None:
    with pytest.raises(ZeroDivisionError), worded():
        raise ZeroDivisionError
