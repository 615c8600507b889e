"""Where the storage is, and whether it wants to know who reads (source A, "Configuration and access")."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, field_validator, model_validator

from actors.access.endpoint import Endpoint, parse_endpoint
from store.settings import Section

#: Bytes of a file of trusted certificates at most.
_CA_MOST = 1 << 20


class AccessSettings(Section):
    """Names are source A's. Without an auth server repositories are read as anybody may read them."""

    server: str | None = Field(default=None, validation_alias="WEB_SCRIBE_SERVER")
    server_name: str | None = Field(default=None, validation_alias="WEB_SCRIBE_TLS_SERVER_NAME")
    ca_file: Path | None = Field(default=None, validation_alias="WEB_SCRIBE_TLS_CA_FILE")
    auth_server: str | None = Field(default=None, validation_alias="WEB_SCRIBE_AUTH_SERVER")
    auth_server_name: str | None = Field(default=None, validation_alias="SCRIBE_AUTH_TLS_SERVER_NAME")
    reader: Path | None = Field(default=None, validation_alias="SCRIBE_READER_CREDENTIAL_FILE")

    @field_validator("server", "auth_server")
    @classmethod
    def _is_endpoint(cls, value: str | None) -> str | None:
        if value is not None:
            parse_endpoint(value)
        return value

    @field_validator("ca_file")
    @classmethod
    def _holds_certificates(cls, value: Path | None) -> Path | None:
        if value is not None:
            try:
                text = value.read_bytes()[: _CA_MOST + 1]
            except OSError as error:
                raise ValueError(f"names a file that can't be read ({type(error).__name__})") from None
            if b"-----BEGIN CERTIFICATE-----" not in text or len(text) > _CA_MOST:
                raise ValueError("names a file without certificates in PEM")
        return value

    @model_validator(mode="after")
    def _whole(self) -> AccessSettings:
        faults = []
        if self.auth_server is not None and self.reader is None:
            faults.append("SCRIBE_READER_CREDENTIAL_FILE: is missing: WEB_SCRIBE_AUTH_SERVER asks for a credential")
        if self.auth_server is not None and self.server is None:
            faults.append("WEB_SCRIBE_SERVER: is missing: name the storage that WEB_SCRIBE_AUTH_SERVER guards")
        if self.reader is not None and self.server is not None and not parse_endpoint(self.server).tls:
            faults.append("WEB_SCRIBE_SERVER: must be tls://: a credential is used over TLS alone")
        if faults:
            raise ValueError("\n  ".join(faults))
        return self

    @property
    def storage(self) -> Endpoint | None:
        """The storage's endpoint."""
        return None if self.server is None else parse_endpoint(self.server)

    @property
    def authenticated(self) -> bool:
        """Whether reads present a certificate."""
        return self.auth_server is not None
