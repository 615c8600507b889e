"""The systems under measurement, each in a home of its own with real engines."""

from __future__ import annotations

import os
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson

from store.engines.postgres import Postgres
from store.engines.surreal import Surreal
from store.engines.valkey import Valkey
from store.errors import EngineFailed
from store.filters import Filter
from store.open import open_store

CONCURRENCY = 8

_ENGINES: dict[str, type[Postgres] | type[Surreal]] = {"postgres": Postgres, "surreal": Surreal}

#: Seconds that any single measurement may take.
PATIENCE = 180.0


class System:
    """Plain Dramatiq ("dramatiq"), or Dramaturg on a store ("sqlite", "postgres", "surreal")."""

    def __init__(self, name: str, home: Path) -> None:
        self.name = name
        self._home = home / name
        self._home.mkdir(parents=True)
        self._valkey = Valkey(self._home).start()
        self._database: Postgres | Surreal | None = None
        self._socket = self._home / "bench.sock"
        self._environment = {
            **os.environ,
            "BENCH_SYSTEM": name,
            "BENCH_VALKEY": self._valkey.url,
            "BENCH_SOCKET": str(self._socket),
            "JOBS_HOME": str(self._home),
            "JOBS_VALKEY_URL": self._valkey.url,
            "JOBS_LOG_LEVEL": "warning",
            "WORKER_CONCURRENCY": str(CONCURRENCY),
        }
        if name != "dramatiq":
            url = f"sqlite:///{self._home}/jobs.db"
            if name in _ENGINES:
                self._database = _ENGINES[name](self._home).start()
                url = self._database.url
            self._environment["JOBS_DB_URL"] = url
            self._store = open_store(url)
            self._store.migrate()

    def close(self) -> None:
        """End the engines."""
        if self.name != "dramatiq":
            self._store.close()
        if self._database is not None:
            self._database.stop()
        self._valkey.stop()

    def send(self, what: str, number: int) -> dict[str, Any]:
        """Run a sending process and answer what it measured."""
        done = subprocess.run(
            [sys.executable, "-m", "ops.bench.sender", what, str(number)],
            env=self._environment,
            capture_output=True,
            timeout=PATIENCE,
            check=False,
        )
        if done.returncode:
            raise EngineFailed(f"the sender of {self.name} failed (exit {done.returncode})")
        found: dict[str, Any] = orjson.loads(done.stdout)
        return found

    def drain(self, number: int, processes: int) -> float:
        """Jobs a second from the first that is done to the last, with the queue filled beforehand.

        A finished row says when it was done; plain Dramatiq is asked how long its queue is, which costs it nothing.
        """
        self.fill(number)
        full = self.left()
        with self.workers(processes):
            began, seen = 0.0, full
            deadline = time.monotonic() + PATIENCE
            while (left := self.left()) > 0:
                if not began and left < full:
                    began, seen = time.monotonic(), left
                if time.monotonic() > deadline:
                    raise EngineFailed(f"{self.name} did not drain {number} jobs in {PATIENCE:.0f} s")
                time.sleep(0.02 if self.name == "dramatiq" else 0.2)
            ended = time.monotonic()
        if self.name == "dramatiq":
            return seen / (ended - began) if began else float("nan")
        return self._finished(number)

    def _finished(self, number: int) -> float:
        """The rate at which the last ``number`` rows were finished."""
        rows = self._store.find(
            Filter(queue="default", states=("completed",)), order="updated", descending=True, limit=number
        )
        moments = sorted(row.finished_at for row in rows if row.finished_at is not None)
        return (len(moments) - 1) / (moments[-1] - moments[0]).total_seconds()

    def fill(self, number: int) -> None:
        """Put that many jobs into the queue."""
        self.send("one" if self.name == "dramatiq" else "bulk", number)

    def left(self) -> int:
        """Jobs that are not done yet. Of rows only whether there are any: counting them would slow what is measured."""
        if self.name != "dramatiq":
            if self._store.get("policy", "bench.noop") is None:
                return 1  # nothing is due before a worker knows the type
            return len(self._store.due(limit=1) or self._store.find(Filter(states=("processing",)), limit=1))
        from dramatiq.brokers.redis import RedisBroker

        broker = RedisBroker(url=self._valkey.url)  # type: ignore[no-untyped-call]
        return int(broker.do_qsize("default"))

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
                time.sleep(2)  # idle, as the measure says
                received = pool.submit(receive)
                sent = self.send(how, number)["sent"]
                received.result()
        took = sorted((began[one] - sent[one]) / 1e6 for one in range(number))
        return statistics.median(took), took[int(len(took) * 0.99)]

    @contextmanager
    def workers(self, processes: int) -> Iterator[None]:
        """Worker processes, one a replica as the docs say; plain Dramatiq gets its threads from the command line."""
        threads = ["-t", str(CONCURRENCY)] if self.name == "dramatiq" else []
        started = [
            subprocess.Popen(
                [sys.executable, "-m", "dramatiq", "ops.bench.jobs", "-p", "1", *threads],
                env=self._environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            for _ in range(processes)
        ]
        try:
            yield
        finally:
            for worker in started:
                worker.send_signal(signal.SIGTERM)
            for worker in started:
                try:
                    worker.wait(20)
                except subprocess.TimeoutExpired:
                    os.killpg(worker.pid, signal.SIGKILL)
                    worker.wait()
