"""A sending process: wakes in transactions that commit or roll back, sends, and cancels, until it is told to end.

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

#: Job types and how often each is woken.
MIX = {
    jobs.plain: 8,
    jobs.keyed: 8,
    jobs.fleeting: 4,
    jobs.retried: 1,
    jobs.failed: 1,
    jobs.again: 1,
    jobs.effect: 3,
    jobs.deaf: 1,
}


class RolledBack(Exception):
    """Thrown through a transaction so that nothing of it stays."""


def main() -> None:
    """``sender SEED PACE``: ``PACE`` seconds between two transactions."""
    choose, pace = random.Random(sys.argv[1]), float(sys.argv[2])
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
    broker = jobs.plain.broker
    store = broker.runtime.store
    number = 0
    while not stopped:
        wakes = []
        for actor in choose.choices(list(MIX), list(MIX.values()), k=choose.randint(1, 8)):
            number += 1
            wakes.append(actor.request(kwargs={"thing": f"t{choose.randrange(40)}", "number": number}))
        ids = [wake.id for wake in wakes]
        wanted = {"ids": ids, "numbers": list(range(number - len(wakes) + 1, number + 1))}
        sends, keeps = choose.random() < 0.4, choose.random() < 0.85
        try:
            if sends:
                broker.wake(wakes)
            else:
                with store.transaction() as tx:
                    tx.wake(wakes)
                    if not keeps:
                        raise RolledBack
            note("committed", **wanted)
        except RolledBack:
            note("rolledback", **wanted)
        except StoreUnavailable:
            note("unknown" if sends or keeps else "rolledback", **wanted)
            time.sleep(0.2)
        if choose.random() < 0.03:
            note("cancel", ids=ids[:1])
            try:
                apply(store, Filter(ids=ids[:1]), Cancel())
            except StoreUnavailable:
                note("cancel_unknown", ids=ids[:1])
        time.sleep(pace)
    broker.close()


if __name__ == "__main__":
    main()
