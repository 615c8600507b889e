"""The only place that words log lines of jobs, and that keeps foreign texts out of the log of a worker process.

Lines hold ids, types, codes and figures; never an error's text, a payload or a secret. What anybody else logs
(Dramatiq, other libraries, handlers) goes through the same formatter, which replaces exceptions and messages among a
record's arguments by their class and id, and a traceback by class, code and place.
"""

from __future__ import annotations

import logging
import re
import sys
import threading
from collections.abc import MutableMapping
from types import TracebackType
from typing import Any

import structlog
from dramatiq import Message, MessageProxy

from middleware.failures import clean_name, describe
from store import clock
from store.events import Failure
from store.job import Job

log: structlog.typing.FilteringBoundLogger = structlog.get_logger("dramaturg")

#: The same for lines that every run writes: bound once by ``configure``, where ``log`` binds anew at each call.
_runs = log

#: Loggers of drivers, whose finer lines hold statements, frames, addresses and servers' texts: warnings and worse only.
DRIVERS = ("httpcore", "httpx", "psycopg", "redis", "surrealdb", "websockets")

#: Loggers whose lines describe the objects at hand, errors and all, from the first bracket or the second line on.
DESCRIBING = ("asyncio",)

#: Seconds between two lines about the same trouble.
QUIET = 60.0


def job_started(job: Job) -> None:
    """A handler begins."""
    _runs.info("job_started", job_id=job.id, job_type=job.job_type, attempt=job.attempt)


def credential_missing(job: Job, name: str) -> None:
    """A job was given back, as the file of a credential that it wants can't be opened."""
    _runs.warning("credential_missing", job_id=job.id, job_type=job.job_type, credential=name)


def job_completed(job: Job, state: str | None, seconds: float) -> None:
    """A run succeeded and its finish is durable; ``state`` is where the row is now (None: it was deleted)."""
    _runs.info(
        "job_completed",
        job_id=job.id,
        job_type=job.job_type,
        attempt=job.attempt,
        state=state,
        seconds=round(seconds, 3),
    )


def job_retry(job: Job, failure: Failure, state: str | None, retries: int) -> None:
    """An attempt failed and that is durable; ``state`` tells whether it runs again."""
    log.warning(
        "job_retry",
        job_id=job.id,
        job_type=job.job_type,
        attempt=job.attempt,
        retries=retries,
        state=state,
        error=failure.kind,
        code=failure.code,
        place=failure.place,
    )


def job_failed_after_its_end(job: Job, failure: Failure) -> None:
    """A handler raised after its own transaction had finished the job: that counts for nothing."""
    log.warning("job_failed_after_its_end", job_id=job.id, job_type=job.job_type, error=failure.kind, code=failure.code)


def job_unsettled(job: Job, error: BaseException) -> None:
    """What ended a run can't be written on its row: its lease will run out, and it counts as a lost worker's."""
    failure = describe(error)
    log.error("job_unsettled", job_id=job.id, job_type=job.job_type, error=failure.kind, code=failure.code)


def job_stopped(job: Job, why: str, state: str | None) -> None:
    """A run ended without success or failure: cancelled, released, given back."""
    log.info("job_stopped", job_id=job.id, job_type=job.job_type, attempt=job.attempt, why=why, state=state)


def job_stale(job: Job, answer: str) -> None:
    """A finish was refused: the lease had been lost, or the row is gone."""
    log.warning("job_stale", job_id=job.id, job_type=job.job_type, attempt=job.attempt, answer=answer)


def job_reclaimed(job: Job, state: str | None) -> None:
    """The sweep took a row back whose lease had run out."""
    log.warning(
        "job_reclaimed", job_id=job.id, job_type=job.job_type, attempt=job.attempt, worker=job.worker, state=state
    )


def schedule_unusable(schedule: str, error: Exception) -> None:
    """A published schedule can't be fired; the others are."""
    failure = describe(error)
    log.error("schedule_unusable", schedule=schedule, error=failure.kind, code=failure.code, message=failure.message)


def trouble(event: str, error: BaseException) -> None:
    """``valkey_error``, ``queue_unavailable`` ...: once a minute for each code, with a count of those in between."""
    failure = describe(error)
    count = _THROTTLE.due(f"{event} {failure.code}")
    if count:
        log.error(event, error=failure.kind, code=failure.code, message=failure.message, count=count)


class Throttle:
    """Lets one through a minute for each name and counts the rest."""

    def __init__(self, quiet: float = QUIET) -> None:
        self._quiet = quiet
        self._lock = threading.Lock()
        self._seen: dict[str, tuple[float, int]] = {}

    def due(self, name: str) -> int:
        """0: keep quiet; else how many there were since the last line, this one included."""
        with self._lock:
            said, count = self._seen.get(name, (None, 0))
            moment = clock.elapsed()
            if said is not None and moment - said < self._quiet:
                self._seen[name] = (said, count + 1)
                return 0
            self._seen[name] = (moment, 0)
            return count + 1


_THROTTLE = Throttle()


def configure(level: str, style: str) -> None:
    """Send our lines and the libraries' through one formatter, on whatever handlers the process' root logger has."""
    shared: list[Any] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(level),  # a line below the level costs a call, no more
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    global _runs
    _runs = log.bind()
    last: Any = (
        structlog.processors.JSONRenderer(ensure_ascii=True)
        if style == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, _safe, last],
    )
    root = logging.getLogger()
    if not root.handlers:
        root.addHandler(logging.StreamHandler())
    for handler in root.handlers:
        handler.setFormatter(formatter)
        handler.handleError = _unwritable  # type: ignore[method-assign]  # Python's own prints the error's text
        if not any(isinstance(known, _Reduce) for known in handler.filters):
            handler.addFilter(_Reduce())
    root.setLevel(level.upper())
    for name in DRIVERS:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))


def _unwritable(record: logging.LogRecord) -> None:
    """A line that could not be written, such as one whose value fails when it is turned into text."""
    error = sys.exc_info()[1]
    told = "" if error is None else f" ({clean_name(type(error).__name__)})"
    if sys.stderr is not None:
        sys.stderr.write(f"a log line of {clean_name(record.name)} could not be written{told}\n")


#: Characters of an error's text that are looked for in a line: fewer are a part of any word.
_SPOKEN_LEAST = 3


class _Reduce(logging.Filter):
    """Takes the texts of errors, and the bodies of messages, out of a record before any formatter sees them."""

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(_reduced(value) for value in record.args)
        elif isinstance(record.args, dict):
            record.args = _reduced(record.args)
        if isinstance(record.msg, BaseException):
            record.msg, record.args = _reduced(record.msg), ()
        if record.name in DESCRIBING:
            record.msg, record.args = re.split(r"[<\n]", record.getMessage(), maxsplit=1)[0].strip(), ()
        if record.exc_info and record.exc_info[1] is not None and not isinstance(record.msg, dict):
            record.msg = _without(str(record.msg), record.exc_info[1])
            failure = describe(record.exc_info[1])
            note = f" [{failure.kind} {failure.code} at {failure.place}]"
            record.msg = f"{record.msg}{note.replace('%', '%%') if record.args else note}"
        record.exc_info = record.exc_text = None
        return True


def _without(text: str, error: BaseException) -> str:
    """``text`` without what the error says, which somebody may have put in."""
    said = [error, *error.args]
    for one in said:
        try:
            spoken = [str(one), repr(one)]
        except Exception:  # noqa: BLE001, S112 - an error that can't be turned into text is in no text
            continue
        for words in spoken:
            if len(words) > _SPOKEN_LEAST:
                text = text.replace(words, "...")
    return text


def _reduced(value: Any, depth: int = 3) -> Any:
    if isinstance(value, (Message, MessageProxy)):
        return f"{value.actor_name}[{value.message_id}]"
    if isinstance(value, BaseException):
        failure = describe(value)
        return failure.message or f"{failure.kind} {failure.code}"
    if depth and type(value) in (list, tuple):
        return type(value)(_reduced(one, depth - 1) for one in value)
    if depth and type(value) is dict:
        return {_reduced(name, depth - 1): _reduced(one, depth - 1) for name, one in value.items()}
    return value


def _safe(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Errors without their texts; and control characters in a value must not forge lines or drive a terminal."""
    raised = event.pop("exc_info", None)
    if raised is True:
        raised = sys.exc_info()
    if error := raised[1] if isinstance(raised, tuple) and len(raised) == 3 else raised:
        failure = describe(error) if isinstance(error, BaseException) else Failure("", "unknown")
        event.update(error=failure.kind, code=failure.code, place=failure.place)
    for name, value in event.items():
        value = event[name] = _reduced(value)
        if isinstance(value, str) and not value.isprintable():
            event[name] = "".join(char if char.isprintable() else "�" for char in value)
    return event


def take_last_words() -> None:
    """What a thread or the process dies of, and what a finalizer raises, becomes a log line, where Python would print
    its text. For a process that is ours alone."""

    def thread_died(args: threading.ExceptHookArgs) -> None:
        if args.exc_value is not None and not isinstance(args.exc_value, SystemExit):
            _last_word("thread_died", args.exc_value)

    def process_died(_: type[BaseException], error: BaseException, __: TracebackType | None) -> None:
        _last_word("process_died", error)

    def unraisable(args: sys.UnraisableHookArgs) -> None:
        if args.exc_value is not None:
            _last_word("error_ignored", args.exc_value)

    threading.excepthook, sys.excepthook, sys.unraisablehook = thread_died, process_died, unraisable


def _last_word(event: str, error: BaseException) -> None:
    failure = describe(error)
    log.error(event, error=failure.kind, code=failure.code, message=failure.message, place=failure.place)
