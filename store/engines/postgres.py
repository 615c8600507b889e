"""An embedded Postgres with its usual durability: what was committed is there after any crash.

It listens on a unix socket in a directory that only the server's user (and root) may enter, and whoever may enter it
could read the data files as well: nobody is asked for a password there. A TCP port on 127.0.0.1 is for tests and
proxies; every local user can reach that, so it asks for one. The urls' role owns its database; it is no superuser.
"""

from __future__ import annotations

import os
import secrets
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self
from urllib.parse import quote, urlencode

import psycopg
from psycopg import sql

from store.engines.launch import Engine, await_ready, launch
from store.engines.places import SHELTERS, find_place
from store.engines.sockets import TEMPORARY, fits, free_port, home_key, open_home, port_is_free, private_directory
from store.errors import EngineFailed

START_TIME = 90.0  # seconds: it may have to recover first
LOCK_WAIT = 10.0  # seconds for the children of a server that was just killed to be gone
PORT_RACES = 5
SOCKET_PORT = 5432  # names the socket's file only
STATUS_LINE = 7  # of postmaster.pid, counted from 0
FAREWELL = [(int(signal.SIGINT), 15.0), (int(signal.SIGQUIT), 5.0), (int(signal.SIGKILL), 5.0)]
ROLE = DATABASE = "dramaturg"
ADMIN = "postgres"
GROUPS = ("dramaturg_run", "dramaturg_wake")

SETTINGS = {
    "timezone": "UTC",
    "log_timezone": "UTC",
    # Statements and their values hold what jobs carry, and clients hear of their errors themselves.
    "log_min_messages": "log",
    "log_min_error_statement": "panic",
    "log_error_verbosity": "terse",
}


class Postgres:
    """One server for ``home``, owned by the process that started it. Use from one thread at a time.

    ``settings`` are Postgres' own, as ``-c`` takes them; they can't change where it listens. The urls stay the same
    over stop, start and restart. ``data`` says where the database is: usually ``home/postgres`` (see ``places.py``).
    """

    def __init__(
        self,
        home: Path,
        *,
        tcp: bool = False,
        settings: Mapping[str, str] | None = None,
        shelters: Sequence[Path] = SHELTERS,
    ) -> None:
        self.home = open_home(home)
        self.log = self.home / "postgres.log"
        self.port: int | None = None
        self.password = secrets.token_urlsafe(18) if tcp else None
        self.settings = dict(settings or {})
        self._tcp = tcp
        self._place = find_place(self.home, shelters)
        self.data = self._place.data
        self._run = self._place.base / "run"
        if not fits(self._run / f".s.PGSQL.{SOCKET_PORT}.lock") or "," in str(self._run):  # libpq would see two hosts
            self._run = TEMPORARY / f"dramaturg-{os.geteuid()}-{home_key(self.home)}-postgres"
        self._engine: Engine | None = None

    @property
    def url(self) -> str:
        """The database ``dramaturg`` by the unix socket, for psycopg and psql."""
        return self.url_of(DATABASE)

    @property
    def admin_url(self) -> str:
        """The same database as a superuser; by the unix socket only."""
        return self.url_of(DATABASE, ADMIN)

    @property
    def tcp_url(self) -> str:
        """The database ``dramaturg`` by TCP, with the password; only of one made with ``tcp=True``, once started."""
        if self.port is None:
            raise EngineFailed(f"the Postgres of {self.home} has no TCP port: ask for one, and start it")
        return f"postgresql://{ROLE}:{self.password}@127.0.0.1:{self.port}/{DATABASE}"

    def url_of(self, database: str, role: str = ROLE) -> str:
        """The url of any database of this server, by the unix socket."""
        place = urlencode({"host": str(self._run), "port": self.port or SOCKET_PORT}, quote_via=quote)
        return f"postgresql://{role}@/{quote(database)}?{place}"

    @property
    def pid(self) -> int:
        """The server's first process; EngineFailed when it was not started."""
        if self._engine is None:
            raise EngineFailed(f"the Postgres of {self.home} was not started by this process")
        return self._engine.pid

    @property
    def running(self) -> bool:
        """Whether the server that this process started lives."""
        return self._engine is not None and self._engine.running

    def start(self) -> Self:
        """Makes the database if there is none, and returns when it takes connections. EngineFailed if it can't, or if
        one runs on this home already."""
        for _ in range(PORT_RACES):
            port = self.port or (free_port() if self._tcp else SOCKET_PORT)
            try:
                self._start_at(port)
            except EngineFailed:
                # Between choosing the port and listening at it, another process may have taken it.
                if self.port is not None or not self._tcp or port_is_free(port):
                    raise
            else:
                return self
        raise EngineFailed(f"Postgres lost the race for a free port {PORT_RACES} times: see {self.log}")

    def stop(self) -> None:
        """Ends the server and returns when it is gone; does nothing if this process did not start it."""
        if self._engine is not None:
            self._engine.stop()

    def kill(self) -> None:
        """Ends the server with SIGKILL, as a crash would; ``start`` recovers what was committed."""
        if self._engine is not None:
            self._engine.kill()

    def restart(self) -> None:
        """Stops and starts it; connections are cut."""
        self.stop()
        self.start()

    def create_database(self, name: str, template: str = "template1") -> str:
        """Makes a database, a copy of ``template`` (which nobody may be connected to), and returns its url."""
        with self._admin() as connection:
            _make_database(connection, name, template)
        return self.url_of(name)

    def drop_database(self, name: str) -> None:
        """Drops a database, cutting its connections; one that does not exist is no error."""
        with self._admin() as connection:
            connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _start_at(self, port: int) -> None:
        account = self._place.account
        ids = None if account is None else (account.uid, account.gid)
        private_directory(self._run, 0o700, ids)
        engine = launch(
            {
                "owner": os.getpid(),
                "lock": str(self.home / "postgres.lock"),
                "lock_wait": LOCK_WAIT,
                "log": str(self.log),
                "account": ids,
                "env": {"LC_ALL": "C", "TZ": "UTC", "PATH": os.defpath},
                "preparation": {"argv": self._initdb(), "creates": str(self.data)},
                "pid_files": [str(self.data / "postmaster.pid"), str(self._run / f".s.PGSQL.{port}.lock")],
                "cwd": str(self.data),
                "argv": self._server(port),
                "text": "",
                "farewell": FAREWELL,
                "orphan_signal": int(signal.SIGQUIT),
            },
            "Postgres",
        )
        if engine is None:
            raise EngineFailed(
                f"a Postgres runs on {self.home} already: connect to it in {self._run}, or stop its owner"
            )
        self._engine = engine
        known_port = self.port
        self.port = port if self._tcp else None
        try:
            await_ready(engine, "Postgres", lambda: self._is_ready(engine.pid), START_TIME)
            self._furnish()
        except BaseException:
            self.port = known_port
            engine.stop()
            raise

    def _initdb(self) -> list[str]:
        access = ["--auth-local=trust", "--auth-host=scram-sha-256"]
        return [
            str(self._place.programs / "initdb"),
            *("--username", ADMIN, "--encoding=UTF8", "--locale=C", *access, "--no-instructions", "--pgdata"),
        ]

    def _server(self, port: int) -> list[str]:
        quoted_run = '"' + str(self._run).replace('"', '""') + '"'  # to Postgres this is a list of names
        settings = {
            **SETTINGS,
            **self.settings,
            "listen_addresses": "127.0.0.1" if self._tcp else "",
            "port": str(port),
            "unix_socket_directories": quoted_run,
            "unix_socket_permissions": "0700",
        }
        arguments = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        return [str(self._place.programs / "postgres"), "-D", str(self.data), *arguments]

    def _is_ready(self, pid: int) -> bool:
        # A connection would tell as well, but each one that comes too early is a line in the log.
        try:
            lines = (self.data / "postmaster.pid").read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return False
        return lines[:1] == [str(pid)] and len(lines) > STATUS_LINE and lines[STATUS_LINE].strip() == "ready"

    def _furnish(self) -> None:
        """The role and the database of the urls, where missing; and the password, which no file holds."""
        with self._admin() as connection:
            role = sql.Identifier(ROLE)
            if connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [ROLE]).fetchone() is None:
                connection.execute(sql.SQL("CREATE ROLE {} LOGIN").format(role))
            for group in GROUPS:  # which the migrations grant rights to, and may not make
                if connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [group]).fetchone() is None:
                    connection.execute(sql.SQL("CREATE ROLE {} NOLOGIN").format(sql.Identifier(group)))
            if connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]).fetchone() is None:
                _make_database(connection, DATABASE, "template1")
            if self.password is not None:
                verifier = connection.pgconn.encrypt_password(self.password.encode(), ROLE.encode(), b"scram-sha-256")
                connection.execute(sql.SQL("ALTER ROLE {} PASSWORD {}").format(role, verifier.decode()))

    @contextmanager
    def _admin(self) -> Iterator[psycopg.Connection]:
        try:
            with psycopg.connect(self.url_of(ADMIN, ADMIN), autocommit=True, connect_timeout=5) as connection:
                yield connection
        except psycopg.Error as error:
            raise EngineFailed(
                f"the Postgres of {self.home} refused to be set up ({type(error).__name__}): see {self.log}"
            ) from error


def _make_database(connection: psycopg.Connection, name: str, template: str) -> None:
    statement = sql.SQL("CREATE DATABASE {} OWNER {} TEMPLATE {}")
    connection.execute(statement.format(sql.Identifier(name), sql.Identifier(ROLE), sql.Identifier(template)))
