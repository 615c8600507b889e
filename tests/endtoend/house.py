"""A whole system in a folder: a store, a Valkey and real worker processes, with a ledger that they don't know."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from store.contract import Store
from store.events import Wake
from store.identity import job_id
from store.job import Job
from store.open import open_store
from store.valkey.address import parse
from store.valkey.client import Client
from store.valkey.entries import Offer
from store.valkey.leases import Leases
from store.valkey.scores import job_score

ROOT = Path(__file__).resolve().parents[2]
V = TypeVar("V")


def eventually(look: Callable[[], V], seconds: float = 30, what: str = "") -> V:
    """The first truthy answer of ``look``; fails after ``seconds``."""
    deadline = time.monotonic() + seconds
    while not (seen := look()):
        assert time.monotonic() < deadline, f"waited {seconds} s for {what or look}"
        time.sleep(0.02)
    return seen


class House:
    """Settings for one system; start as many workers in it as you like."""

    def __init__(self, folder: Path, store_url: str, valkey_url: str, **settings: str) -> None:
        self.folder = folder
        self.ledger = folder / "ledger"
        self.ledger.touch()
        self.settings = {
            "JOBS_HOME": str(folder),
            "JOBS_DB_URL": store_url,
            "JOBS_VALKEY_URL": valkey_url,
            "LEDGER": str(self.ledger),
            "JOBS_LOG_FORMAT": "json",
            **settings,
        }
        self.store: Store = open_store(store_url)
        self.store.migrate()
        self.workers: list[subprocess.Popen[bytes]] = []

        self.leases = Leases(Client(parse(valkey_url)))

    def wake(self, job_type: str, thing: str, value: int = 0, *, ring: bool = True, **fields: Any) -> str:
        """Wake a job as another program would; answers its id."""
        keyed = job_type != "test.plain"
        queue = fields.pop("queue", "default")
        wake = Wake(
            id=job_id("default", queue, job_type, thing if keyed else None),
            domain="default",
            queue=queue,
            job_type=job_type,
            key=thing if keyed else None,
            payload=json.dumps({"thing": thing, "value": value}),
            **fields,
        )
        woken = self.store.wake([wake])[0]
        if ring and woken.due:
            score = job_score(wake.priority, time.time_ns() // 1_000_000)
            self.leases.offer(queue, [Offer(f"j:{wake.id}", score)], watermark=10_000)
        return wake.id

    def wake_many(self, job_type: str, things: list[str]) -> None:
        """Wake keyed jobs in one transaction; the scheduler finds them."""
        self.store.wake(
            [
                Wake(
                    job_id("default", "default", job_type, thing),
                    "default",
                    "default",
                    job_type,
                    thing,
                    json.dumps({"thing": thing, "value": 0}),
                )
                for thing in things
            ]
        )

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(ROOT), **self.settings}

    def worker(self, module: str = "tests.endtoend.jobs", **settings: str) -> subprocess.Popen[bytes]:
        """Start a worker process and wait until it is ready."""
        number = len(self.workers)
        log = self.folder / f"worker-{number}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "dramatiq", module, "-p", "1"],
                cwd=ROOT,
                env={**self.environment, **settings},
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.workers.append(process)
        eventually(
            lambda: process.poll() is not None or b"ready for action" in log.read_bytes(), what="a worker that is ready"
        )
        assert process.poll() is None, log.read_text()
        return process

    def child_of(self, process: subprocess.Popen[bytes]) -> int:
        """The pid of the process that runs the handlers."""
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        for child in map(int, children):
            if b"resource_tracker" not in Path(f"/proc/{child}/cmdline").read_bytes():
                return child
        raise AssertionError("the worker has no child process")

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """kill -9 of the whole worker."""
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)

    def lines(self, *words: object) -> list[list[str]]:
        """Ledger lines that begin with ``words``."""
        wanted = [str(word) for word in words]
        rows = [line.split() for line in self.ledger.read_text().splitlines()]
        return [row for row in rows if row[: len(wanted)] == wanted]

    def wait_lines(self, number: int, *words: object, seconds: float = 30) -> list[list[str]]:
        """Wait for at least ``number`` such lines."""
        return eventually(
            lambda: found if len(found := self.lines(*words)) >= number else [], seconds, f"{number} x {words}"
        )

    def open_gate(self, name: str) -> None:
        (self.folder / name).touch()

    def row(self, id_: str) -> Job:
        found = self.store.read([id_])[0]
        assert found is not None
        return found

    def wait_state(self, id_: str, *states: str, seconds: float = 30) -> Job:
        def look() -> Job | None:
            found = self.store.read([id_])[0]
            return found if found is not None and found.state in states else None

        return eventually(look, seconds, f"{id_} to be {states}")  # type: ignore[return-value]

    def logs(self) -> str:
        return "\n".join(path.read_text() for path in sorted(self.folder.glob("worker-*.log")))

    def logged(self, event: str) -> list[dict[str, Any]]:
        found = []
        for line in self.logs().splitlines():
            if line.startswith("{"):
                row = json.loads(line)
                if row.get("event") == event:
                    found.append(row)
        return found

    def close(self) -> None:
        for process in self.workers:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)
        self.store.close()
