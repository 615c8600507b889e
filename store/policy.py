"""What a job type asks for. Every worker publishes its types' policies as documents, so that a wake in any language
and a sweep in any process take the same defaults."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from store.errors import UsageError
from store.identity import check_name

#: Failed attempts with code ``worker_lost`` in a row after which any type is quarantined: a poison job ends held.
POISON_AFTER = 5

WORKER_LOST = "worker_lost"

CatchUp = Literal["none", "last", "all"]


@dataclass(frozen=True, slots=True)
class Policy:
    """The defaults of one job type; durations in seconds."""

    job_type: str
    key: str | None = None  # a template over the payload's fields: the same key is the same job
    queue: str = "default"
    priority: int = 5
    max_retries: int | None = None
    backoff_first: float = 5.0
    backoff_cap: float = 300.0
    backoff_jitter: float = 0.2
    quarantine_after: int | None = None
    keep_finished: bool = True
    time_limit: float = 3600.0
    interrupt: bool = False
    periodic: str | None = None
    zone: str = "UTC"
    catch_up: CatchUp = "last"
    credentials: tuple[str, ...] = ()  # names of those that its runs may open

    def __post_init__(self) -> None:
        check_name("job type", self.job_type)
        check_name("queue", self.queue)
        for name, low, high in (
            ("priority", 1, 10),
            ("max_retries", 0, 100),
            ("quarantine_after", 1, 100),
        ):
            value = getattr(self, name)
            if value is None and name != "priority":
                continue
            if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
                raise UsageError(f"{name} of job type {self.job_type!r} must be a whole number from {low} to {high}")
        for name, least, most in (
            ("backoff_first", 0.001, 86_400.0),
            ("backoff_cap", 0.001, 7 * 86_400.0),
            ("backoff_jitter", 0.0, 0.2),
            ("time_limit", 0.1, 366 * 86_400.0),
        ):
            value = getattr(self, name)
            if not isinstance(value, (int, float)) or isinstance(value, bool) or not least <= value <= most:
                raise UsageError(f"{name} of job type {self.job_type!r} must lie between {least} and {most}")
        if self.backoff_cap < self.backoff_first:
            raise UsageError(f"backoff_cap of job type {self.job_type!r} lies below its backoff_first")
        if self.catch_up not in ("none", "last", "all"):
            raise UsageError(f"catch_up of job type {self.job_type!r} must be none, last or all")

    def backoff(self, retries: int, jitter: float) -> float:
        """Seconds to wait after the ``retries``-th failure in a row (from 1); ``jitter`` is a draw from 0..1.

        Doubles from ``backoff_first`` to ``backoff_cap``, then moves by at most +-``backoff_jitter``; the cap holds
        after the jitter too.
        """
        doublings = min(max(retries, 1) - 1, 60)  # 2.0 ** 60 is beyond every cap, and no exponent overflows
        plain = min(self.backoff_first * 2.0**doublings, self.backoff_cap)
        return min(plain * (1 + self.backoff_jitter * (2 * jitter - 1)), self.backoff_cap)

    def document(self) -> dict[str, Any]:
        """The policy as plain JSON values."""
        return asdict(self) | {"credentials": list(self.credentials)}

    @classmethod
    def from_document(cls, body: dict[str, Any]) -> Policy:
        """Read a published policy; fields that a newer program added are passed over."""
        known = {field.name for field in fields(cls)}
        told = {name: value for name, value in body.items() if name in known}
        return cls(**told | {"credentials": tuple(body.get("credentials", ()))})
