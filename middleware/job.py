"""``@job``: a function becomes a durable job type, declared as a Dramatiq actor on our broker."""

from __future__ import annotations

import inspect
import re
import string
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime, timedelta
from typing import Any, Generic, ParamSpec, TypedDict, TypeVar, cast, get_args
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import dramatiq
from dramatiq.asyncio import async_to_sync
from periodiq import CronSpec
from pydantic import BaseModel, ConfigDict, ValidationError

from middleware import lineage
from middleware.broker import SCHEDULER_QUEUE, Broker
from middleware.credentials import check_declared
from middleware.fence import Handler, JobFailed, run_fenced
from middleware.lineage import INHERITED
from middleware.run import Run
from store import payloads
from store.contract import Woken
from store.errors import PayloadInvalid, UsageError
from store.events import Wake
from store.identity import DEFAULT_DOMAIN, check_name, job_id
from store.outcome import MAX_DELAY, Outcome
from store.policy import CatchUp, Policy

PS = ParamSpec("PS")
T = TypeVar("T", bound="Payload")


class Payload(BaseModel):
    """Base of payload schemas: small, identifiers only, and strict about what it doesn't know."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, ser_json_inf_nan="constants")


class Tick(Payload):
    """The payload of a recurring job: the moment that it stands for, None where somebody woke it by hand."""

    tick: datetime | None = None


#: What Dramatiq takes as a queue's name; a job in any other queue would never be served.
_QUEUE = re.compile(r"[a-zA-Z_][a-zA-Z0-9._-]*")


#: Faults of a payload that one error names.
FAULTS_MOST = 10


class JobOptions(TypedDict, total=False):
    """What a developer may say of a type beside its payload and key: the fields of Policy, which say the defaults."""

    queue: str
    priority: int
    max_retries: int | None
    backoff_first: float
    backoff_cap: float
    backoff_jitter: float
    quarantine_after: int | None
    keep_finished: bool
    time_limit: float
    interrupt: bool
    periodic: CronSpec | str
    zone: str
    catch_up: CatchUp
    credentials: Iterable[str]


_OPTIONS = frozenset(JobOptions.__annotations__)


class JobActor(dramatiq.Actor[PS, Woken], Generic[PS, T]):
    """A job type. Calling it with a payload and a run calls the handler; a worker calls it through the fence."""

    broker: Broker
    payload_type: type[T]
    policy: Policy
    key: str | None
    handler: Handler

    def send(self, *args: PS.args, **kwargs: PS.kwargs) -> Woken:  # type: ignore[override]
        """Wake the job in a transaction of its own and ring for a worker. Answers what the row is now.

        Raises PayloadInvalid, StoreUnavailable.
        """
        return self.send_with_options(args=args, kwargs=kwargs)

    def send_with_options(  # type: ignore[override]
        self,
        *,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        delay: timedelta | float | None = None,
        **options: Any,
    ) -> Woken:
        """``send`` with options: ``delay`` (milliseconds as in Dramatiq, or a timedelta) or ``run_at`` (an aware
        datetime), ``key``, ``domain``, ``queue``, ``owner``, ``priority``, ``once``, ``request_id``, ``trace``."""
        if "scheduled_at" in options:  # the ticker's call: it only asks the scheduler to look now
            self.broker.call_scheduler()
            return Woken("", "", 0, datetime.max, created=False, repeated=True, due=False)
        return self.broker.wake([self.request(args, kwargs, delay=delay, **options)])[0]

    def wake(self, tx: Any, *args: PS.args, **kwargs: PS.kwargs) -> Woken:
        """Wake the job inside the caller's transaction: it runs if that commits and never if it rolls back.

        ``tx`` is a psycopg or sqlite3 connection, or a transaction of the store.
        """
        return self.wake_with_options(tx, args=args, kwargs=kwargs)

    def wake_with_options(
        self, tx: Any, *, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None, **options: Any
    ) -> Woken:
        """``wake`` with the options of ``send_with_options``."""
        return self.broker.runtime.store.adopt(tx).wake([self.request(args, kwargs, **options)])[0]

    def request(
        self,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        *,
        delay: timedelta | float | None = None,
        run_at: datetime | None = None,
        key: str | None = None,
        domain: str = DEFAULT_DOMAIN,
        queue: str | None = None,
        owner: str | None = None,
        priority: int | None = None,
        once: bool = False,
        request_id: str | None = INHERITED,
        trace: str | None = INHERITED,
    ) -> Wake:
        """The wake that ``send`` would write, checked. Raises PayloadInvalid or UsageError; changes nothing.

        ``request_id`` and ``trace`` are those of the run that it is made in, unless they are given (None: none).
        """
        behalf = lineage.current()
        request_id = behalf.request_id if request_id is INHERITED else request_id
        trace = behalf.trace if trace is INHERITED else trace
        if args:
            raise UsageError(f"{self.actor_name} takes its payload as named fields")
        payload = validated(self.payload_type, kwargs or {}, self.actor_name)
        limit = self.broker.runtime.settings.max_json_bytes
        text = payloads.encode(dumped(payload, self.actor_name), limit=limit)
        if once and not self.policy.keep_finished:
            raise UsageError(f"{self.actor_name} keeps no finished rows, so `once` could not see what ran before")
        if run_at is not None and (not isinstance(run_at, datetime) or run_at.tzinfo is None):
            raise UsageError("run_at wants a datetime with a time zone")
        if priority is not None and (isinstance(priority, bool) or not 1 <= priority <= 10):
            raise UsageError("priority must be a whole number from 1 (most urgent) to 10")
        name = render_key(self.key, payload) if key is None else check_name("key", key)
        if name is None and self.policy.periodic is not None:
            name = self.actor_name  # a schedule has one row, whoever wakes it
        if once and name is None:
            raise UsageError(f"`once` wants a key, by which {self.actor_name} can be found again")
        lane = check_queue(queue) if queue else self.policy.queue
        return Wake(
            id=job_id(
                domain if domain == DEFAULT_DOMAIN else check_name("domain", domain), lane, self.actor_name, name
            ),
            domain=domain,
            queue=lane,
            job_type=self.actor_name,
            key=name,
            payload=text,
            owner=None if owner is None else check_name("owner", owner),
            priority=self.policy.priority if priority is None else priority,
            run_at=run_at,
            delay=_seconds(delay),
            once=once,
            max_retries=self.policy.max_retries,
            request_id=None if request_id is None else check_name("request id", request_id),
            trace=None if trace is None else check_name("trace", trace),
        )

    def message_with_options(self, **_: Any) -> Any:
        """Refused: a job is woken, not enqueued."""
        raise UsageError(f"{self.actor_name} is a job, not a message: use send(), send_with_options() or wake()")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Without arguments: a worker's call, for the row that the fence has put in this thread's hands."""
        if args or kwargs:
            return self.handler(*args, **kwargs)
        run_fenced(self.payload_type, self.handler, self.broker.runtime)
        return None


def check_queue(queue: str) -> str:
    """A queue that jobs may stand in; raises UsageError."""
    check_name("queue", queue)
    if queue == SCHEDULER_QUEUE:
        raise UsageError(f"the queue {queue!r} is the scheduler's own: choose another name")
    if not _QUEUE.fullmatch(queue):
        raise UsageError("that can't be a queue of workers: use letters, digits and . _ -, a letter or _ first")
    return queue


def validated(payload_type: type[T], values: dict[str, Any], job_type: str) -> T:
    """The payload of ``values``; raises PayloadInvalid that names the fields that don't fit, never their values."""
    try:
        return payload_type.model_validate(values)
    except ValidationError as error:
        raise PayloadInvalid(f"the payload of {job_type} does not fit: {faults(error, payload_type)}") from None
    except RecursionError:
        raise PayloadInvalid(f"the payload of {job_type} is nested too deeply") from None


def dumped(payload: BaseModel, job_type: str) -> Any:
    """A payload as plain JSON values; raises PayloadInvalid where its fields hold what JSON can't say."""
    try:
        return payload.model_dump(mode="json")
    except (ValueError, RecursionError):  # pydantic's own limit of depth lies far above ours
        most = payloads.MAX_DEPTH
        raise PayloadInvalid(
            f"the payload of {job_type} holds what JSON can't say, or is nested more than {most} levels deep"
        ) from None


def faults(error: ValidationError, payload_type: type[BaseModel]) -> str:
    """Fields and kinds of fault: no values, and no names but those that the schema declares."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    known = _declared(payload_type, set())

    def path(parts: tuple[int | str, ...]) -> str:
        return ".".join(str(part) if isinstance(part, int) or part in known else "*" for part in parts) or "payload"

    told = "; ".join(f"{path(fault['loc'])}: {fault['type']}" for fault in found[:FAULTS_MOST])
    more = f" and {len(found) - FAULTS_MOST} more" if len(found) > FAULTS_MOST else ""
    strange = any(fault["type"] == "extra_forbidden" for fault in found)
    return f"{told}{more}" + (f" (its fields are {', '.join(payload_type.model_fields) or 'none'})" if strange else "")


def _declared(kind: Any, seen: set[Any]) -> set[str]:
    """Names of fields in ``kind`` and whatever models stand in it."""
    names: set[str] = set()
    if isinstance(kind, type) and issubclass(kind, BaseModel) and kind not in seen:
        seen.add(kind)
        for name, field in kind.model_fields.items():
            names |= {name, *([field.alias] if field.alias else [])} | _declared(field.annotation, seen)
    for part in get_args(kind):
        names |= _declared(part, seen)
    return names


def render_key(template: str | None, payload: Payload) -> str | None:
    """The key of a payload by the type's template; raises UsageError where it renders empty or unfit."""
    if template is None:
        return None
    names = [name for _, name, _, _ in string.Formatter().parse(template) if name]
    if any(getattr(payload, name) in (None, "") for name in names):
        raise UsageError(f"the key {template!r} renders empty: give the payload the fields that it names")
    return check_name("key", template.format(**{name: getattr(payload, name) for name in names}))


def _seconds(delay: timedelta | float | None) -> float:
    if delay is None:
        return 0.0
    seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay / 1000
    if not 0 <= seconds <= MAX_DELAY:
        raise UsageError("a delay lies between 0 and 100 years")
    return seconds


def declare(
    broker: Broker,
    function: Callable[[T, Run], Outcome | Awaitable[Outcome | None] | None],
    job_type: str,
    payload: type[T],
    key: str | None,
    options: dict[str, Any],
) -> JobActor[Any, T]:
    """Make the actor. Raises UsageError for what can't be."""
    check_name("job type", job_type)
    if unknown := set(options) - _OPTIONS:
        raise UsageError(
            f"@job({job_type!r}) has no option {', '.join(sorted(unknown))}; it has {', '.join(sorted(_OPTIONS))}"
        )
    if job_type in broker.actors:
        raise UsageError(f"{job_type!r} is declared already: a job type, and an actor's name, is there once")
    if not (isinstance(payload, type) and issubclass(payload, Payload)):
        raise UsageError(f"the payload of @job({job_type!r}) must be a subclass of dramaturg.Payload")
    check_handler(job_type, function)
    _check_template(job_type, payload, key)
    if key is not None and options.get("periodic") is not None:
        raise UsageError(f"@job({job_type!r}, periodic=...) has no key of its own: a schedule has one row")
    if options.get("quarantine_after") is True:
        options["quarantine_after"] = 3
    periodic = options.get("periodic")
    if periodic is not None:
        options["periodic"] = str(periodic)
        if "tick" not in payload.model_fields or any(
            field.is_required() for name, field in payload.model_fields.items() if name != "tick"
        ):
            raise UsageError(f"@job({job_type!r}, periodic=...) wants a payload with a field `tick` and defaults: Tick")
    if "credentials" in options:
        options["credentials"] = check_declared(options["credentials"])
    policy = Policy(job_type, key=key, **options)
    check_queue(policy.queue)
    _check_plain(policy)
    declared: dict[str, Any] = {"job": policy, "time_limit": float("inf"), "throws": (JobFailed,)}
    if isinstance(periodic, CronSpec):
        declared["periodic"] = periodic
    decorate = dramatiq.actor(
        actor_class=JobActor,
        actor_name=job_type,
        queue_name=policy.queue,
        priority=policy.priority,
        broker=broker,
        **declared,
    )
    actor = cast(JobActor[Any, T], decorate(cast(Any, function)))
    broker.runtime.policies[job_type] = policy
    actor.payload_type, actor.policy, actor.key = payload, policy, key
    actor.handler = async_to_sync(function) if inspect.iscoroutinefunction(function) else function
    return actor


def check_handler(job_type: str, function: Any) -> None:
    """Raise UsageError for what can't be called with a payload and a run."""
    if not callable(function):
        raise UsageError(f"@job({job_type!r}) wants a function")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise UsageError(f"the function of @job({job_type!r}) is a generator: return an outcome instead of yielding")
    try:
        inspect.signature(function).bind(None, None)
    except TypeError:
        raise UsageError(f"the function of @job({job_type!r}) must take two arguments: the payload and a Run") from None


def _check_plain(policy: Policy) -> None:
    for name in ("interrupt", "keep_finished"):
        if not isinstance(getattr(policy, name), bool):
            raise UsageError(f"{name} of @job({policy.job_type!r}) must be True or False")
    try:
        ZoneInfo(policy.zone)
    except (ZoneInfoNotFoundError, OSError, TypeError, ValueError):
        raise UsageError(f"zone of @job({policy.job_type!r}) is no time zone: write it like Europe/Berlin") from None


def _check_template(job_type: str, payload: type[Payload], key: str | None) -> None:
    if key is None:
        return
    if not key or not key.isprintable():
        raise UsageError(f"the key of @job({job_type!r}) must be a printable template like '{{invoice_id}}'")
    try:
        parts = list(string.Formatter().parse(key))
    except ValueError:
        raise UsageError(f"the key of @job({job_type!r}) is not a template: write it like '{{invoice_id}}'") from None
    for _, name, spec, conversion in parts:
        if name is not None and (name not in payload.model_fields or spec or conversion):
            raise UsageError(
                f"the key of @job({job_type!r}) names {name!r}: use plain fields of {payload.__name__}, "
                f"which are {', '.join(payload.model_fields) or 'none'}"
            )
