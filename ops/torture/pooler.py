"""pgbouncer in transaction mode before an embedded Postgres, with two sessions for each database."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Self

from psycopg.conninfo import conninfo_to_dict

from store.clock import elapsed
from store.engines.postgres import Postgres
from store.engines.sockets import free_port
from store.errors import EngineFailed

PLACES = "/usr/sbin:/usr/bin:/usr/local/bin:/usr/local/sbin"
START_TIME = 30.0  # seconds
LOOK = 0.02  # seconds between two looks whether it listens


class Pooler:
    """Takes every user at ``port`` for the server's own role; it lets no setting through that it does not know."""

    def __init__(self, server: Postgres, home: Path) -> None:
        program = shutil.which("pgbouncer", path=PLACES)
        if program is None:
            raise EngineFailed("pgbouncer is missing: install the package pgbouncer")
        place, owner = conninfo_to_dict(server.url), server.data.stat()
        self.port, self._log = free_port(), home / "log"
        home.mkdir()
        (home / "pgbouncer.ini").write_text(
            "[databases]\n"
            f"* = host={place['host']} port={place['port']} user={place['user']}\n"
            "[pgbouncer]\n"
            f"listen_addr = 127.0.0.1\nlisten_port = {self.port}\nunix_socket_dir =\n"
            "auth_type = any\npool_mode = transaction\ndefault_pool_size = 2\nmax_client_conn = 200\n"
            f"server_login_retry = 1\nlogfile = {self._log}\n"
        )
        os.chown(home, owner.st_uid, owner.st_gid)
        self._command = [program, "-q", str(home / "pgbouncer.ini")]
        self._as: dict[str, object] = {}
        if os.geteuid() == 0:  # pgbouncer refuses to run as root
            self._as = {"user": owner.st_uid, "group": owner.st_gid, "extra_groups": []}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Self:
        """Returns when it listens; raises EngineFailed."""
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen(self._command, **quiet, **self._as)  # type: ignore[call-overload]
        deadline = elapsed() + START_TIME
        while not self._listens():
            code = self._process.poll()
            if code is not None or elapsed() > deadline:
                became = "went on without listening" if code is None else f"ended with code {code}"
                raise EngineFailed(f"pgbouncer did not start: it {became}; its log is {self._log}")
            time.sleep(LOOK)
        return self

    def _listens(self) -> bool:
        """Asked by connecting: a probe that binds the port could take it from the pooler that is about to."""
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True

    def kill(self) -> None:
        """kill -9."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(20)

    def stop(self) -> None:
        """Ends it."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(20)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
