"""The soak's sending process: so many jobs, never more than a backlog's worth at a time."""

from __future__ import annotations

import sys
import time

from ops.torture import jobs
from ops.torture.ledger import note
from store.filters import Filter

BATCH = 100
#: Jobs that may wait; the feeder waits while it is more.
BACKLOG = 400


def main() -> None:
    """``feeder JOBS``: half of them of a type that keeps its rows."""
    broker = jobs.swift.broker
    wanted, sent = int(sys.argv[1]), 0
    while sent < wanted:
        numbers = range(sent, min(sent + BATCH, wanted))
        kinds = [jobs.kept if number % 2 else jobs.swift for number in numbers]
        broker.wake([kind.request(kwargs={"thing": "", "number": at}) for kind, at in zip(kinds, numbers, strict=True)])
        sent += len(numbers)
        note("fed", sent=sent)
        while len(broker.runtime.store.find(Filter(states=("queued",)), limit=BACKLOG)) == BACKLOG:
            time.sleep(0.02)
    broker.close()


if __name__ == "__main__":
    main()
