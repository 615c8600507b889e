"""Credentials of job types: files that a run opens by name, the ones that its type declares and while it runs.

A file is read anew each time it is opened, so it may be replaced without a restart. It belongs to this process' user
(or root), nobody else may change it and strangers may not read it. It is JSON:

    {"credential": "storage.reader", "issued_at": "2026-12-01T00:00:00Z", "expires_at": "2027-03-01T00:00:00Z",
     "write": false, "values": {"key": "..."}}

It lives at most 365 days (source A, "Configuration and access"), and is for reading unless it was issued with
``write``. Within a process this separates handlers by what they are handed, not by force; how the operating system
does, says ``docs/how-to/credentials.md``.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import threading
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple

import structlog
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings

from store import clock
from store.errors import CredentialMissing, CredentialNotGranted, CredentialUnusable, UsageError
from store.settings import Section, suffixed

#: Source A: a credential lives at most that long.
LONGEST: Final = timedelta(days=365)

#: From here on people are told that it ends.
ENDING: Final = timedelta(days=14)

#: Seconds between two warnings of one credential's end.
TOLD_EVERY: Final = 24 * 3600.0

#: Bytes of a file at most.
FILE_MOST: Final = 65_536

#: Seconds after which a job whose credential is not there is tried again; it is not counted as a failure.
MISSING_DELAY: Final = 10.0

_NAME: Final = re.compile(r"[a-z][a-z0-9]*(?:[._-][a-z0-9]+){0,7}")

_log = structlog.get_logger("worker")


class CredentialSettings(Section):
    """Where the files are: JOBS_CREDENTIAL_FILE_STORAGE_READER for ``storage.reader``."""

    named: dict[str, Path] = Field(default={}, validation_alias="JOBS_CREDENTIAL_FILE_*")

    #: Source A's name for the file of ``storage.reader``.
    reader: Path | None = Field(default=None, validation_alias="SCRIBE_READER_CREDENTIAL_FILE")

    @classmethod
    def settings_customise_sources(
        cls, settings_cls: type[BaseSettings], init_settings: Any, env_settings: Any, *_: Any, **__: Any
    ) -> Any:  # fmt: skip
        """The environment, and the variables that have a credential's name after them."""
        found = {suffix: value for suffix, value in suffixed("JOBS_CREDENTIAL_FILE").items() if suffix and value}
        plain = super().settings_customise_sources(settings_cls, init_settings, env_settings)
        return *plain, lambda: {"JOBS_CREDENTIAL_FILE_*": found}

    @property
    def files(self) -> dict[str, Path]:
        """By variable, without ``JOBS_CREDENTIAL_FILE_``."""
        files = {suffix.upper(): path for suffix, path in self.named.items()}
        return files if self.reader is None else {"STORAGE_READER": self.reader} | files


class Credential:
    """What a file holds. Its values are gone once the run is over that opened it."""

    __slots__ = ("_values", "expires_at", "issued_at", "name", "write")

    def __init__(
        self, name: str, issued_at: datetime, expires_at: datetime, write: bool, values: Mapping[str, str]
    ) -> None:  # fmt: skip
        self.name = name
        self.issued_at = issued_at
        self.expires_at = expires_at
        self.write = write
        self._values: dict[str, str] | None = dict(values)

    def __repr__(self) -> str:
        return f"Credential({self.name!r}, until {self.expires_at:%Y-%m-%d})"

    def __getitem__(self, name: str) -> str:
        """One value. Raises UsageError once the run is over, and CredentialUnusable for one that the file has not."""
        if self._values is None:
            raise UsageError(f"the credential {self.name} was closed as its run ended: open it in the run that uses it")
        try:
            return self._values[name]
        except KeyError:
            raise CredentialUnusable(f"the file of credential {self.name} has no value {name!r}") from None

    def __contains__(self, name: object) -> bool:
        return self._values is not None and name in self._values

    def close(self) -> None:
        """Forget the values."""
        self._values = None


class Standing(NamedTuple):
    """How a credential's file stands: ``code`` None is well; ``days`` until it ends, where that could be read."""

    code: str | None
    days: int | None


class Credentials:
    """The files of this process. Safe to share between threads."""

    def __init__(self, settings: CredentialSettings) -> None:
        self._files = settings.files
        self._told: dict[str, float] = {}
        self._lock = threading.Lock()

    def missing(self, names: Iterable[str]) -> list[str]:
        """Variables that name no file yet, of those that these credentials want."""
        return [f"JOBS_CREDENTIAL_FILE_{_suffix(name)}" for name in names if _suffix(name) not in self._files]

    def present(self, name: str) -> bool:
        """Whether there is a file that can be opened, whatever it holds."""
        path = self._files.get(_suffix(name))
        return path is not None and os.access(path, os.R_OK, effective_ids=True)

    def open(self, name: str, *, write: bool = False) -> Credential:
        """Read a credential's file. Raises CredentialMissing and CredentialUnusable."""
        path = self._files.get(_suffix(name))
        if path is None:
            raise CredentialMissing(f"no file is named for credential {name}: set JOBS_CREDENTIAL_FILE_{_suffix(name)}")
        credential = parse(name, _read(name, path), clock.wall())
        if write and not credential.write:
            raise CredentialUnusable(f"credential {name} was issued for reading: issue one with write")
        self._tell(credential)
        return credential

    def standings(self, names: Iterable[str]) -> dict[str, Standing]:
        """How the files of these credentials stand."""
        found = {}
        for name in names:
            try:
                credential = self.open(name)
            except (CredentialMissing, CredentialUnusable) as error:
                found[name] = Standing(error.code, None)
            else:
                found[name] = Standing(None, (credential.expires_at - clock.wall()).days)
                credential.close()
        return found

    def _tell(self, credential: Credential) -> None:
        left = credential.expires_at - clock.wall()
        if left > ENDING:
            return
        with self._lock:
            now = clock.elapsed()
            if now - self._told.get(credential.name, -TOLD_EVERY) < TOLD_EVERY:
                return
            self._told[credential.name] = now
        _log.warning("credential_ends_soon", credential=credential.name, days=left.days)


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    credential: str
    issued_at: AwareDatetime
    expires_at: AwareDatetime
    write: bool = False
    values: dict[str, SecretStr]

    @field_validator("issued_at", "expires_at", mode="before")
    @classmethod
    def _is_text(cls, value: object) -> object:
        if not isinstance(value, str):
            raise ValueError("must be a time as text, such as 2026-12-01T00:00:00Z")  # noqa: TRY004 - pydantic's word
        return value


def check_declared(names: Iterable[str]) -> tuple[str, ...]:
    """Names of credentials as a type declares them. Raises UsageError."""
    if isinstance(names, str):
        raise UsageError(f"credentials are a list of names: write credentials=({names!r},)")
    declared = tuple(names)
    for name in declared:
        if not isinstance(name, str) or len(name) > 64 or not _NAME.fullmatch(name):
            raise UsageError("a credential's name is small letters and digits, parted by . - or _: storage.reader")
    if len({_suffix(name) for name in declared}) != len(declared):
        raise UsageError("a credential is declared twice, or two of them would share one variable")
    return declared


def granted(name: str, declared: Iterable[str], job_type: str) -> str:
    """``name``, where the type declares it. Raises CredentialNotGranted."""
    if name not in declared:
        raise CredentialNotGranted(
            f"job type {job_type!r} does not declare that credential: name it in @job(..., credentials=(...,))"
        )
    return name


def parse(name: str, raw: bytes, now: datetime) -> Credential:
    """What a file holds. Raises CredentialUnusable, whose text shows nothing of it."""
    try:
        file = _File.model_validate_json(raw)
    except (ValidationError, ValueError, RecursionError):
        raise CredentialUnusable(
            f"the file of credential {name} can't be read: see docs/how-to/credentials.md"
        ) from None
    if file.credential != name:
        raise CredentialUnusable(f"the file of credential {name} is another's: its `credential` names whose it is")
    issued, expires = (moment.astimezone(UTC) for moment in (file.issued_at, file.expires_at))
    if not timedelta(0) < expires - issued <= LONGEST:
        raise CredentialUnusable(f"credential {name} lives longer than {LONGEST.days} days: issue one that ends sooner")
    if expires <= now:
        raise CredentialUnusable(f"credential {name} has expired: replace its file, no restart is needed")
    values = {key: value.get_secret_value() for key, value in file.values.items()}
    return Credential(name, issued, expires, file.write, values)


def _read(name: str, path: Path) -> bytes:
    """The file's bytes, from the very file whose owner and mode were looked at."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe must not hang us
    except OSError as error:
        code = errno.errorcode.get(error.errno or 0, "error")
        raise CredentialMissing(f"the file of credential {name} can't be opened ({code}): put it in place") from None
    try:
        found = os.fstat(handle)
        if fault := _fault(found):
            raise CredentialUnusable(f"the file of credential {name} {fault}")
        raw = os.read(handle, FILE_MOST + 1)
    except OSError as error:
        code = errno.errorcode.get(error.errno or 0, "error")
        raise CredentialMissing(f"the file of credential {name} can't be read ({code})") from None
    finally:
        os.close(handle)
    if len(raw) > FILE_MOST:
        raise CredentialUnusable(f"the file of credential {name} has more than {FILE_MOST} bytes")
    return raw


def _fault(found: os.stat_result) -> str | None:
    if not stat.S_ISREG(found.st_mode):
        return "is no file"
    if found.st_uid not in (os.geteuid(), 0):
        return "belongs to another user: chown it to the one that the worker runs as"
    if stat.S_IMODE(found.st_mode) & 0o027:
        return "may be read or changed by others: chmod 0400 or 0440 it"
    return None


def _suffix(name: str) -> str:
    return re.sub(r"[._-]", "_", name).upper()
