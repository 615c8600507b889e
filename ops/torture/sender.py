"""A sending process: wakes in transactions that commit or roll back, and cancels, until it is told to end.

What the ledger holds of a wake: ``committed``, ``rolledback``, or ``unknown`` where the commit was not answered.
"""

from __future__ import annotations

import random
import signal
import sys
import time

from ops.torture import jobs
from ops.torture.ledger import note
from store.errors import StoreUnavailable
from store.events import Cancel
from store.filters import Filter
from store.operations import apply


class RolledBack(Exception):
    """Thrown through a transaction so that nothing of it stays."""


def main() -> None:
    """``sender SEED PACE``: ``PACE`` seconds between two transactions."""
    choose, pace = random.Random(sys.argv[1]), float(sys.argv[2])
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
    store = jobs.plain.broker.runtime.store
    number = 0
    while not stopped:
        actors = choose.choices(
            [jobs.plain, jobs.keyed, jobs.retried, jobs.again], [5, 4, 1, 1], k=choose.randint(1, 4)
        )
        wakes = []
        for actor in actors:
            number += 1
            wakes.append(actor.request(kwargs={"thing": f"t{choose.randrange(40)}", "number": number}))
        numbers = list(range(number - len(wakes) + 1, number + 1))
        ids = [wake.id for wake in wakes]
        keeps = choose.random() < 0.85
        note("asked", ids=ids, numbers=numbers)
        try:
            with store.transaction() as tx:
                tx.wake(wakes)
                if not keeps:
                    raise RolledBack
            note("committed", ids=ids, numbers=numbers)
        except RolledBack:
            note("rolledback", ids=ids, numbers=numbers)
        except StoreUnavailable:
            note("unknown" if keeps else "rolledback", ids=ids, numbers=numbers)
            time.sleep(0.2)
        if choose.random() < 0.03:
            note("cancel", ids=ids[:1])
            try:
                apply(store, Filter(ids=ids[:1]), Cancel())
            except StoreUnavailable:
                note("cancel_unknown", ids=ids[:1])
        time.sleep(pace)
    store.close()


if __name__ == "__main__":
    main()
