"""pgqueuer over asyncpg. BENCH_BEST: batches of 50 and 100 tasks at a time, its fastest settings here."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from datetime import timedelta

import asyncpg
import orjson
from pgqueuer import AsyncpgDriver, Job, PgQueuer, Queries

from ops.bench.telling import LOT, PACE, tell

BEST = os.environ.get("BENCH_BEST") == "yes"


async def _connected() -> AsyncpgDriver:
    return AsyncpgDriver(await asyncpg.connect(os.environ["BENCH_POSTGRES"]))


async def prepare() -> None:
    """Make its schema."""
    await Queries(await _connected()).install()


async def worker() -> None:
    """Run jobs until SIGTERM."""
    queuer = PgQueuer(await _connected())

    @queuer.entrypoint("noop")
    async def noop(job: Job) -> None:
        orjson.loads(job.payload or b"null")

    @queuer.entrypoint("timed")
    async def timed(job: Job) -> None:
        tell(orjson.loads(job.payload or b"null")["id"])

    await queuer.run(
        dequeue_timeout=timedelta(seconds=1), batch_size=50 if BEST else 10, max_concurrent_tasks=100 if BEST else 20
    )


async def send(what: str, number: int) -> dict[str, object]:
    """Send and answer what was measured."""
    queries = Queries(await _connected())
    began = time.monotonic()
    if what == "one":
        for one in range(number):
            await queries.enqueue("noop", orjson.dumps({"id": one}))
    elif what == "bulk":
        for first in range(0, number, LOT):
            payloads: list[bytes | None] = [orjson.dumps({"id": one}) for one in range(first, first + LOT)]
            await queries.enqueue(["noop"] * LOT, payloads, [0] * LOT)
    else:
        sent = []
        for one in range(number):
            await asyncio.sleep(PACE)
            sent.append(time.monotonic_ns())
            await queries.enqueue("timed", orjson.dumps({"id": one}))
        return {"sent": sent}
    return {"rate": number / (time.monotonic() - began)}


if __name__ == "__main__":
    if sys.argv[1] in ("prepare", "worker"):
        asyncio.run(prepare() if sys.argv[1] == "prepare" else worker())
    else:
        sys.stdout.write(orjson.dumps(asyncio.run(send(sys.argv[1], int(sys.argv[2])))).decode())
