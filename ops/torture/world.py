"""A whole system under torture: engines, proxies before them, workers and senders, all real processes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

from ops.torture.proxy import Proxy
from store.engines.postgres import Postgres
from store.engines.surreal import Surreal
from store.engines.valkey import Valkey
from store.open import open_store

LEASE = 2.0
WORKERS = 3


class World:
    """``store`` is sqlite, postgres or surreal."""

    def __init__(self, store: str, home: Path, seed: int, pace: float) -> None:
        self.home, self.seed, self.pace = home, seed, pace
        self.ledger = home / "ledger"
        self.ledger.touch()
        self.valkey = Valkey(home / "valkey", tcp=True).start()
        assert self.valkey.port
        self.proxies = {"valkey": Proxy(self.valkey.port)}
        valkey_url = self.valkey.tcp_url.replace(f":{self.valkey.port}/", f":{self.proxies['valkey'].port}/")
        self.database: Postgres | Surreal | None = None
        direct = url = f"sqlite:///{home}/jobs.db"
        if store == "postgres":
            self.database = postgres = Postgres(home / "postgres", tcp=True).start()
            direct, port = postgres.tcp_url, postgres.port
        elif store == "surreal":
            self.database = surreal = Surreal(home / "surreal").start()
            direct, port = surreal.url, surreal.port
        if self.database is not None:
            assert port
            self.proxies["store"] = Proxy(port)
            url = direct.replace(f":{port}/", f":{self.proxies['store'].port}/")
        self.store = open_store(direct)
        self.store.migrate()
        self._environment = {
            **os.environ,
            "JOBS_HOME": str(home),
            "JOBS_DB_URL": url,
            "JOBS_VALKEY_URL": valkey_url,
            "JOBS_LEASE_SECONDS": str(LEASE),
            "JOBS_LOG_FORMAT": "json",
            "WORKER_CONCURRENCY": "4",
            "TORTURE_LEDGER": str(self.ledger),
        }
        self.workers: list[subprocess.Popen[bytes]] = []
        self.senders: list[subprocess.Popen[bytes]] = []
        self._started = 0

    def _spawn(self, *arguments: str) -> subprocess.Popen[bytes]:
        self._started += 1
        with (self.home / f"process-{self._started}.log").open("wb") as out:
            return subprocess.Popen(
                [sys.executable, "-m", *arguments],
                env=self._environment,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def worker(self) -> None:
        """Start one."""
        self.workers.append(self._spawn("dramatiq", "ops.torture.jobs", "-p", "1"))

    def start(self) -> None:
        """Workers and a sender."""
        for _ in range(WORKERS):
            self.worker()
        self.senders.append(self._spawn("ops.torture.sender", str(self.seed), str(self.pace)))

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """kill -9 of a whole process group, frozen or not."""
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)

    def command(self, *lines: str) -> None:
        """Say something to Valkey as an operator would, beside the proxy."""
        with socket.socket(socket.AF_UNIX) as link:
            link.settimeout(5)
            link.connect(str(self.valkey.socket))
            for line in (f"AUTH {self.valkey.password}", *lines):
                link.sendall(line.encode() + b"\r\n")
                answer = link.recv(1024)
                if not answer.startswith(b"+"):
                    raise RuntimeError(f"Valkey refused {line.split()[0]}")

    def logged(self, event: str) -> int:
        """How often the workers logged ``event``."""
        sought = f'"{event}"'.encode()
        return sum(path.read_bytes().count(sought) for path in self.home.glob("process-*.log"))

    def end_senders(self) -> None:
        """Let them end what they do."""
        for process in self.senders:
            process.terminate()
            process.wait(60)

    def close(self) -> None:
        """End everything."""
        for process in self.workers + self.senders:
            if process.poll() is None:
                self.kill(process)
        self.store.close()
        for proxy in self.proxies.values():
            proxy.close()
        if self.database is not None:
            self.database.stop()
        self.valkey.stop()
