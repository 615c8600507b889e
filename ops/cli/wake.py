"""``wake``: ask for a job, with everything checked before anything is written."""

from __future__ import annotations

import difflib
import json
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from ops.cli import output
from ops.cli.keys import published_key
from ops.cli.options import json_option
from ops.cli.session import opened, settings_of_all, valkey
from ops.cli.when import moment_of, seconds_of
from store import payloads
from store.contract import Store, Woken
from store.errors import PayloadInvalid, Refused, UnknownType, UsageError
from store.events import Wake
from store.identity import DEFAULT_DOMAIN, check_name, job_id
from store.job import State
from store.operations import policies, read_policy
from store.policy import Policy
from store.settings import StoreSettings

if TYPE_CHECKING:
    from middleware.job import JobActor
    from middleware.settings import WorkerSettings
    from store.valkey.client import Client

#: Names that a hint lists at most.
_HINTS = 12


class Wanted(NamedTuple):
    """What the command line asked for, as far as it could be checked without the store."""

    job_type: str
    payload: dict[str, Any]
    text: str  # the payload in its canonical spelling
    key: str | None
    domain: str
    queue: str | None
    owner: str | None
    priority: int | None
    once: bool
    delay: float
    run_at: datetime | None
    request_id: str | None
    trace: str | None


@click.command()
@click.argument("job_type", metavar="TYPE")
@click.option(
    "--payload", default="{}", metavar="JSON", help="A JSON object; - reads it from standard input, @FILE from a file."
)
@click.option("--key", metavar="KEY", help="The resource: the same key is the same job. Unset: made from the payload.")
@click.option("--in", "delay", metavar="LENGTH", help="Due in 10s, 5m, 2h or 1d.")
@click.option("--at", metavar="TIME", help="Due at 2026-12-01T09:00+01:00, or '2026-12-01 09:00 Europe/Berlin'.")
@click.option("--queue", metavar="NAME", help="Another queue than the type's.")
@click.option("--domain", metavar="NAME", default=DEFAULT_DOMAIN, show_default=True, help="The area or tenant.")
@click.option("--owner", metavar="NAME", help="Whom the job belongs to.")
@click.option("--priority", type=click.IntRange(1, 10), help="1 is the most urgent. Unset: the type's.")
@click.option("--once", is_flag=True, help="Change nothing if the job exists: idempotency instead of coalescing.")
@click.option("--request-id", metavar="ID", help="The request on whose behalf it is asked for.")
@click.option("--trace", metavar="CONTEXT", help="The trace that it belongs to, such as a traceparent.")
@json_option
def wake(
    job_type: str,
    payload: str,
    key: str | None,
    delay: str | None,
    at: str | None,
    queue: str | None,
    domain: str,
    owner: str | None,
    priority: int | None,
    once: bool,
    request_id: str | None,
    trace: str | None,
    as_json: bool,
) -> None:
    """Ask for a job of TYPE.

    A job that exists (same domain, queue, type and key) gets the newest payload and the earlier of the two times. The
    answer describes the stored job.
    """
    if delay is not None and at is not None:
        raise UsageError("--in and --at exclude each other")
    from middleware.job import check_queue

    chosen, worker = settings_of_all()
    bell = valkey(chosen)
    text, value = _payload(payload, chosen.max_json_bytes)
    wanted = Wanted(
        check_name("job type", job_type),
        value,
        text,
        None if key is None else check_name("key", key),
        check_name("domain", domain),
        None if queue is None else check_queue(queue),
        None if owner is None else check_name("owner", owner),
        priority,
        once,
        0.0 if delay is None else seconds_of(delay),
        None if at is None else moment_of(at),
        None if request_id is None else check_name("request id", request_id),
        None if trace is None else check_name("trace", trace),
    )
    with opened(chosen) as store:
        policy = _published(store, wanted.job_type)
        actor = known_here(wanted.job_type)
        request = _request(wanted, policy, actor)
        now = store.ping()
        woken = store.wake([request])[0]
        reached = not woken.due or _ring(chosen, worker, bell, request)
    _answer(woken, request, now, as_json)
    if actor is None and request.key is None and not as_json:
        click.echo(
            f"{output.printable(wanted.job_type)} is not declared here, so its payload could not be checked, and "
            "it has no key: this is a job of its own",
            err=True,
        )
    if not reached:
        click.echo("Valkey was not reached, so nobody was told: the scheduler finds the job by itself", err=True)


def known_here(job_type: str) -> JobActor[Any, Any] | None:
    """The type as it is declared in ``actors``; None for one that others declare."""
    import actors  # noqa: F401 - declares the types
    from middleware.build import broker
    from middleware.job import JobActor

    found = broker().actors.get(job_type)
    return found if isinstance(found, JobActor) else None


def _payload(given: str, limit: int) -> tuple[str, dict[str, Any]]:
    text = payloads.check(_read(given, limit), limit=limit)
    value = json.loads(text)
    if not isinstance(value, dict):
        raise PayloadInvalid('payload is not a JSON object: write it like {"invoice_id": 7}')
    return text, value


def _read(given: str, limit: int) -> str:
    """The payload's text; of standard input and files no more than the limit and a byte is read."""
    if given == "-":
        raw = sys.stdin.buffer.read(limit + 1)
    elif given.startswith("@"):
        try:
            with Path(given[1:]).open("rb") as file:
                raw = file.read(limit + 1)
        except (OSError, ValueError) as error:
            raise UsageError(f"--payload names a file that can't be read ({type(error).__name__})") from None
    else:
        return given
    try:
        return raw.decode("utf-8") if len(raw) <= limit else "x" * len(raw)
    except UnicodeDecodeError:
        raise PayloadInvalid("payload is not UTF-8") from None


def _published(store: Store, job_type: str) -> Policy:
    document = store.get("policy", job_type)
    if document is None:
        raise UnknownType(f"nobody has published the job type {job_type!r}: {_hint(store, job_type)}")
    policy = read_policy(document)
    if policy is None:
        raise Refused(
            f"the published policy of {job_type!r} can't be read here: a newer program wrote it, so use that one"
        )
    return policy


def _hint(store: Store, job_type: str) -> str:
    there = sorted(policies(store))
    if close := difflib.get_close_matches(job_type, there, 3, 0.6):
        return f"did you mean {' or '.join(close)}?"
    if not there:
        return "there are none yet, so start a worker that knows it, or run `dramaturg migrate`"
    more = f" and {len(there) - _HINTS} more" if len(there) > _HINTS else ""
    return f"there are {', '.join(there[:_HINTS])}{more}; a type is published by the first worker that knows it"


def _request(wanted: Wanted, policy: Policy, actor: JobActor[Any, Any] | None) -> Wake:
    """The wake to be written; what the command line left open is the published policy's."""
    from middleware.job import check_queue

    if wanted.once and not policy.keep_finished:
        raise UsageError(f"{wanted.job_type} keeps no finished rows, so --once could not see what ran before")
    queue = check_queue(wanted.queue or policy.queue)
    priority = policy.priority if wanted.priority is None else wanted.priority
    text, key = wanted.text, wanted.key
    if actor is not None:
        checked = actor.request(kwargs=wanted.payload, key=wanted.key, domain=wanted.domain, queue=queue)
        text, key = checked.payload, checked.key
    elif key is None:
        key = published_key(policy, wanted.payload)
    if wanted.once and key is None:
        raise UsageError(f"--once wants a --key, by which {wanted.job_type} can be found again")
    return Wake(
        id=job_id(wanted.domain, queue, wanted.job_type, key),
        domain=wanted.domain,
        queue=queue,
        job_type=wanted.job_type,
        key=key,
        payload=text,
        owner=wanted.owner,
        priority=priority,
        run_at=wanted.run_at,
        delay=wanted.delay,
        once=wanted.once,
        max_retries=policy.max_retries,
        request_id=wanted.request_id,
        trace=wanted.trace,
    )


def _ring(chosen: StoreSettings, worker: WorkerSettings, bell: tuple[str, Client] | None, request: Wake) -> bool:
    """Tell Valkey, if one is up: a hint that saves the scheduler's next look. False where it was not reached."""
    from pydantic import SecretStr

    from middleware.ringing import Hint
    from middleware.runtime import Runtime
    from store.errors import ValkeyUnavailable

    if bell is None:
        return True  # nothing is up, so nothing waits for a bell
    url, client = bell
    try:
        client.ping()
    except ValkeyUnavailable:
        return False
    finally:
        client.close()
    runtime = Runtime(chosen.model_copy(update={"valkey_url": SecretStr(url)}), worker)
    runtime.ring([Hint(request.queue, request.id, request.priority)])
    runtime.close()
    return True


def _answer(woken: Woken, request: Wake, now: datetime, as_json: bool) -> None:
    if as_json:
        output.emit(
            {
                "id": woken.id,
                "state": woken.state,
                "generation": woken.generation,
                "run_at": output.moment(woken.run_at),
                "created": woken.created,
                "repeated": woken.repeated,
                "key": request.key,
                "queue": request.queue,
            }
        )
        return
    console = output.console()
    console.print(
        output.facts(
            {
                "id": output.cell(woken.id),
                "key": output.cell(request.key),
                "queue": output.cell(request.queue),
                "state": output.stated(woken.state),
                "run_at": output.cell(f"{output.moment(woken.run_at)}   {output.relative(woken.run_at, now)}"),
                "generation": output.cell(woken.generation),
            }
        )
    )
    if woken.repeated:
        console.print("it exists already and was left as it is (--once)")
    elif woken.state == State.QUARANTINED:
        console.print("it is quarantined: the payload was updated, and it runs once it is requeued")
    elif woken.state == State.PROCESSING:
        console.print("it runs right now, and once more afterwards")
