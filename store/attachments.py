"""Files and log lines on a job: what one is, and how many a job may have. They go with their job."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, NamedTuple

from store.errors import Refused, UsageError

Kind = Literal["file", "log"]

LOG: Kind = "log"
FILE: Kind = "file"

#: Bytes of one file, and of all files of a job, at most.
FILE_BYTES = 1_048_576
JOB_BYTES = 8_388_608

#: Files of a job at most; bytes of a log line at most; log lines that are kept, the newest.
JOB_FILES = 32
LINE_BYTES = 4_096
LINES_KEPT = 500

#: Characters of a name and of a media type at most.
_NAME_MOST = 255


class Caps(NamedTuple):
    """What one job may have."""

    files: int = JOB_FILES
    bytes: int = JOB_BYTES
    logs: int = LINES_KEPT


class Item(NamedTuple):
    """What is to be attached."""

    kind: Kind
    name: str
    media_type: str
    data: bytes


class Attachment(NamedTuple):
    """What is attached, without its bytes. Numbers count up within a job and are never used twice."""

    job_id: str
    number: int
    kind: str
    name: str
    media_type: str
    size: int
    at: datetime


class Fence(NamedTuple):
    """The run that may write: only while the row carries this lease and attempt."""

    lease_id: str
    attempt: int


def file(name: str, data: bytes | str, media_type: str = "application/octet-stream") -> Item:
    """A file to attach; text becomes UTF-8. Raises UsageError."""
    raw = _bytes(data, "an attachment")
    if len(raw) > FILE_BYTES:
        raise UsageError(f"an attachment has at most {FILE_BYTES} bytes, and this has {len(raw)}: store it elsewhere")
    return Item(FILE, _line(name, "an attachment's name"), _line(media_type, "a media type"), raw)


def log_line(text: str) -> Item:
    """A log line to attach. Raises UsageError."""
    if not isinstance(text, str) or not text:
        raise UsageError("a log line is a text that is not empty")
    raw = _bytes(text, "a log line")
    if len(raw) > LINE_BYTES:
        raise UsageError(f"a log line has at most {LINE_BYTES} bytes, and this has {len(raw)}: attach it as a file")
    return Item(LOG, "log", "text/plain", raw)


def fitting(given: list[int] | None) -> list[int] | None:
    """What a store answers to an attach: numbers, none where the caps would not hold. Raises Refused for that."""
    if given == []:
        raise Refused("the job has as many or as large attachments as one may have: store the data elsewhere")
    return given


def _bytes(data: bytes | str, what: str) -> bytes:
    if isinstance(data, str):
        try:
            return data.encode("utf-8")
        except UnicodeEncodeError:
            raise UsageError(f"{what} holds half of a surrogate pair, which is not a character: remove it") from None
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise UsageError(f"{what} is bytes or text, not {type(data).__name__}")
    return bytes(data)


def _line(text: str, what: str) -> str:
    if not isinstance(text, str) or not text.strip() or len(text) > _NAME_MOST or not text.isprintable():
        raise UsageError(f"{what} is one line of 1 to {_NAME_MOST} printable characters")
    return text
