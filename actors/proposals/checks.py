"""What names, paths, titles and ids of proposals may be: refused at the door, naming the rule and not the value."""

from __future__ import annotations

import re
import unicodedata
import uuid
from pathlib import Path

from actors.access.endpoint import is_remote
from store.errors import UsageError

#: Characters at most; the schemas' CHECKs say the same.
MAX_NAME, MAX_PATH, MAX_TITLE, MAX_BRANCH = 256, 4096, 256, 512

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_INCARNATION = re.compile(r"[A-Za-z0-9_.-]{1,64}")


def check_name(value: str) -> str:
    """A repository's name."""
    _check_text("the repository's name", value, MAX_NAME)
    if not unicodedata.is_normalized("NFC", value):
        raise UsageError(
            "the repository's name is not in Unicode's normal form NFC: two spellings would be two of them"
        )
    return value


def check_path(value: Path | str) -> str:
    """A repository's path, made absolute; one behind TLS stands as its URL."""
    _check_text("the repository's path", str(value), MAX_PATH)
    if is_remote(str(value)):
        return str(value)
    path = str(Path(value).absolute())
    _check_text("the repository's path", path, MAX_PATH)
    return path


def check_incarnation(value: str) -> str:
    """A repository's incarnation. It holds no ``@``, which joins it to the name in the job's key."""
    if not isinstance(value, str) or not _INCARNATION.fullmatch(value):
        raise UsageError("an incarnation has 1 to 64 letters, digits or the characters _ . -")
    return value


def check_title(value: str) -> str:
    """A proposal's title."""
    return _check_text("the title", value, MAX_TITLE)


def check_branches(base: str, head: str) -> None:
    """The two branches of a proposal; whether there are such branches is for git to say."""
    _check_text("the base branch's name", base, MAX_BRANCH)
    _check_text("the head branch's name", head, MAX_BRANCH)
    if base == head:
        raise UsageError("base and head are the same branch: name the one to merge into, then the one to merge")


def check_proposal_id(value: str) -> str:
    """A proposal's id, in its canonical spelling."""
    try:
        return str(uuid.UUID(value))
    except (ValueError, AttributeError, TypeError):
        raise UsageError("that is not a proposal's id: it looks like 0190f3c2-7d1e-7a6b-9c3d-2f4e5a6b7c8d") from None


def check_limit(value: int, most: int) -> int:
    """How many rows one call may answer."""
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise UsageError(f"a limit is a whole number from 1 to {most}")
    return value


def _check_text(what: str, value: str, most: int) -> str:
    if not isinstance(value, str):
        raise UsageError(f"{what} must be a string, not {type(value).__name__}")
    if not value or value.isspace():
        raise UsageError(f"{what} is empty: give it at least one visible character")
    if len(value) > most:
        raise UsageError(f"{what} has {len(value)} characters; {most} are allowed")
    if _CONTROL.search(value):
        raise UsageError(f"{what} holds a control character: remove it")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise UsageError(f"{what} holds half of a surrogate pair, which is not a character: remove it") from None
    return value
