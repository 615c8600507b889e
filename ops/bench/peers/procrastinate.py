"""procrastinate over psycopg, asynchronous tasks, 8 at a time."""

from __future__ import annotations

import asyncio
import os
import sys
import time

import orjson
import procrastinate

from ops.bench.telling import LOT, PACE, tell

app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=os.environ["BENCH_POSTGRES"]))


@app.task(name="noop")
async def noop(id: int) -> None:
    """Nothing."""


@app.task(name="timed")
async def timed(id: int) -> None:
    """Tells when it began."""
    tell(id)


async def prepare() -> None:
    """Make its schema."""
    async with app.open_async():
        await app.schema_manager.apply_schema_async()


async def worker() -> None:
    """Run jobs until SIGTERM."""
    async with app.open_async():
        await app.run_worker_async(concurrency=8)


async def send(what: str, number: int) -> dict[str, object]:
    """Send and answer what was measured."""
    async with app.open_async():
        began = time.monotonic()
        if what == "one":
            for one in range(number):
                await noop.defer_async(id=one)
        elif what == "bulk":
            for first in range(0, number, LOT):
                await noop.batch_defer_async(*[{"id": one} for one in range(first, first + LOT)])
        else:
            sent = []
            for one in range(number):
                await asyncio.sleep(PACE)
                sent.append(time.monotonic_ns())
                await timed.defer_async(id=one)
            return {"sent": sent}
        return {"rate": number / (time.monotonic() - began)}


if __name__ == "__main__":
    if sys.argv[1] in ("prepare", "worker"):
        asyncio.run(prepare() if sys.argv[1] == "prepare" else worker())
    else:
        sys.stdout.write(orjson.dumps(asyncio.run(send(sys.argv[1], int(sys.argv[2])))).decode())
