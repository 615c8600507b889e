"""Who a job is: names that are allowed, and ids that every language and store derives alike.

With a key a job's id is a uuid8 made of the first 128 bits of SHA-256 over ``domain, queue, job type, key`` (UTF-8,
joined by U+001F), with version and variant set as RFC 9562 says; without one it is a uuid7. The joiner can't occur in
a name, since control characters are refused everywhere.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
import unicodedata
import uuid
from collections.abc import Iterable

from store.errors import UsageError

SEPARATOR = "\x1f"
DEFAULT_DOMAIN = "default"
STANDARD_QUEUES = ("default", "high", "low")

#: Job types of our own maintenance, which no allow-list keeps out.
MAINTENANCE = ("dramaturg.retention", "dramaturg.ttl", "dramaturg.integrity", "dramaturg.events")

#: Characters that each name may have at most; the same limits stand in the schemas' CHECKs.
MAX_LENGTH = {
    "domain": 128,
    "queue": 128,
    "job type": 128,
    "key": 512,
    "owner": 256,
    "worker": 256,
    "request id": 256,
    "trace": 512,
    "consumer": 128,
}

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_CODE = re.compile(r"[A-Za-z][A-Za-z0-9_.:-]{0,63}")
_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def check_name(field: str, value: str) -> str:
    """Answer ``value`` if it may be used as ``field`` (a key of MAX_LENGTH); else raise UsageError saying why."""
    if not isinstance(value, str):
        raise UsageError(f"{field} must be a string, not {type(value).__name__}")
    if not value or value.isspace():
        raise UsageError(f"{field} is empty: give it at least one visible character")
    if len(value) > MAX_LENGTH[field]:
        raise UsageError(f"{field} has {len(value)} characters; {MAX_LENGTH[field]} are allowed")
    if _CONTROL.search(value):
        raise UsageError(f"{field} holds a control character: remove it")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise UsageError(f"{field} holds half of a surrogate pair, which is not a character: remove it") from None
    if not unicodedata.is_normalized("NFC", value):
        raise UsageError(f"{field} is not in Unicode's normal form NFC: two spellings would be two jobs")
    return value


def check_code(code: str) -> str:
    """Answer ``code`` if it can be a stable failure code: a letter, then up to 63 of letters, digits and ``_.:-``."""
    if not isinstance(code, str) or not _CODE.fullmatch(code):
        raise UsageError("a code is a letter followed by at most 63 letters, digits or the characters _ . : -")
    return code


def job_id(domain: str, queue: str, job_type: str, key: str | None) -> str:
    """The id of a job, as a lower-case string with hyphens; the four must have passed ``check_name``."""
    if key is None:
        return new_id()
    digest = hashlib.sha256(SEPARATOR.join((domain, queue, job_type, key)).encode("utf-8")).digest()
    return _dressed(digest[:16], version=8)


def name_of_scope(scope: Iterable[str]) -> str:
    """A short name for a set of domains, the same in every process that has the same ones."""
    return hashlib.sha256(SEPARATOR.join(sorted(set(scope))).encode("utf-8")).hexdigest()[:12]


def new_id() -> str:
    """A fresh uuid7: rows that are made one after the other lie side by side in the index."""
    return _dressed((time.time_ns() // 1_000_000).to_bytes(6, "big") + os.urandom(10), version=7)


def new_lease_id() -> str:
    """A fresh lease id. ``os.urandom`` rather than ``random``: forked workers must never draw the same one."""
    return _dressed(os.urandom(16), version=4)


def check_id(value: str) -> str:
    """Answer ``value`` in its canonical spelling if it is a job's id; else raise UsageError."""
    try:
        return str(uuid.UUID(value))
    except (ValueError, AttributeError, TypeError):
        raise UsageError("that is not a job's id: it looks like 0190f3c2-7d1e-8a6b-9c3d-2f4e5a6b7c8d") from None


def is_id(value: str) -> bool:
    """Whether ``value`` is an id in its canonical spelling, the one that rows are answered by."""
    return _ID.fullmatch(value) is not None


def _dressed(raw: bytes, *, version: int) -> str:
    text = bytearray(raw)
    text[6] = (text[6] & 0x0F) | (version << 4)
    text[8] = (text[8] & 0x3F) | 0x80
    plain = text.hex()
    return f"{plain[:8]}-{plain[8:12]}-{plain[12:16]}-{plain[16:20]}-{plain[20:]}"
