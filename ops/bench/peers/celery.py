"""Celery on Valkey: threads, 8 at a time, acknowledged late, as who wants to lose nothing sets it."""

from __future__ import annotations

import os
import sys
import time

import orjson
from celery import Celery

from ops.bench.telling import PACE, tell

app = Celery("peer", broker=os.environ["BENCH_VALKEY"])
app.conf.update(task_acks_late=True, task_ignore_result=True, worker_prefetch_multiplier=4)


@app.task(name="noop")  # type: ignore[untyped-decorator]
def noop(id: int) -> None:
    """Nothing."""


@app.task(name="timed")  # type: ignore[untyped-decorator]
def timed(id: int) -> None:
    """Tells when it began."""
    tell(id)


def send(what: str, number: int) -> dict[str, object]:
    """Send and answer what was measured; there is no bulk."""
    began = time.monotonic()
    if what in ("one", "bulk"):
        for one in range(number):
            noop.delay(id=one)
        return {"rate": number / (time.monotonic() - began)}
    sent = []
    for one in range(number):
        time.sleep(PACE)
        sent.append(time.monotonic_ns())
        timed.delay(id=one)
    return {"sent": sent}


if __name__ == "__main__":
    if sys.argv[1] == "worker":
        app.worker_main(
            ["worker", "--pool", "threads", "--concurrency", "8", "--loglevel", "ERROR", "--without-gossip"]
        )
    elif sys.argv[1] != "prepare":
        sys.stdout.write(orjson.dumps(send(sys.argv[1], int(sys.argv[2]))).decode())
