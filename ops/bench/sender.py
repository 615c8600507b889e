"""A sending process: ``one N``, ``bulk N``, ``pace N`` or ``sql N``; prints what it measured as one JSON object.

``pace`` sends and ``sql`` wakes by the SQL function, as any program could; both tell the moments just before the send
and just before the commit.
"""

from __future__ import annotations

import os
import sys
import time

import orjson
import psycopg

from ops.bench import jobs
from ops.bench.telling import LOT, PACE


def main() -> None:
    """Send, and tell the rate or the moments."""
    what, number = sys.argv[1], int(sys.argv[2])
    for warm in range(20):
        jobs.noop.send(id=warm)
    began = time.monotonic()
    said: dict[str, object] = {}
    if what == "one":
        for one in range(number):
            jobs.noop.send(id=one)
        said["rate"] = number / (time.monotonic() - began)
    elif what == "bulk":
        for first in range(0, number, LOT):
            jobs.noop.broker.wake([jobs.noop.request(kwargs={"id": one}) for one in range(first, first + LOT)])
        said["rate"] = number / (time.monotonic() - began)
    elif what == "sql":
        sent = []
        with psycopg.connect(os.environ["JOBS_DB_URL"]) as connection:
            for one in range(number):
                time.sleep(PACE)
                connection.execute("SELECT dramaturg.wake('bench.timed', payload => %s)", [f'{{"id": {one}}}'])
                sent.append(time.monotonic_ns())
                connection.commit()
        said["sent"] = sent
    else:
        sent = []
        for one in range(number):
            time.sleep(PACE)
            sent.append(time.monotonic_ns())
            jobs.timed.send(id=one)
        said["sent"] = sent
    sys.stdout.write(orjson.dumps(said).decode())


if __name__ == "__main__":
    main()
