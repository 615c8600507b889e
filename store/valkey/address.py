"""Where Valkey is: a URL, taken apart and checked.

    redis://[user:password@]host[:port][/db]        TCP
    rediss://...                                    TCP with TLS
    unix://[user:password@]/path/to/socket          a socket on this machine; options db, username, password
    redis+cluster://host[:port][,host[:port]...]    a cluster, from any of its nodes; rediss+cluster:// with TLS

TLS takes the options ``ssl_ca_certs``, ``ssl_certfile``, ``ssl_keyfile`` (paths), ``ssl_cert_reqs`` (``required`` or
``none``) and ``ssl_check_hostname`` (``true`` or ``false``), with the meaning that they have in redis-py. No other
option is accepted: some of redis-py's would have it repeat a claim behind our back.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from store.errors import SettingsInvalid

_SCHEMES = ("redis", "rediss", "unix", "redis+cluster", "rediss+cluster")
_TLS_OPTIONS = {
    "ssl_ca_certs": None,
    "ssl_certfile": None,
    "ssl_keyfile": None,
    "ssl_cert_reqs": ("required", "none"),
    "ssl_check_hostname": ("true", "false"),
}
_UNIX_OPTIONS = {"db", "username", "password"}
_PORT = 6379


@dataclass(frozen=True, slots=True)
class Address:
    """Either ``path`` (a socket) or ``nodes`` ((host, port) pairs, several only for a cluster) is set."""

    nodes: tuple[tuple[str, int], ...] = ()
    path: str = ""
    db: int = 0
    cluster: bool = False
    tls: bool = False
    tls_options: tuple[tuple[str, str | bool], ...] = ()
    username: str | None = None
    password: str | None = field(default=None, repr=False)

    def __str__(self) -> str:
        """For people: without user and password."""
        if self.path:
            return f"unix://{self.path}"
        scheme = ("rediss" if self.tls else "redis") + ("+cluster" if self.cluster else "")
        return f"{scheme}://{','.join(f'{host}:{port}' for host, port in self.nodes)}"


def parse(url: str) -> Address:
    """Takes a URL apart. Raises SettingsInvalid, whose text doesn't repeat the URL: it may hold a password."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise _invalid("it can't be read as a URL") from None
    if parts.scheme not in _SCHEMES:
        raise _invalid(f"its scheme is none of {', '.join(f'{scheme}://' for scheme in _SCHEMES)}")
    tls, cluster = parts.scheme.startswith("rediss"), parts.scheme.endswith("+cluster")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    allowed = _UNIX_OPTIONS if parts.scheme == "unix" else set(_TLS_OPTIONS) if tls else set()
    if unknown := sorted(set(options) - allowed):
        raise _invalid(f"it has an option that isn't known here: {', '.join(unknown)}")
    user, password = _login(parts)
    if parts.scheme == "unix":
        if not parts.path:
            raise _invalid("it names no socket: unix:///path/to/socket")
        return Address(
            path=unquote(parts.path),
            db=_db(options.get("db", "")),
            username=options.get("username", user),
            password=options.get("password", password),
        )
    db = _db(parts.path.strip("/"))
    if cluster and db:
        raise _invalid("a cluster has only database 0, yet it names another")
    nodes = tuple(_node(text) for text in parts.netloc.rpartition("@")[2].split(","))
    if len(nodes) > 1 and not cluster:
        raise _invalid("only a cluster has several hosts: redis+cluster://host:port,host:port")
    return Address(nodes, "", db, cluster, tls, _tls(options), user, password)


def _invalid(fault: str) -> SettingsInvalid:
    return SettingsInvalid(f"the address of Valkey is wrong: {fault}")


def _login(parts: SplitResult) -> tuple[str | None, str | None]:
    login, _, _ = parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    return unquote(user) or None, unquote(password) or None


def _node(text: str) -> tuple[str, int]:
    try:
        parts = urlsplit(f"//{text}")
        host, port = parts.hostname, parts.port
    except ValueError:
        raise _invalid("a host or port in it can't be read") from None
    if not host:
        raise _invalid("it names no host")
    return host, port or _PORT


def _db(text: str) -> int:
    if not text:
        return 0
    if not (text.isascii() and text.isdigit() and len(text) < 6):
        raise _invalid("the number of its database can't be read")
    return int(text)


def _tls(options: dict[str, str]) -> tuple[tuple[str, str | bool], ...]:
    for name, value in options.items():
        choices = _TLS_OPTIONS[name]
        if choices and value not in choices:
            raise _invalid(f"{name} is {' or '.join(choices)}")
    return tuple((name, value == "true" if name == "ssl_check_hostname" else value) for name, value in options.items())
