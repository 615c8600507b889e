"""A whole system under torture: engines, proxies before them, workers and senders, all real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import redis

from ops.torture.ledger import Collector
from ops.torture.pooler import Pooler
from ops.torture.proxy import Proxy
from store.engines.cluster import ValkeyCluster
from store.engines.postgres import Postgres
from store.engines.surreal import Surreal
from store.engines.valkey import Valkey
from store.open import open_store

LEASE = 2.0
WORKERS = 3
#: Every Python that has it on its path begins with ops.torture.stepped.sitecustomize.
STEPPED = Path(__file__).parent / "stepped"
JOBS = "ops.torture.jobs"
SENDER = "ops.torture.sender"
FEEDER = "ops.torture.feeder"


class Setting(NamedTuple):
    """What stands where: ``store`` is sqlite, postgres or surreal."""

    store: str
    cluster: bool = False  # three Valkey nodes instead of one server
    pooler: bool = False  # pgbouncer in transaction mode before Postgres


class Process(NamedTuple):
    """One that was started, in a process group of its own."""

    popen: subprocess.Popen[bytes]
    clock: Path  # seconds by which its wall clock is off
    reader: threading.Thread


class World:
    """Engines run from the beginning, workers and senders from ``start`` on."""

    def __init__(self, setting: Setting, home: Path, seed: int, pace: float) -> None:
        self.home, self.seed, self.pace, self.setting = home, seed, pace, setting
        self.workers: list[Process] = []
        self.senders: list[Process] = []
        self.proxies: dict[str, Proxy] = {}
        self.valkey: Valkey | None = None
        self.cluster: ValkeyCluster | None = None
        self.database: Postgres | Surreal | None = None
        self.pooler: Pooler | None = None
        self.collector = Collector(home / "ledger")
        self._all: list[Process] = []
        valkey_url = self._carrier()
        direct, url = self._truth()
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
            "PYTHONPATH": os.pathsep.join([str(STEPPED), *filter(None, [os.environ.get("PYTHONPATH")])]),
        }

    def _carrier(self) -> str:
        if self.setting.cluster:
            self.cluster = ValkeyCluster(self.home / "cluster").start()
            return self.cluster.url.replace("redis://", "redis+cluster://", 1)
        self.valkey = Valkey(self.home / "valkey", tcp=True).start()
        return self._behind_proxy("valkey", self.valkey.tcp_url, self.valkey.port)

    def _truth(self) -> tuple[str, str]:
        """The store's URL for the torturer, and for those under torture."""
        if self.setting.store == "postgres":
            self.database = postgres = Postgres(self.home / "postgres", tcp=True).start()
            if not self.setting.pooler:
                return postgres.tcp_url, self._behind_proxy("store", postgres.tcp_url, postgres.port)
            self.pooler = Pooler(postgres, self.home / "pgbouncer").start()
            pooled = f"postgresql://dramaturg@127.0.0.1:{self.pooler.port}/dramaturg"
            return postgres.tcp_url, self._behind_proxy("store", pooled, self.pooler.port)
        if self.setting.store == "surreal":
            self.database = surreal = Surreal(self.home / "surreal").start()
            return surreal.url, self._behind_proxy("store", surreal.url, surreal.port)
        url = f"sqlite:///{self.home}/jobs.db"
        return url, url

    def _behind_proxy(self, name: str, url: str, port: int | None) -> str:
        assert port
        self.proxies[name] = Proxy(port)
        return url.replace(f":{port}/", f":{self.proxies[name].port}/")

    def _spawn(self, *arguments: str) -> Process:
        name = f"process-{len(self._all) + 1}"
        clock = self.home / f"{name}.clock"
        popen = subprocess.Popen(
            [sys.executable, "-m", *arguments],
            env={**self._environment, "TORTURE_LEDGER": str(self.home / "ledger"), "TORTURE_CLOCK": str(clock)},
            stdout=subprocess.PIPE,  # not a file: a disk that is full must not silence it
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        reader = threading.Thread(target=_copy, args=(popen, self.home / f"{name}.log"), name=name)
        reader.start()
        self._all.append(Process(popen, clock, reader))
        return self._all[-1]

    def worker(self) -> Process:
        """Start one."""
        self.workers.append(self._spawn("dramatiq", JOBS, "-p", "1"))
        return self.workers[-1]

    def sender(self) -> None:
        """Start one."""
        self.senders.append(self._spawn(SENDER, f"{self.seed}-{len(self.senders)}", str(self.pace)))

    def feeder(self, jobs: int) -> None:
        """Start the one of the soak."""
        self.senders.append(self._spawn(FEEDER, str(jobs)))

    def start(self) -> None:
        """Workers and a sender."""
        for _ in range(WORKERS):
            self.worker()
        self.sender()

    def kill(self, process: Process) -> None:
        """kill -9 of a whole process group, frozen or not."""
        os.killpg(process.popen.pid, signal.SIGKILL)
        process.popen.wait(10)

    def stop(self, process: Process, patience: float) -> None:
        """SIGTERM, and SIGKILL for one that does not end within ``patience`` seconds."""
        process.popen.terminate()
        try:
            process.popen.wait(patience)
        except subprocess.TimeoutExpired:
            self.kill(process)
            raise

    def worker_of(self, pid: int) -> Process | None:
        """The worker to which a process belongs, if it lives."""
        try:
            group = os.getpgid(pid)
        except ProcessLookupError:
            return None
        return next((worker for worker in self.workers if worker.popen.pid == group), None)

    def writers(self) -> list[int]:
        """The processes that write the store's files."""
        if self.database is not None:
            return list(family(self.database.pid))
        return [pid for process in self.workers + self.senders for pid in family(process.popen.pid)]

    def command(self, *words: str) -> None:
        """Say something to every Valkey server as an operator would, beside the proxy."""
        servers = [self.valkey] if self.valkey else self.cluster.nodes if self.cluster else []
        for server in servers:
            with redis.Redis.from_url(server.url, socket_timeout=5) as client:
                client.execute_command(*words)

    def logged(self, event: str) -> int:
        """How often the workers logged ``event``."""
        sought = f'"{event}"'.encode()
        return sum(path.read_bytes().count(sought) for path in self.home.glob("process-*.log"))

    def end_senders(self) -> None:
        """Let them end what they do. Raises RuntimeError for one that ended before, or badly: no load, no proof."""
        for process in self.senders:
            early = process.popen.poll() is not None
            self.stop(process, 60)
            if early or process.popen.returncode != 0:
                process.reader.join(10)
                raise RuntimeError(f"a sender ended by itself or badly: see its log in {self.home}")

    def end_feeders(self, patience: float) -> None:
        """Wait until they have sent all. Raises RuntimeError for one that ended badly."""
        for process in self.senders:
            if process.popen.wait(patience) != 0:
                raise RuntimeError(f"a feeder ended badly: see its log in {self.home}")

    def close(self) -> None:
        """End everything."""
        for process in self._all:
            if process.popen.poll() is None:
                self.kill(process)
            process.reader.join(10)
        self.store.close()
        for proxy in self.proxies.values():
            proxy.close()
        for engine in (self.pooler, self.database, self.valkey, self.cluster):
            if engine is not None:
                engine.stop()
        self.collector.close()


def _copy(popen: subprocess.Popen[bytes], path: Path) -> None:
    assert popen.stdout is not None
    with popen.stdout as said, path.open("wb") as log:
        while chunk := os.read(said.fileno(), 65_536):
            log.write(chunk)
            log.flush()


def family(pid: int) -> Iterator[int]:
    """A process and those below it."""
    try:
        children = [
            Path(f"/proc/{pid}/task/{thread}/children").read_text() for thread in os.listdir(f"/proc/{pid}/task")
        ]
    except (FileNotFoundError, ProcessLookupError):
        return
    yield pid
    for child in " ".join(children).split():
        yield from family(int(child))


def limit_files(pids: list[int], size: str) -> None:
    """Let no file of theirs grow beyond ``size`` bytes; ``unlimited`` lifts it. Done as their own user, who may."""
    for pid in pids:
        try:
            owner = Path(f"/proc/{pid}").stat()
        except FileNotFoundError:
            continue  # it ended meanwhile
        other = owner.st_uid != os.geteuid()
        done = subprocess.run(
            ["prlimit", "--pid", str(pid), f"--fsize={size}:"],  # noqa: S607 - where it lies differs
            user=owner.st_uid if other else None,
            group=owner.st_gid if other else None,
            extra_groups=[] if other else None,
            capture_output=True,
        )
        if done.returncode != 0 and Path(f"/proc/{pid}").exists():
            raise RuntimeError(f"prlimit failed: {done.stderr.decode()}")
