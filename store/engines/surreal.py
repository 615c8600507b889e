"""An embedded SurrealDB: the engine out of the package ``surrealdb-embedded``, served by ``surreal_host.py``.

It listens on a TCP port of 127.0.0.1 and asks for a password, because every local user can reach it: SurrealDB's SDK
knows no unix sockets. ``home/surreal.url`` holds the URL for other programs of the same user, and nobody else may read
it. What is committed survives the server's end; of one in memory nothing does.
"""

from __future__ import annotations

import importlib.util
import json
import os
import secrets
import signal
import sys
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from store.engines import surreal_host
from store.engines.launch import Engine, await_ready, error_name, launch
from store.engines.places import URL_FILE
from store.engines.sockets import free_port, open_home, port_is_free
from store.errors import EngineFailed

START_TIME = 30.0  # seconds; a long log is replayed first
LOCK_WAIT = 5.0  # seconds for a server that was just killed to be gone
PORT_RACES = 5
FAREWELL = [(int(signal.SIGTERM), 10.0), (int(signal.SIGKILL), 5.0)]
USER = "root"
NAMESPACE = DATABASE = "dramaturg"


class Surreal:
    """One server under ``home``, owned by the process that started it. Use from one thread at a time.

    The url of a home stays the same, also for the next process that owns it. ``memory``: nothing is written to
    disk. ``durable``: each commit waits for the disk, so that a machine that crashes loses none.
    """

    def __init__(self, home: Path, *, memory: bool = False, durable: bool = True) -> None:
        self.home = open_home(home)
        self.data = self.home / "surreal"
        self.log = self.home / "surreal.log"
        self.port, self.password = self._known() or (free_port(), secrets.token_urlsafe(18))
        self._told = self.url_file.exists()
        self._ready = self.home / "surreal.ready"
        self._engine_url = "mem://" if memory else f"surrealkv://{self.data}?sync={'every' if durable else 'never'}"
        self._engine: Engine | None = None

    @property
    def url(self) -> str:
        """``ws://root:password@127.0.0.1:port/dramaturg/dramaturg``."""
        return self.url_of(DATABASE)

    def url_of(self, database: str) -> str:
        """The URL of any database of this server."""
        self._told = True
        return f"ws://{USER}:{self.password}@127.0.0.1:{self.port}/{NAMESPACE}/{database}"

    @property
    def url_file(self) -> Path:
        """Where other programs of this user find the url."""
        return self.home / URL_FILE

    @property
    def pid(self) -> int:
        """The server's process; EngineFailed when it was not started."""
        if self._engine is None:
            raise EngineFailed(f"the SurrealDB of {self.home} was not started by this process")
        return self._engine.pid

    @property
    def running(self) -> bool:
        """Whether the server that this process started lives."""
        return self._engine is not None and self._engine.running

    def start(self) -> Self:
        """Returns when it answers. EngineFailed if it can't, or if one runs on this home already."""
        if importlib.util.find_spec("surrealdb_embedded") is None:
            raise EngineFailed("SurrealDB's engine is missing: install this project with its extra `surreal`")
        for _ in range(PORT_RACES):
            try:
                self._start()
            except EngineFailed:
                # Between choosing the port and listening at it, another process may have taken it.
                if self._told or port_is_free(self.port):
                    raise
                self.port = free_port()
            else:
                return self
        raise EngineFailed(f"SurrealDB lost the race for a free port {PORT_RACES} times: see {self.log}")

    def stop(self) -> None:
        """Ends the server and returns when it is gone; does nothing if this process did not start it."""
        if self._engine is not None:
            self._engine.stop()

    def kill(self) -> None:
        """Ends the server with SIGKILL, as a crash would; ``start`` brings back what was committed."""
        if self._engine is not None:
            self._engine.kill()

    def restart(self) -> None:
        """Stops and starts it; connections are cut."""
        self.stop()
        self.start()

    def drop_database(self, name: str) -> None:
        """Drops a database; one that does not exist is no error. EngineFailed where the server does not do it."""
        from surrealdb import Surreal as Client
        from surrealdb.errors import SurrealError
        from websockets.exceptions import WebSocketException

        try:
            with Client(f"ws://127.0.0.1:{self.port}") as client:
                client.signin({"username": USER, "password": self.password})
                client.use(NAMESPACE, DATABASE)
                client.query(f"REMOVE DATABASE IF EXISTS `{name}`")
        except (SurrealError, WebSocketException, OSError) as error:
            raise EngineFailed(
                f"the SurrealDB of {self.home} did not drop a database ({type(error).__name__}): see {self.log}"
            ) from None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _start(self) -> None:
        serving: surreal_host.Serving = {
            "engine": self._engine_url,
            "port": self.port,
            "user": USER,
            "password": self.password,
            "ready": str(self._ready),
        }
        engine = launch(
            {
                "owner": os.getpid(),
                "lock": str(self.home / "surreal.lock"),
                "lock_wait": LOCK_WAIT,
                "log": str(self.log),
                "account": None,
                "env": {"LC_ALL": "C.UTF-8", "TZ": "UTC", "PYTHONDONTWRITEBYTECODE": "1"},
                "preparation": None,
                "pid_files": [str(self._ready)],
                "cwd": str(self.home),
                "argv": [sys.executable, surreal_host.__file__],
                "text": json.dumps(serving) + "\n",
                "farewell": FAREWELL,
                "orphan_signal": int(signal.SIGKILL),
            },
            "SurrealDB",
        )
        if engine is None:
            raise EngineFailed(
                f"a SurrealDB runs on {self.home} already: connect to the URL in {self.url_file}, or stop its owner"
            )
        await_ready(engine, "SurrealDB", lambda: self._is_ready(engine.pid), START_TIME)
        self._engine = engine
        self._tell()

    def _is_ready(self, pid: int) -> bool:
        try:
            return self._ready.read_text(encoding="utf-8") == str(pid)
        except FileNotFoundError:
            return False

    def _known(self) -> tuple[int, str] | None:
        """The port and the password of the server before us on this home."""
        try:
            parts = urlsplit(self.url_file.read_text(encoding="utf-8").strip())
            port = parts.port
        except (OSError, ValueError):
            return None
        return (port, parts.password) if port and parts.password else None

    def _tell(self) -> None:
        try:
            descriptor = os.open(self.url_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with open(descriptor, "w", encoding="utf-8") as file:
                os.fchmod(descriptor, 0o600)
                file.write(self.url + "\n")
        except OSError as error:
            self.stop()
            raise EngineFailed(f"{self.url_file} can't be written ({error_name(error.errno)})") from None
