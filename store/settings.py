"""The only reader of the environment. Each room declares its own section; all are validated together at start.

Names are the source documents' names (``JOBS_DB_URL``, ``WORKER_CONCURRENCY`` ...). What is wrong is told at once, a
line for each fault, naming the variable and what it may be, never its value: it may be a secret.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeVar

from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from store.errors import SettingsInvalid, UsageError
from store.identity import check_name
from store.payloads import MAX_BYTES

#: In JOBS_DOMAINS: every domain.
ALL = "*"


class Section(BaseSettings):
    """A room's settings: subclass it, one field a variable, the variable's name as ``validation_alias``."""

    # Fields are set by their variable's name alone: by the field's own name ``home`` would read HOME.
    model_config = SettingsConfigDict(env_ignore_empty=True, extra="ignore", frozen=True, hide_input_in_errors=True)


def suffixed(name: str) -> dict[str, str]:
    """The variable ``name`` and those that begin with it and an underscore, by what follows ("" for itself). Empty ones
    are among them: they say that there is nothing."""
    found = {name_[len(name) + 1 :]: value for name_, value in os.environ.items() if name_.startswith(f"{name}_")}
    return found | ({"": os.environ[name]} if name in os.environ else {})


def spelled(suffix: str) -> str | None:
    """The name that a suffix stands for: all capitals stand for small letters, as variables are spelled."""
    return (suffix.lower() if suffix.isupper() else suffix) or None


class StoreSettings(Section):
    """Where the truth is and what carries work."""

    home: Path = Field(default=Path(".dramaturg"), validation_alias="JOBS_HOME")
    db_url: SecretStr | None = Field(default=None, validation_alias="JOBS_DB_URL")
    valkey_url: SecretStr | None = Field(default=None, validation_alias="JOBS_VALKEY_URL")
    domains: str | None = Field(default=None, validation_alias="JOBS_DOMAINS")
    row_security: bool = Field(default=False, validation_alias="JOBS_PG_RLS_ENABLE")
    max_json_bytes: int = Field(default=MAX_BYTES, ge=64, le=16_777_216, validation_alias="JOBS_MAX_JSON_BYTES")

    events_outbox: bool | None = Field(default=None, validation_alias="JOBS_EVENTS_OUTBOX")
    events_retention_days: float = Field(default=7.0, ge=0.01, le=3_660, validation_alias="JOBS_EVENTS_RETENTION_DAYS")

    @field_validator("db_url")
    @classmethod
    def _known_store(cls, value: SecretStr | None) -> SecretStr | None:
        known = ("sqlite://", "postgresql://", "postgres://", "ws://", "wss://")
        if value is not None and not value.get_secret_value().startswith(known):
            raise ValueError("must start with sqlite://, postgresql://, ws:// or wss://")
        return value

    @field_validator("valkey_url")
    @classmethod
    def _known_valkey(cls, value: SecretStr | None) -> SecretStr | None:
        known = ("redis://", "rediss://", "valkey://", "valkeys://", "unix://", "redis+cluster://", "rediss+cluster://")
        if value is not None and not value.get_secret_value().startswith(known):
            raise ValueError("must start with redis://, rediss://, unix:// or redis+cluster://")
        return value

    @field_validator("domains")
    @classmethod
    def _names_of_domains(cls, value: str | None) -> str | None:
        if value is not None:
            names = _parted(value)
            if not names or (ALL in names and names != (ALL,)):
                raise ValueError("must be names of domains, parted by commas, or * alone for all of them")
            for name in names:
                try:
                    check_name("domain", name)
                except UsageError as error:
                    raise ValueError(str(error)) from None
        return value

    @property
    def scope(self) -> tuple[str, ...] | None:
        """The domains that this process may see and change; None: nothing was said, which is all."""
        return None if self.domains is None else _parted(self.domains)

    @property
    def store_url(self) -> str:
        """The database's URL; unset means SQLite under the home directory."""
        if self.db_url is not None:
            return self.db_url.get_secret_value()
        return f"sqlite:///{self.home.absolute() / 'jobs.db'}"


def _parted(names: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))


S = TypeVar("S", bound=Section)


def load(section: type[S]) -> S:
    """One section, read from the environment. Raises SettingsInvalid with all that is wrong in it."""
    return load_all(section)[0]  # type: ignore[return-value]


def load_all(*sections: type[Section]) -> list[Section]:
    """Several sections, validated together. Raises SettingsInvalid with all that is wrong in any of them."""
    read: list[Section] = []
    faults: list[str] = []
    for section in sections:
        try:
            read.append(section())
        except ValidationError as error:
            for fault in error.errors(include_url=False, include_context=False, include_input=False):
                name = ".".join(str(part) for part in fault["loc"])
                faults.append(f"{name}: {fault['msg'].removeprefix('Value error, ')}" if name else fault["msg"])
    if faults:
        raise SettingsInvalid("the settings are wrong:\n" + "\n".join(f"  {fault}" for fault in faults))
    return read
