"""An exception becomes what may be written down of it: class, stable code, place; a message only where we worded it.

An error's text can hold anything (a password in a URL, a customer's data, a megabyte of HTML), so it is never kept.
"""

from __future__ import annotations

import errno
import re
import sys
import sysconfig
from pathlib import Path
from types import TracebackType
from typing import Final

from store.errors import DramaturgError
from store.events import Failure

_CODE = re.compile(r"[A-Za-z][A-Za-z0-9_.:-]{0,63}")
_LIBRARIES: Final = tuple(
    path for name in ("purelib", "platlib", "stdlib", "platstdlib") if (path := sysconfig.get_paths().get(name))
)

_ROOMS: Final = frozenset({"store", "middleware", "scheduler", "actors", "ops"})

#: A message of ours is cut to this many characters.
MAX_MESSAGE = 500


def describe(error: BaseException) -> Failure:
    """The safe description of ``error``; never raises, whatever an error's own attributes do when they are read."""
    try:
        return Failure(class_of(error), code_of(error), message_of(error), _clean(place_of(error.__traceback__)))
    except Exception:  # noqa: BLE001 - an error that can't be described is still a failure, with a code of its own
        return Failure("", "undescribable")


def class_of(error: BaseException) -> str:
    """The class' name, cut and cleaned: classes can be made at run time with any name."""
    return clean_name(type(error).__name__)


def clean_name(name: str) -> str:
    """A class' name as it may be written down."""
    return re.sub(r"[^A-Za-z0-9_.]", "_", name[:128])


def code_of(error: BaseException) -> str:
    """A code that stays the same over releases: our own, an SQLSTATE, an HTTP status, an errno's name, or the class."""
    if isinstance(error, DramaturgError):
        return error.code
    for code in (_sqlstate(error), _http_status(error), _errno(error)):
        if code is not None:
            return code
    name = class_of(error)
    return name if _CODE.fullmatch(name) else "error"


def message_of(error: BaseException) -> str | None:
    """The text, only of errors that this project words."""
    return _clean(str(error)[:MAX_MESSAGE]) if _is_ours(error) else None


def _is_ours(error: BaseException) -> bool:
    """Whether this project words its text: a developer's own subclass of our errors may say anything."""
    return isinstance(error, DramaturgError) and type(error).__module__.split(".", 1)[0] in _ROOMS


def place_of(trace: TracebackType | None) -> str | None:
    """``folder/file.py:line in function`` of the innermost frame outside of libraries; None without a traceback."""
    found: str | None = None
    while trace is not None:
        code = trace.tb_frame.f_code
        if not code.co_filename.startswith(_LIBRARIES) and not code.co_filename.startswith("<"):
            found = f"{_short(code.co_filename)}:{trace.tb_lineno} in {code.co_name}"
        trace = trace.tb_next
    return found


def _clean(text: str | None) -> str | None:
    """Names of files and branches can hold halves of characters and control characters, which no store keeps."""
    if text is None:
        return None
    whole = text.encode("utf-8", "replace").decode("utf-8")
    return "".join(char if char.isprintable() or char == "\n" else "?" for char in whole)


def _short(filename: str) -> str:
    path = Path(filename)
    for entry in sys.path:
        if entry and path.is_relative_to(entry):
            return str(path.relative_to(entry))[-200:]
    return "/".join(path.parts[-2:])[-200:]


def _sqlstate(error: BaseException) -> str | None:
    state = getattr(error, "sqlstate", None)
    return f"SQLSTATE_{state}" if isinstance(state, str) and re.fullmatch(r"[0-9A-Z]{5}", state) else None


def _http_status(error: BaseException) -> str | None:
    for holder in (error, getattr(error, "response", None)):
        for name in ("status_code", "status"):
            status = getattr(holder, name, None)
            if isinstance(status, int) and not isinstance(status, bool) and 100 <= status <= 599:
                return f"HTTP_{status}"
    return None


def _errno(error: BaseException) -> str | None:
    return errno.errorcode.get(error.errno) if isinstance(error, OSError) and isinstance(error.errno, int) else None
