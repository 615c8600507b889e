"""What SurrealDB's answers mean to us: the only place that reads them. Their texts stop here.

Every statement of a response has a status of its own, and a response without an error may hold statements that failed:
``results`` looks at each.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from store.errors import DramaturgError, Refused, StoreUnavailable

#: What our own statements throw begins so.
OURS: Final = "dramaturg:"

#: Statements that did not run because of another one: never the cause.
_ECHOES: Final = ("NotExecuted", "Cancelled")
_ECHO_TEXTS: Final = ("was not executed due to", "Cannot COMMIT:", "Cannot CANCEL")

#: The engine could not write, a full disk for one: a cause, though its kind may be that of an echo.
_UNWRITTEN: Final = "There was a problem with a transaction"

#: Said once more for each function that what was thrown came through.
_THROWN: Final = re.compile(r"(?:An error occurred: )+")
_FIELD: Final = re.compile(r"field `([a-z_]+)`")
_INDEX: Final = re.compile(r"index `([a-z_]+)`")
_MISSING: Final = re.compile(
    r"table '(?:dramaturg_[a-z]+)' does not exist|fn::dramaturg::[a-z_]+' (?:not found|does not)"
)


class Conflict(Exception):
    """The transaction met another one and did nothing: the same may be had a moment later."""


class Thrown(Exception):
    """One of our own statements ended the transaction; ``word`` is what it said after ``OURS``."""

    def __init__(self, word: str) -> None:
        super().__init__()
        self.word = word


def results(response: Mapping[str, Any]) -> list[Any]:
    """The result of each statement. Raises Conflict, Thrown, and the error of ours that fits anything else."""
    if (error := response.get("error")) is not None:
        raise _failure(str(error.get("message", "")), error.get("kind"), error.get("details"))
    failed = [statement for statement in response["result"] if statement["status"] != "OK"]
    if not failed:
        return [statement["result"] for statement in response["result"]]
    causes = []
    for statement in failed:
        cause = (str(statement["result"]), statement.get("kind"), statement.get("details"))
        if is_conflict(*cause):
            raise Conflict
        if not _is_echo(*cause):
            causes.append(cause)
    raise _failure(*(causes[0] if causes else ("", None, None)))


def is_conflict(text: str, kind: Any = None, details: Any = None) -> bool:
    """Whether that tells of two transactions in each other's way."""
    if isinstance(details, Mapping) and "Conflict" in str(details.get("kind", "")):
        return True
    return "can be retried" in text or "ransaction conflict" in text


def _is_echo(text: str, kind: Any, details: Any) -> bool:
    if _UNWRITTEN in text:
        return False
    if isinstance(details, Mapping) and details.get("kind") in _ECHOES:
        return True
    return any(words in text for words in _ECHO_TEXTS)


def _failure(text: str, kind: Any, details: Any) -> Exception:
    if is_conflict(text, kind, details):
        return Conflict()
    word = text[match.end() :] if (match := _THROWN.match(text)) else text
    if word.startswith(OURS):
        return Thrown(word.removeprefix(OURS))
    return _worded(text, code_of(kind, details))


def code_of(kind: Any, details: Any) -> str:
    """The server's own name for what went wrong, made of its letters alone."""
    inner = details.get("kind") if isinstance(details, Mapping) else None
    names = [re.sub(r"[^A-Za-z]", "", str(name)) for name in (kind, inner) if name]
    return ".".join(name for name in names if name) or "unknown"


def _worded(text: str, code: str) -> DramaturgError:
    if _UNWRITTEN in text:
        return StoreUnavailable(f"SurrealDB could not write ({code}): see that its disk has room, and try again")
    if _MISSING.search(text):
        return Refused("this database of SurrealDB has none of our tables: run `dramaturg migrate`, or name another")
    if text.startswith("Parse error"):
        return Refused("the statement is not one that SurrealDB can read (ParseError)")
    if code.startswith("NotAllowed") or "permission" in text.lower():
        return Refused(f"SurrealDB does not let this user do that ({code}): give it the role EDITOR or OWNER")
    if "key-value store" in text or code.startswith(("Timeout", "Connection")) or "timed out" in text:
        return StoreUnavailable(f"SurrealDB did not do its work ({code}): try again")
    field, index = _FIELD.search(text), _INDEX.search(text)
    if field is not None and index is None:
        return Refused(f"the database refuses the row: {field[1]} holds what it may not ({code})")
    if index is not None:
        return Refused(f"the database refuses the row: another has the same {index[1]} ({code})")
    if code.startswith("AlreadyExists"):
        return Refused(f"the database refuses the row: it is there already ({code})")
    return Refused(f"the statement is not one that SurrealDB can run, or a value does not fit ({code})")
