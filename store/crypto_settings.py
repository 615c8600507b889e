"""Which domains are sealed at rest, and with which keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings

from store.errors import UsageError
from store.identity import check_name
from store.sealing import Key, Sealing, read_key
from store.settings import Section, read_secret, spelled, suffixed

_WORDS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}

#: Bytes of a key's file at most: base64 of 32 bytes and room for a line's end.
_FILE_MOST = 128


class CryptoSettings(Section):
    """Sealing is off unless it is asked for; a key without it still opens what was sealed."""

    encrypt: bool = Field(default=False, validation_alias="JOBS_ENCRYPT")
    domains: dict[str, str] = Field(default={}, validation_alias="JOBS_ENCRYPT_*")
    key: SecretStr | None = Field(default=None, validation_alias="JOBS_CRYPTO_KEY")
    key_file: Path | None = Field(default=None, validation_alias="JOBS_CRYPTO_KEY_FILE")
    secondary: SecretStr | None = Field(default=None, validation_alias="JOBS_CRYPTO_SECONDARY_KEY")
    secondary_file: Path | None = Field(default=None, validation_alias="JOBS_CRYPTO_SECONDARY_KEY_FILE")

    @classmethod
    def settings_customise_sources(
        cls, settings_cls: type[BaseSettings], init_settings: Any, env_settings: Any, *_: Any, **__: Any
    ) -> Any:  # fmt: skip
        """The environment, and the variables that have a domain's name after them."""
        named = {suffix: value for suffix, value in suffixed("JOBS_ENCRYPT").items() if suffix and value}
        plain = super().settings_customise_sources(settings_cls, init_settings, env_settings)
        return *plain, lambda: {"JOBS_ENCRYPT_*": named}

    @field_validator("key", "secondary")
    @classmethod
    def _is_key(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None:
            read_key(value.get_secret_value())
        return value

    @field_validator("key_file", "secondary_file")
    @classmethod
    def _holds_key(cls, value: Path | None) -> Path | None:
        if value is not None:
            _read_file(value)
        return value

    @model_validator(mode="after")
    def _whole(self) -> CryptoSettings:
        faults = [f"JOBS_ENCRYPT_{suffix}: {fault}" for suffix, value in self.domains.items()
                  if (fault := _fault(spelled(suffix) or "", value))]  # fmt: skip
        for name in ("key", "secondary"):
            if getattr(self, name) is not None and getattr(self, f"{name}_file") is not None:
                variable = type(self).model_fields[name].validation_alias
                faults.append(f"{variable}: is given twice, by {variable}_FILE as well: leave one of them out")
        wanted = self.encrypt or any(_WORDS.get(value.lower(), False) for value in self.domains.values())
        if wanted and self.key is None and self.key_file is None:
            faults.append(
                "JOBS_CRYPTO_KEY: is missing: what JOBS_ENCRYPT asks for wants a key, or JOBS_CRYPTO_KEY_FILE"
            )
        if faults:
            raise ValueError("\n  ".join(faults))
        return self

    @property
    def sealing(self) -> Sealing:
        """The same, at work."""
        domains = {spelled(suffix) or "": _WORDS[value.lower()] for suffix, value in self.domains.items()}
        return Sealing(
            _key(self.key, self.key_file),
            _key(self.secondary, self.secondary_file),
            everywhere=self.encrypt,
            domains=domains,
        )


def _fault(domain: str, value: str) -> str | None:
    try:
        check_name("domain", domain)
    except UsageError as error:
        return str(error)
    return None if value.lower() in _WORDS else "must be true or false"


def _key(value: SecretStr | None, file: Path | None) -> Key | None:
    if value is not None:
        return Key(read_key(value.get_secret_value()))
    return None if file is None else Key(_read_file(file))


def _read_file(path: Path) -> bytes:
    """A key's bytes. Raises ValueError for a file that is no key, or that strangers could read or change."""
    return read_key(read_secret(path, _FILE_MOST))
