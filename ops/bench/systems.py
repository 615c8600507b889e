"""The systems under measurement, each in a home of its own with real engines."""

from __future__ import annotations

import os
import signal
import socket
import statistics
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import orjson
import psycopg
import redis

from ops.bench.spent import spent
from store.engines.postgres import Postgres
from store.engines.surreal import Surreal
from store.engines.valkey import Valkey
from store.errors import EngineFailed
from store.events import Wake
from store.filters import Filter
from store.identity import new_id
from store.open import open_store

CONCURRENCY = 8

#: Seconds that any single measurement may take.
PATIENCE = 240.0

Engine = Postgres | Surreal | Valkey


class System(ABC):
    """One system: what is sent to it, how it is drained, and what that costs."""

    #: Seconds between two looks at what is left: a look must cost nothing beside what is measured.
    look_every = 0.1

    def __init__(self, name: str, home: Path) -> None:
        self.name = name
        self.home = home / name.replace(" ", "-")
        self.home.mkdir(parents=True)
        self.engines: list[Engine] = []
        self._socket = self.home / "bench.sock"
        self.environment = {**os.environ, "BENCH_SOCKET": str(self._socket)}
        self.counted: dict[str, str] = {}  # environment of workers that count their statements themselves
        self._workers: list[subprocess.Popen[bytes]] = []

    def close(self) -> None:
        """End the engines."""
        for engine in reversed(self.engines):
            engine.stop()

    @property
    @abstractmethod
    def sender(self) -> list[str]:
        """The sending program."""

    @property
    @abstractmethod
    def worker(self) -> list[str]:
        """A worker program of CONCURRENCY at a time."""

    @abstractmethod
    def left(self) -> int:
        """Jobs that are not done yet, or only whether there are any."""

    @abstractmethod
    def rate(self, number: int, watched: float) -> float:
        """Jobs a second of the last ``number``; ``watched`` is what was seen from outside."""

    def fill(self, number: int) -> float:
        """Put that many jobs into the queue by the system's own bulk call; answers their rate."""
        return float(self.send("bulk", number)["rate"])

    def send(self, what: str, number: int) -> dict[str, Any]:
        """Run a sending process and answer what it measured."""
        done = subprocess.run(
            [*self.sender, what, str(number)], env=self.environment, capture_output=True, timeout=PATIENCE, check=False
        )
        if done.returncode:
            raise EngineFailed(f"the sender of {self.name} failed (exit {done.returncode})")
        found: dict[str, Any] = orjson.loads(done.stdout)
        return found

    def drain(self, number: int, processes: int) -> float:
        """Jobs a second from the first that is done to the last; the queue is filled beforehand."""
        full = self.left()
        with self.workers(processes):
            began, seen = 0.0, full
            for left in self._looks(number):
                if not began and left < full:
                    began, seen = time.monotonic(), left
            took = time.monotonic() - began
        return self.rate(number, seen / took if began else float("nan"))

    def cpu(self, number: int) -> float:
        """CPU-seconds a job, in all processes of the system: the worker, the database, Valkey; not the sender's."""
        with self.workers(1):
            time.sleep(4)  # its start is not what a job costs
            used = spent(self.processes())
            self.fill(number)
            for _ in self._looks(number):
                pass
            return (spent(self.processes()) - used) / number

    def _looks(self, number: int) -> Iterator[int]:
        deadline = time.monotonic() + PATIENCE
        while (left := self.left()) > 0:
            yield left
            if time.monotonic() > deadline:
                raise EngineFailed(f"{self.name} did not drain {number} jobs in {PATIENCE:.0f} s")
            time.sleep(self.look_every)

    def latency(self, number: int, how: str) -> tuple[float, float]:
        """Milliseconds from the start of a send (or the commit of a wake by ``sql``) to the start of its run on an idle
        system: p50 and p99."""
        self._socket.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
            receiver.bind(str(self._socket))
            receiver.settimeout(20)
            began: dict[int, int] = {}

            def receive() -> None:  # while they are sent: a datagram socket holds ten, and then its senders wait
                while len(began) < number:
                    one, moment = receiver.recv(64).split()
                    began[int(one)] = int(moment)

            with self.workers(1), ThreadPoolExecutor(1) as pool:
                time.sleep(3)  # idle, as the measure says
                received = pool.submit(receive)
                sent = self.send(how, number)["sent"]
                received.result()
        took = sorted((began[one] - sent[one]) / 1e6 for one in range(number))
        return statistics.median(took), took[int(len(took) * 0.99)]

    @contextmanager
    def workers(self, processes: int, environment: Mapping[str, str] = MappingProxyType({})) -> Iterator[None]:
        """Worker processes, one a replica as the docs say, with ``environment`` on top of the system's own."""
        self._workers = [
            subprocess.Popen(
                self.worker,
                env={**self.environment, **environment},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            for _ in range(processes)
        ]
        try:
            yield
        finally:
            for worker in self._workers:
                worker.send_signal(signal.SIGTERM)
            for worker in self._workers:
                try:
                    worker.wait(20)
                except subprocess.TimeoutExpired:
                    os.killpg(worker.pid, signal.SIGKILL)
                    worker.wait()

    def asked(self) -> int | None:
        """Statements that the database was asked so far, where that is told."""
        return None

    def worker_processes(self) -> list[int]:
        """The first process of each worker."""
        return [worker.pid for worker in self._workers]

    def processes(self) -> list[int]:
        """The first process of each part of the system."""
        return [*self.worker_processes(), *(engine.pid for engine in self.engines if engine.pid)]


class Dramaturg(System):
    """Ours, on one of its stores."""

    look_every = 0.2

    def __init__(self, store: str, home: Path) -> None:
        super().__init__(store, home)
        valkey = Valkey(self.home).start()
        self.engines.append(valkey)
        url = f"sqlite:///{self.home}/jobs.db"
        if store != "sqlite":
            engine = Postgres(self.home).start() if store == "postgres" else Surreal(self.home).start()
            self.engines.append(engine)
            url = engine.url
        self.environment |= {
            "JOBS_HOME": str(self.home),
            "JOBS_DB_URL": url,
            "JOBS_VALKEY_URL": valkey.url,
            "JOBS_LOG_LEVEL": "warning",
            "WORKER_CONCURRENCY": str(CONCURRENCY),
        }
        self._store = open_store(url)
        self._store.migrate()
        self._asked = self.home / "asked"
        self.counted = {} if store == "postgres" else {"BENCH_ASKED": str(self._asked)}

    def asked(self) -> int | None:
        if self.name == "postgres":
            return _transactions(self.engines[-1].url)
        return self._asked.stat().st_size if self._asked.exists() else 0

    def close(self) -> None:
        self._store.close()
        super().close()

    @property
    def sender(self) -> list[str]:
        return [sys.executable, "-m", "ops.bench.sender"]

    @property
    def worker(self) -> list[str]:
        return [sys.executable, "-m", "dramatiq", "ops.bench.jobs", "-p", "1"]

    def left(self) -> int:
        if self._store.get("policy", "bench.noop") is None:
            return 1  # nothing is due before a worker knows the type
        return len(self._store.due(limit=1) or self._store.find(Filter(states=("processing",)), limit=1))

    def rate(self, number: int, watched: float) -> float:
        """A finished row says when it was done."""
        asked = Filter(queue="default", states=("completed",))
        rows = self._store.find(asked, order="updated", descending=True, limit=number)
        moments = sorted(row.finished_at for row in rows if row.finished_at is not None)
        return (len(moments) - 1) / (moments[-1] - moments[0]).total_seconds()

    def crowd(self, number: int) -> None:
        """Rows that are not due, in the same queue and of the same type."""
        for first in range(0, number, 5_000):
            count = min(5_000, number - first)
            self._store.wake(
                [
                    Wake(new_id(), "default", "default", "bench.noop", None, '{"id":0}', delay=1e7 + one)
                    for one in range(count)
                ],
                notify=False,
            )


class PlainDramatiq(System):
    """Dramatiq on its own RedisBroker."""

    look_every = 0.02

    def __init__(self, home: Path) -> None:
        super().__init__("dramatiq", home)
        valkey = Valkey(self.home).start()
        self.engines.append(valkey)
        self.environment |= {"BENCH_SYSTEM": "dramatiq", "BENCH_VALKEY": valkey.url}
        self._valkey = redis.Redis.from_url(valkey.url)

    def close(self) -> None:
        self._valkey.close()
        super().close()

    @property
    def sender(self) -> list[str]:
        return [sys.executable, "-m", "ops.bench.sender"]

    @property
    def worker(self) -> list[str]:
        return [sys.executable, "-m", "dramatiq", "ops.bench.jobs", "-p", "1", "-t", str(CONCURRENCY)]

    def fill(self, number: int) -> float:
        return float(self.send("one", number)["rate"])

    def left(self) -> int:
        return int(self._valkey.hlen("dramatiq:default.msgs"))

    def rate(self, number: int, watched: float) -> float:
        return watched


def _transactions(url: str) -> int:
    """Transactions so far, of which each is one statement where nobody begins longer ones; this one is not in it."""
    with psycopg.connect(url, autocommit=True) as connection:
        [(count,)] = connection.execute(
            "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()"
        ).fetchall()
    return int(count)


_PROGRAMS = {
    "pgqueuer": "ops.bench.peers.pgqueuer",
    "procrastinate": "ops.bench.peers.procrastinate",
}

#: Where peers on Postgres keep what is left, and when the newest jobs were done.
_LEFT = {
    "pgqueuer": "SELECT count(*) FROM pgqueuer",
    "procrastinate": "SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')",
}
_DONE = {
    "pgqueuer": "SELECT created FROM pgqueuer_log WHERE status = 'successful' ORDER BY created DESC LIMIT %s",
    "procrastinate": "SELECT at FROM procrastinate_events WHERE type = 'succeeded' ORDER BY at DESC LIMIT %s",
}


class Peer(System):
    """A system with a program of its own under ``peers/``."""

    def __init__(self, name: str, home: Path) -> None:
        super().__init__(name, home)
        self._program, _, best = name.partition(" ")
        self.environment["BENCH_BEST"] = "yes" if best else "no"
        postgres = Postgres(self.home).start()
        self.engines.append(postgres)
        self.environment["BENCH_POSTGRES"] = postgres.url
        subprocess.run([*self.sender, "prepare"], env=self.environment, check=True, capture_output=True)
        self._postgres = psycopg.connect(postgres.url, autocommit=True)

    def close(self) -> None:
        self._postgres.close()
        super().close()

    @property
    def sender(self) -> list[str]:
        return [sys.executable, "-m", _PROGRAMS[self._program]]

    @property
    def worker(self) -> list[str]:
        return [*self.sender, "worker"]

    def asked(self) -> int | None:
        return _transactions(self.engines[0].url)

    def left(self) -> int:
        [(count,)] = self._postgres.execute(_LEFT[self._program]).fetchall()
        return int(count)

    def rate(self, number: int, watched: float) -> float:
        moments = [row[0] for row in self._postgres.execute(_DONE[self._program], (number,)).fetchall()]
        return float((len(moments) - 1) / (moments[0] - moments[-1]).total_seconds())


#: Systems of others that a run may take part with, where what they need is installed.
PEERS = {
    "pgqueuer": "pgqueuer",
    "pgqueuer at its best": "pgqueuer",
    "procrastinate": "procrastinate",
}

STORES = ("sqlite", "postgres", "surreal")


def build(name: str, home: Path) -> System:
    """The system of that name."""
    if name == "dramatiq":
        return PlainDramatiq(home)
    return Dramaturg(name, home) if name in STORES else Peer(name, home)
