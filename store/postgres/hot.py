"""The hot path on one connection: each a function of the database (``schema/002`` and ``003``), called once a batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import orjson
import psycopg
import structlog

from store import clock, wire
from store.contract import Change, Claimed, Due, Renewal, Renewed, Woken
from store.events import Claim, Wake
from store.job import Job
from store.postgres.connections import Connection as OurConnection
from store.postgres.values import JOB, called, spelled

_WAKE: Final = (
    "SELECT w.id::text, w.state, w.generation, w.run_at, w.created, w.repeated, w.due "
    "FROM dramaturg.wake_rows($1::json, $2::timestamptz, $3::boolean) AS w"
)
_WAKE_NEW: Final = "SELECT dramaturg.wake_new($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13::timestamptz, $14)"
# The same as a plain insert, where our session keeps it prepared: 136 us a wake where the function took 154, the wait
# for the disk left out. Types are exact, so that pg_catalog's functions and operators are meant whatever else stands in
# the search path.
_WAKE_NOW: Final = """
INSERT INTO dramaturg.job (
  id, domain, queue, job_type, owner, priority, payload, run_at, generation, revision, state, retries,
  max_retries, failure_streak, attempt, stopping, request_id, trace, created_at, updated_at
)
SELECT
  $1::uuid, $2::text, $3::text, $4::text, $6::text, $7::smallint, $5::json, clock,
  (extract(epoch FROM clock) * 1000000::numeric)::bigint, 1, 'queued', 0,
  $8::smallint, 0, 0, false, $9::text, $10::text, clock, clock
FROM (SELECT coalesce($11::timestamptz, clock_timestamp()) AS clock) AS now
WHERE to_regclass('dramaturg.limited'::text) IS NULL
ON CONFLICT DO NOTHING RETURNING generation
"""
_CLAIM: Final = f"SELECT {JOB} FROM dramaturg.claim_rows($1::json, $2::timestamptz) AS job"
_RENEW: Final = "SELECT r.id::text, r.cancelled FROM dramaturg.renew_rows($1::json, $2::timestamptz) AS r"
_SWAP: Final = (
    "SELECT s.written::text[], s.unrecorded FROM dramaturg.swap_rows($1::json, $2::json, $3::timestamptz) AS s"
)
_DUE: Final = (
    "SELECT d.id::text, d.queue, d.priority, d.run_at "
    "FROM dramaturg.due_rows($1::json, $2::integer, $3::timestamptz) AS d"
)

_HELD: Final = "SELECT h::text FROM dramaturg.held_rows($1::json, $2::timestamptz) AS h"

_log = structlog.get_logger("store")

Connection = psycopg.Connection[Any]


def wake(connection: Connection, wakes: Sequence[Wake], now: datetime | None, *, notify: bool = True) -> list[Woken]:
    """As ``Store.wake``; where an id comes twice, more than one statement, so inside a transaction."""
    if len(wakes) == 1 and wakes[0].key is None and (alone := _wake_new(connection, wakes[0], now, notify=notify)):
        return [alone]
    answers: dict[int, Woken] = {}
    for batch in wire.rounds(wakes):
        sent = [wire.wakes_json([item for _, item in batch], spelled), _at(now), str(notify)]
        told = {row.id: row for row in called(connection, _WAKE, sent, Woken._make)}
        answers.update((place, told[item.id]) for place, item in batch)
    return [answers[place] for place in range(len(wakes))]


def _wake_new(connection: Connection, wake: Wake, now: datetime | None, *, notify: bool) -> Woken | None:
    """One wake of a job that has no row yet; None where it has, or where limits have to be asked."""
    what = [wake.id, wake.domain, wake.queue, wake.job_type, wake.payload, wake.owner, str(wake.priority)]
    retries = None if wake.max_retries is None else str(wake.max_retries)
    ours = isinstance(connection, OurConnection) and connection.scope is None and connection.prepares
    if ours and not notify and wake.run_at is None and not wake.delay:
        plain = [*what, retries, wake.request_id, wake.trace, _at(now)]
        written = called(connection, _WAKE_NOW, plain, tuple)
        if not written:
            return None
        [(version,)] = written
        at = clock.from_micros(version)
        return Woken(wake.id, "queued", version, at, created=True, repeated=False, due=True)
    when = [None if wake.run_at is None else spelled(wake.run_at), str(wake.delay)]
    sent = [*what, *when, retries, wake.request_id, wake.trace, _at(now), str(notify)]
    [(told,)] = called(connection, _WAKE_NEW, sent, tuple)
    if told is None:
        return None
    generation, micros, is_due = told
    run_at = clock.PARKED if micros is None else clock.from_micros(micros)
    return Woken(wake.id, "queued", generation, run_at, created=True, repeated=False, due=bool(is_due))


def due(connection: Connection, limit: int, after: Mapping[str, Due] | None, now: datetime | None) -> list[Due]:
    """As ``Store.due``."""
    page = None
    if after is not None:
        page = _json(
            {"queue": queue, "priority": last.priority, "run_at": spelled(last.run_at), "id": last.id}
            for queue, last in after.items()
        )
    return called(connection, _DUE, [page, str(max(limit, 0)), _at(now)], Due._make)


def claim(connection: Connection, claims: Sequence[Claim], now: datetime | None) -> list[Claimed]:
    """As ``Store.claim``; a second statement only where some rows were not taken."""
    answers: dict[int, Claimed] = {}
    for batch in wire.rounds(claims):
        sent = [_json(item._asdict() for _, item in _by_id(batch)), _at(now)]
        taken = {job.id: job for job in called(connection, _CLAIM, sent, Job._make)}
        missed = [item for _, item in batch if item.id not in taken]
        held = _held(connection, missed, now) if missed else set()
        answers.update((place, Claimed(taken.get(item.id), item.id in held)) for place, item in batch)
    return [answers[place] for place in range(len(claims))]


def renew(connection: Connection, renewals: Sequence[Renewal], now: datetime | None) -> list[Renewed]:
    """As ``Store.renew``."""
    answers: dict[int, Renewed] = {}
    for batch in wire.rounds(renewals):
        sent = [_json(_renewal(item) for _, item in _by_id(batch)), _at(now)]
        held: dict[str, bool] = dict(called(connection, _RENEW, sent, tuple))
        answers.update((place, Renewed(item.id in held, held.get(item.id, False))) for place, item in batch)
    return [answers[place] for place in range(len(renewals))]


def swap(connection: Connection, changes: Sequence[Change], now: datetime | None) -> list[bool]:
    """As ``Store.swap``; of several changes of one row the first is tried."""
    first: dict[str, Change] = {}
    for change in changes:
        if change.decision.write is not None:
            first.setdefault(change.id, change)
    if not first:
        return [False] * len(changes)
    recording = [change for change in first.values() if change.decision.history]
    entries = _json(_entries(recording)) if recording else None
    sent = [wire.changes_json(list(first.values()), spelled), entries, _at(now)]
    [(written, unrecorded)] = called(connection, _SWAP, sent, tuple)
    done = set(written)
    if unrecorded is not None:
        lost = [change.id for change in recording if change.id in done]
        _log.warning("job_history_failed", job_ids=lost, error=unrecorded)
    return [change.id in done and first[change.id] is change for change in changes]


def _held(connection: Connection, claims: Sequence[Claim], now: datetime | None) -> set[str]:
    asked = _json({"id": claim.id, "lease_id": claim.lease_id} for claim in claims)
    return {id_ for (id_,) in called(connection, _HELD, [asked, _at(now)], tuple)}


def _renewal(renewal: Renewal) -> dict[str, Any]:
    percent, message = renewal.progress or (None, None)
    return {
        "id": renewal.id,
        "lease_id": renewal.lease_id,
        "attempt": renewal.attempt,
        "seconds": renewal.seconds,
        "percent": percent,
        "message": message,
        "stopping": renewal.stopping,
    }


def _entries(changes: Sequence[Change]) -> Iterator[dict[str, Any]]:
    for change in changes:
        for entry in change.decision.history:
            yield entry._asdict() | {"job_id": change.id, "detail": dict(entry.detail)}


def _by_id(batch: list[tuple[int, Any]]) -> list[tuple[int, Any]]:
    return sorted(batch, key=lambda item: item[1].id)


def _json(values: Iterable[Any]) -> str:
    return orjson.dumps(list(values)).decode()


def _at(now: datetime | None) -> str | None:
    return None if now is None else spelled(now)
