"""The settings of a worker process."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from store.settings import Section

#: What a claim in Valkey holds until the row's claim extends it, in seconds: a crash between the two costs just that.
SHORT_LEASE = 10.0


class WorkerSettings(Section):
    """How many jobs at a time, how long a lease, how to stop. Durations are seconds."""

    concurrency: int = Field(default=2, ge=1, le=16, validation_alias="WORKER_CONCURRENCY")
    lease_seconds: float = Field(default=120.0, ge=1, le=3600, validation_alias="JOBS_LEASE_SECONDS")
    renew_seconds: float | None = Field(default=None, gt=0, validation_alias="JOBS_LEASE_RENEW_SECONDS")
    renew_jitter_seconds: float | None = Field(default=None, ge=0, validation_alias="JOBS_LEASE_RENEW_JITTER_SECONDS")
    shutdown_wait_seconds: float = Field(
        default=30.0, ge=0, le=540, validation_alias="JOBS_SHUTDOWN_WAIT_FOR_LEASES_SEC"
    )
    log_format: Literal["json", "console"] = Field(default="console", validation_alias="JOBS_LOG_FORMAT")
    log_level: Literal["debug", "info", "warning", "error"] = Field(default="info", validation_alias="JOBS_LOG_LEVEL")

    @model_validator(mode="after")
    def _renewed_in_time(self) -> WorkerSettings:
        # Half the lease must be left after the latest renewal, so that one lost renewal loses nothing.
        if self.renew_every + self.renew_jitter > self.lease_seconds / 2:
            raise ValueError(
                "JOBS_LEASE_RENEW_SECONDS plus JOBS_LEASE_RENEW_JITTER_SECONDS must be at most half of "
                "JOBS_LEASE_SECONDS: a lease must survive a renewal that is lost"
            )
        return self

    @property
    def renew_every(self) -> float:
        """Seconds between two renewals: a quarter of the lease unless set."""
        return self.lease_seconds / 4 if self.renew_seconds is None else self.renew_seconds

    @property
    def renew_jitter(self) -> float:
        """Seconds by which a renewal may come later, so that workers don't renew in step."""
        return min(5.0, self.renew_every / 6) if self.renew_jitter_seconds is None else self.renew_jitter_seconds

    @property
    def short_lease(self) -> float:
        """Seconds that a claim in Valkey holds before the row is claimed."""
        return min(SHORT_LEASE, self.lease_seconds)
