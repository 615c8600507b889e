"""A ``Run`` for testing a handler by itself: no store, no row, nothing but what the handler says to it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any

from middleware.credentials import LONGEST, Credential, granted
from middleware.instant import InstantHolding
from middleware.rows_only import RowsOnly
from middleware.run import Run
from middleware.settings import WorkerSettings
from store import clock, payloads
from store.errors import UsageError
from store.identity import DEFAULT_DOMAIN, job_id, new_lease_id
from store.job import Job, State
from store.policy import Policy
from store.settings import StoreSettings


class _NoStore(RowsOnly):
    @property
    def store(self) -> Any:
        raise UsageError("this Run has no store: run the job in InlineJobs where it wants a transaction")


class UnitRun(Run):
    """What ``make_run`` answers: a Run, and what the handler said to it. Its sleeps take no time."""

    def __init__(self, holding: InstantHolding, credentials: Mapping[str, Mapping[str, str]]) -> None:
        super().__init__(holding, _NoStore(StoreSettings(), WorkerSettings()))
        self._credentials = credentials

    def credential(self, name: str, *, write: bool = False) -> Credential:
        """As in a worker, with the values that ``make_run`` was given. Raises CredentialNotGranted."""
        values = self._credentials[granted(name, self._credentials, self._holding.job.job_type)]
        now = clock.wall()
        return Credential(name, now, now + LONGEST, write, values)

    @property
    def reported(self) -> tuple[int, str | None] | None:
        """The last report of progress: percent and message."""
        return self._holding.progress

    @property
    def counts(self) -> dict[str, int]:
        """What was counted so far."""
        return dict(self._holding.counts)

    def tell(
        self, *, cancelled: bool = False, lost: bool = False, stopped: bool = False, overdue: bool = False
    ) -> None:
        """What the handler sees from its next check on: a cancel, a lost lease, the worker's stop, the time limit."""
        self._holding.tell(cancelled=cancelled, lost=lost, stopped=stopped, overdue=overdue)


def make_run(
    *,
    job_type: str = "test.job",
    key: str | None = None,
    domain: str = DEFAULT_DOMAIN,
    queue: str = "default",
    owner: str | None = None,
    attempt: int = 1,
    retries: int = 0,
    checkpoint: Any = None,
    woken: bool = False,
    due_at: datetime | None = None,
    request_id: str | None = None,
    credentials: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
) -> UnitRun:
    """A Run as a worker would make it for such a row; ``woken`` wants a checkpoint. ``credentials``: the values of each
    that the run may open. Raises UsageError."""
    if woken and checkpoint is None:
        raise UsageError("woken means: since the checkpoint was set, so it wants a checkpoint")
    now = clock.wall()
    generation = clock.micros(now)
    fields: dict[str, Any] = dict.fromkeys(Job._fields)
    fields |= {
        "id": job_id(domain, queue, job_type, key), "domain": domain, "queue": queue, "job_type": job_type, "key": key,
        "owner": owner, "priority": 5, "payload": "{}", "run_at": clock.PARKED, "generation": generation,
        "revision": 1, "state": State.PROCESSING.value, "retries": retries, "failure_streak": 0,
        "lease_id": new_lease_id(), "attempt": attempt, "stopping": False, "due_at": due_at or now,
        "request_id": request_id, "created_at": now, "updated_at": now, "started_at": now,
    }  # fmt: skip
    if checkpoint is not None:
        fields["checkpoint"] = payloads.encode(checkpoint, what="checkpoint")
        fields["checkpoint_generation"] = generation - 1 if woken else generation
    return UnitRun(InstantHolding(Job(**fields), Policy(job_type), lambda seconds: None), credentials)
