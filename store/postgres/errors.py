"""What an error of psycopg means in our words: its SQLSTATE or class is told, never its text."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import orjson
import psycopg

from store.errors import DramaturgError, NotAllowed, QuotaExceeded, Refused, StoreUnavailable, UsageError

#: What our own SQL raises; those texts are ours, and hold no value.
OURS: Final = {"DG001": UsageError, "DG002": QuotaExceeded, "DG003": NotAllowed}

#: SQLSTATEs, and classes of them, that may be gone when one tries again.
_PASSING: Final = {
    "08": "lost the connection",
    "28": "does not let this user in",
    "3D": "has no such database",
    "40": "took it back for the sake of another transaction",
    "53": "is out of resources",
    "57": "was stopped or stopped the statement",
    "58": "failed on its own machine",
    "XX": "failed inside",
    "25006": "only reads at the moment",
    "25P03": "ended a transaction that lay idle",
    "25P04": "ended a transaction that took too long",
    "55006": "has it in use",
    "55P03": "could not get a lock in time: find who keeps a transaction open",
}

_MISSING: Final = frozenset({"3F000", "42883", "42P01", "42704"})
_RIGHTS: Final = "42501"
_ABORTED: Final = "25P02"


@contextmanager
def worded() -> Iterator[None]:
    """Turn what the driver raises into StoreUnavailable or Refused."""
    try:
        yield
    except psycopg.Error as error:
        raise failure(error) from None
    except (UnicodeEncodeError, orjson.JSONEncodeError):
        raise UsageError("a text holds half of a surrogate pair, which is not a character: remove it") from None


def code_of(error: BaseException) -> str:
    """The SQLSTATE, or the class where there is none."""
    return getattr(error, "sqlstate", None) or type(error).__name__


def failure(error: psycopg.Error) -> DramaturgError:
    """The error of ours that says what ``error`` means."""
    state, code = error.sqlstate or "", code_of(error)
    if state in OURS:
        return OURS[state](error.diag.message_primary or "Postgres refused it")
    reason = _PASSING.get(state) or _PASSING.get(state[:2])
    if reason is not None:
        return StoreUnavailable(f"Postgres {reason} ({code}): nothing is known to have changed, try again")
    if not state:
        if isinstance(error, (psycopg.DataError, psycopg.ProgrammingError, psycopg.NotSupportedError)):
            return Refused(f"the statement and its parameters don't fit, or a value can't be stored ({code})")
        return StoreUnavailable(
            f"Postgres did not answer ({code}): check that it runs, and that the database's URL names it"
        )
    if state == _RIGHTS:
        return Refused(
            f"the database's user lacks a right to do that, or the row's domain is outside of the transaction's scope "
            f"({code}): grant the right, name the domain in JOBS_DOMAINS, or use the tables' owner"
        )
    if state in _MISSING:
        return Refused(f"the database has no such schema, table or function ({code}): run `dramaturg migrate`")
    if state == _ABORTED:
        return Refused(f"an earlier statement of this transaction has failed ({code}): roll it back and begin again")
    if state.startswith("23"):
        broken = f"it breaks {error.diag.constraint_name}" if error.diag.constraint_name else "it breaks a rule"
        return Refused(f"the database refuses the row: {broken} ({code})")
    return Refused(f"the database refuses the statement or one of its values ({code})")
