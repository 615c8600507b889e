"""Where the database is, from a URL: ``ws://user:password@host:port/namespace/database`` or ``wss://...``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from store.errors import UsageError

_FORM: Final = "ws://user:password@host:port/namespace/database"
_PORTS: Final = {"ws": 8000, "wss": 443}
_LEVELS: Final = ("root", "namespace", "database")


@dataclass(frozen=True)
class Address:
    """A server, who we are there, and the database that we use. ``repr`` tells no password."""

    server: str  # as the SDK wants it: ws://host:port
    user: str
    password: str = field(repr=False)
    level: str  # where the user is defined: root, namespace or database
    namespace: str
    database: str

    @property
    def credentials(self) -> dict[str, str]:
        """What ``signin`` takes."""
        known = {"username": self.user, "password": self.password}
        if self.level != "root":
            known["namespace"] = self.namespace
        if self.level == "database":
            known["database"] = self.database
        return known


def parse(url: str) -> Address:
    """The address in ``url``. ``?level=namespace`` (or ``database``) tells where the user is defined; unset: root.

    Raises UsageError, which never repeats the URL: it holds a password.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise UsageError(f"the URL of SurrealDB can't be read: write {_FORM}") from None
    if parts.scheme not in _PORTS or not parts.hostname:
        raise UsageError(f"a URL of SurrealDB is {_FORM}, or the same with wss")
    if not parts.username or parts.password is None:
        raise UsageError(f"the URL of SurrealDB names no user and password: write {_FORM}")
    names = [unquote(name) for name in parts.path.strip("/").split("/")]
    if len(names) != 2 or not all(names):
        raise UsageError(f"the URL of SurrealDB names no namespace and database: write {_FORM}")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    level = options.pop("level", "root")
    if options or level not in _LEVELS:
        raise UsageError(f"the URL of SurrealDB takes one option, level={'|'.join(_LEVELS)}, and no other")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    server = f"{parts.scheme}://{host}:{port or _PORTS[parts.scheme]}"
    return Address(server, unquote(parts.username), unquote(parts.password), level, names[0], names[1])
