"""Endpoints of TLS services: ``tls://host:port`` is ``https://host:port``."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import urlsplit

SCHEMES = ("tls", "https", "http")


class Endpoint(NamedTuple):
    """A host and a port, and whether they speak TLS."""

    host: str
    port: int
    tls: bool

    @property
    def url(self) -> str:
        """As HTTP clients spell it, without a path."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}"


def parse_endpoint(text: str) -> Endpoint:
    """Read an endpoint. Raises ValueError, which does not show it."""
    endpoint, path = parse_url(text)
    if path.strip("/"):
        raise ValueError("must be an endpoint without a path: tls://storage.example:9443")
    return endpoint


def parse_url(text: str) -> tuple[Endpoint, str]:
    """An endpoint and the path behind it. Raises ValueError, which does not show it."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise ValueError("can't be read: write it like tls://storage.example:9443") from None
    if parts.scheme not in SCHEMES or not parts.hostname:
        raise ValueError("must start with tls:// or https://, and name a host")
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise ValueError("must hold neither user, password nor query: a credential is a file")
    tls = parts.scheme != "http"
    return Endpoint(parts.hostname, port or (443 if tls else 80), tls), parts.path


def is_remote(path: str) -> bool:
    """Whether a repository's path is a URL."""
    return path.startswith(tuple(f"{scheme}://" for scheme in SCHEMES))
