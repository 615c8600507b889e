"""The settings of the sweeps: what is kept how long, how often to look, and what to do."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator, model_validator

from store.archive import Archiving
from store.errors import UsageError
from store.identity import check_name
from store.job import State
from store.settings import Section
from store.sweeps import DAY, Limits, Scope

#: Intervals that a crontab can say: whole minutes that part an hour, whole hours that part a day, and a day.
INTERVALS = {60 * minutes: "* * * * *" if minutes == 1 else f"*/{minutes} * * * *"
             for minutes in (1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30)}  # fmt: skip
INTERVALS |= {3600 * hours: "7 * * * *" if hours == 1 else f"7 */{hours} * * *" for hours in (1, 2, 3, 4, 6, 8, 12)}
INTERVALS |= {int(DAY): "7 3 * * *"}


class SweepSettings(Section):
    """Nothing is swept unless it is switched on; by hand everything can be."""

    prune_enforce: bool = Field(default=False, validation_alias="JOBS_PRUNE_ENFORCE")
    prune_interval: int = Field(default=86_400, validation_alias="JOBS_PRUNE_INTERVAL_SEC")
    prune_dry_run: bool = Field(default=False, validation_alias="JOBS_PRUNE_DRY_RUN")
    prune_domain: str = Field(default="", validation_alias="JOBS_PRUNE_DOMAIN")
    prune_queue: str = Field(default="", validation_alias="JOBS_PRUNE_QUEUE")
    prune_job_type: str = Field(default="", validation_alias="JOBS_PRUNE_JOB_TYPE")
    days_terminal: float | None = Field(default=None, ge=0, le=36_500, validation_alias="JOBS_RETENTION_DAYS_TERMINAL")
    days_completed: float = Field(default=30, ge=0, le=36_500, validation_alias="JOBS_RETENTION_DAYS_COMPLETED")
    days_failed: float = Field(default=60, ge=0, le=36_500, validation_alias="JOBS_RETENTION_DAYS_FAILED")
    days_cancelled: float = Field(default=60, ge=0, le=36_500, validation_alias="JOBS_RETENTION_DAYS_CANCELLED")
    days_quarantined: float = Field(default=90, ge=0, le=36_500, validation_alias="JOBS_RETENTION_DAYS_QUARANTINED")
    archive_before_delete: bool = Field(default=False, validation_alias="JOBS_ARCHIVE_BEFORE_DELETE")
    archive_compress: bool = Field(default=False, validation_alias="JOBS_ARCHIVE_COMPRESS")
    archive_drop_json: bool = Field(default=False, validation_alias="JOBS_ARCHIVE_COMPRESS_DROP_JSON")
    ttl_enforce: bool = Field(default=False, validation_alias="JOBS_TTL_ENFORCE")
    ttl_interval: int = Field(default=60, validation_alias="JOBS_TTL_INTERVAL_SEC")
    ttl_age: float | None = Field(default=None, gt=0, le=3_155_760_000, validation_alias="JOBS_TTL_AGE_SECONDS")
    ttl_runtime: float | None = Field(default=None, gt=0, le=3_155_760_000, validation_alias="JOBS_TTL_RUNTIME_SECONDS")
    ttl_action: Literal["cancel", "fail"] = Field(default="cancel", validation_alias="JOBS_TTL_ACTION")
    integrity_enabled: bool = Field(default=False, validation_alias="JOBS_INTEGRITY_SWEEP_ENABLED")
    integrity_interval: int = Field(default=60, validation_alias="JOBS_INTEGRITY_SWEEP_INTERVAL_SEC")
    integrity_fix: bool = Field(default=False, validation_alias="JOBS_INTEGRITY_SWEEP_FIX")

    @field_validator("prune_interval", "ttl_interval", "integrity_interval")
    @classmethod
    def _that_a_crontab_can_say(cls, value: int) -> int:
        if value not in INTERVALS:
            raise ValueError(f"must be one of {', '.join(map(str, INTERVALS))} seconds")
        return value

    @field_validator("prune_domain", "prune_queue", "prune_job_type")
    @classmethod
    def _names(cls, value: str) -> str:
        for name in _listed(value):
            try:
                check_name("domain", name)
            except UsageError:
                raise ValueError("must be names, parted by commas") from None
        if value and not _listed(value):
            raise ValueError("must be names, parted by commas, or unset for all")
        return value

    @model_validator(mode="after")
    def _together(self) -> SweepSettings:
        if self.ttl_enforce and self.ttl_age is None and self.ttl_runtime is None:
            raise ValueError("JOBS_TTL_ENFORCE wants JOBS_TTL_AGE_SECONDS or JOBS_TTL_RUNTIME_SECONDS, or both")
        if self.archive_drop_json and not self.archive_compress:
            raise ValueError("JOBS_ARCHIVE_COMPRESS_DROP_JSON wants JOBS_ARCHIVE_COMPRESS: nothing would be kept")
        return self

    @property
    def days(self) -> dict[State, float]:
        """Days that each state is kept; 0: for ever. Jobs that wait or run are never pruned."""
        days = {
            State.COMPLETED: self.days_completed,
            State.FAILED: self.days_failed,
            State.CANCELLED: self.days_cancelled,
            State.QUARANTINED: self.days_quarantined,
        }
        return days if self.days_terminal is None else dict.fromkeys(days, self.days_terminal)

    @property
    def scope(self) -> Scope:
        """What retention is for."""
        return Scope(_listed(self.prune_domain), _listed(self.prune_queue), _listed(self.prune_job_type))

    @property
    def archiving(self) -> Archiving | None:
        """How pruned rows are kept, if they are."""
        return Archiving(self.archive_compress, self.archive_drop_json) if self.archive_before_delete else None

    @property
    def limits(self) -> Limits:
        """How long a job may wait and run."""
        return Limits(self.ttl_age, self.ttl_runtime, self.ttl_action == "fail")


def _listed(names: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))
