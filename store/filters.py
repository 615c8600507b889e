"""Which rows: one record that every operator's action, list and count takes. There is no expression language."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal, NamedTuple

from store.job import TERMINAL, State

Phase = Literal["ready", "scheduled", "parked"]
Order = Literal["id", "claim", "created", "updated"]


class Filter(NamedTuple):
    """Rows that match every field that is not None.

    ``phase`` narrows queued rows by the database's now; ``lapsed`` means that leased_until lies in the past. The
    ``..._before`` are moments, exclusive. ``after_id`` is exclusive too and pages through ``order="id"``.

    The ``..._over`` are seconds, measured by the statement against the database's now: queued and not parked with a
    run_at, processing with a started_at or a leased_until, ended or held with that moment, at least so long ago.
    """

    ids: Sequence[str] | None = None
    domain: str | None = None
    queue: str | None = None
    job_type: str | None = None
    key: str | None = None
    owner: str | None = None
    states: Sequence[str] | None = None
    phase: Phase | None = None
    lapsed: bool | None = None
    failure_code: str | None = None
    lease_id: str | None = None
    created_before: datetime | None = None
    run_before: datetime | None = None
    finished_before: datetime | None = None
    waiting_over: float | None = None
    running_over: float | None = None
    lapsed_over: float | None = None
    ended_over: float | None = None
    after_id: str | None = None

    def narrows(self) -> bool:
        """False for a filter that would match every row, and for one with an empty text or list in it, which was
        meant to name something: bulk actions refuse those."""
        asked = [value for name, value in self._asdict().items() if name != "after_id" and value is not None]
        return bool(asked) and not any(map(_is_empty, asked))

    @property
    def ended_columns(self) -> tuple[str, ...]:
        """The columns that ``ended_over`` asks: no more than the states need, so that an index serves."""
        states = set(self.states or (State.QUARANTINED, *TERMINAL))
        return (*(("finished_at",) if states != {State.QUARANTINED} else ()),
                *(("held_at",) if State.QUARANTINED in states else ()))  # fmt: skip


def _is_empty(value: object) -> bool:
    if isinstance(value, str):
        return not value.strip()
    return isinstance(value, Sequence) and (not value or any(map(_is_empty, value)))


class Tally(NamedTuple):
    """Counts of one (domain, queue, job type); ``oldest_ready`` is the earliest run_at among its ready rows."""

    domain: str
    queue: str
    job_type: str
    ready: int
    scheduled: int
    parked: int
    processing: int
    completed: int
    failed: int
    cancelled: int
    quarantined: int
    oldest_ready: datetime | None
