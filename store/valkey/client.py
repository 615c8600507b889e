"""Valkey as far as the rest of the project can see it: safe in threads, over forks, restarts and demotions."""

from __future__ import annotations

import os
import re
import threading
import weakref
from collections.abc import Sequence

from redis.exceptions import (
    AuthenticationError,
    ChildDeadlockedError,
    NoScriptError,
    RedisClusterException,
    RedisError,
    ResponseError,
)

from store.errors import ValkeyUnavailable
from store.valkey.address import Address, parse
from store.valkey.link import LONGEST_WAIT_SECONDS, Link, Word
from store.valkey.scripts import Script

_FAILURES = (RedisError, RedisClusterException, ChildDeadlockedError, OSError)
# Replies of a server that is no longer the one to talk to. Behind a proxy READONLY may come with ERR before it.
_MOVED_ON = re.compile(r"\b(READONLY|MASTERDOWN|CLUSTERDOWN|UNBLOCKED)\b")
_CODE = re.compile(r"[A-Z]{2,20}\b")


class Client:
    """Connects at the first use, not before. Made before a fork, it connects anew in every child.

    Every failure is a ValkeyUnavailable which names the operation, the address (without user and password) and the
    kind of failure, never its text. After one that casts doubt on the connection all connections are dropped and the
    address is resolved again at the next use, so that trying again is all that a caller has to do. Nothing is tried
    again in here. A lost reply leaves open whether the operation was done: repeat it with the same tokens.
    """

    def __init__(self, address: Address) -> None:
        self._address = address
        self._link: Link | None = None
        self._lock = threading.Lock()
        _clients.add(self)

    def __str__(self) -> str:
        return str(self._address)

    def run(self, script: Script, keys: Sequence[bytes], arguments: Sequence[Word]) -> object:
        """Runs a script and answers what it answers: ints, bytes, and lists of them."""
        rest = (len(keys), *keys, *arguments)
        # NOSCRIPT means a new server, or SCRIPT FLUSH, and that nothing was run; EVAL runs and remembers in one go.
        return self._call(script.name, ("EVALSHA", script.sha, *rest), ("EVAL", script.text, *rest))

    def wait(self, key: bytes, seconds: float) -> bool:
        """Waits until the list ``key`` has an element, takes it and answers True; False when the time is over.

        Holds a connection of its own meanwhile. Waits a millisecond at least, ``LONGEST_WAIT_SECONDS`` at most. An idle
        server looks at the time every tenth of a second (its setting ``hz``): False may come that much late.
        """
        seconds = min(max(seconds, 0.001), LONGEST_WAIT_SECONDS)
        return self._call("wait", ("BLPOP", key, f"{seconds:.3f}")) is not None

    def ping(self) -> None:
        """Returns if Valkey answers."""
        self._call("ping", ("PING",))

    def close(self) -> None:
        """Drops all connections; those who wait hear ValkeyUnavailable. A later use connects again."""
        with self._lock:
            link, self._link = self._link, None
        if link is not None:
            link.close(in_use=True)

    def _call(self, operation: str, command: tuple[Word, ...], unless_known: tuple[Word, ...] = ()) -> object:
        link = None
        try:
            link = self._linked()
            try:
                return link.execute(*command)
            except NoScriptError:
                return link.execute(*unless_known)
        except _FAILURES as error:
            if link is not None and (not isinstance(error, ResponseError) or _MOVED_ON.search(_wording(error))):
                self._drop(link)
            raise self._unavailable(operation, error) from None

    def _linked(self) -> Link:
        link = self._link
        if link is None:
            with self._lock:
                link = self._link = self._link or Link(self._address)
        return link

    def _drop(self, link: Link) -> None:
        with self._lock:
            if self._link is link:  # else another thread was faster, and the new one is fresh
                self._link = None
        link.close(in_use=False)

    def _unavailable(self, operation: str, error: Exception) -> ValkeyUnavailable:
        kind, advice = type(error).__name__, "see that it runs and can be reached, then try again"
        if isinstance(error, AuthenticationError):
            advice = "see that user and password are right"
        elif isinstance(error, ResponseError):
            if moved_on := _MOVED_ON.search(_wording(error)):
                kind, advice = moved_on[0], "the address is resolved again at the next try"
            elif code := _CODE.match(_wording(error)):
                kind, advice = code[0], "it refused; its own log and settings say why"
        return ValkeyUnavailable(f"Valkey at {self} did not do '{operation}' ({kind}): {advice}")

    def _forked(self) -> None:
        # The parent's sockets are not ours to talk through or to shut down, and its lock may be held by a thread that
        # doesn't exist here.
        self._lock = threading.Lock()
        self._link = None


def _wording(error: Exception) -> str:
    """A reply as the server spelled it: redis-py takes the codes that it knows off the text."""
    code = getattr(error, "status_code", None)
    return f"{code} {error}" if code else str(error)


_clients: weakref.WeakSet[Client] = weakref.WeakSet()


def _forget_links() -> None:
    for client in list(_clients):
        client._forked()


os.register_at_fork(after_in_child=_forget_links)


def connect(url: str) -> Client:
    """A client for the Valkey at ``url``; ``address.py`` says which URLs there are. Connects to nothing yet.

    Raises SettingsInvalid for a URL that is wrong.
    """
    return Client(parse(url))
