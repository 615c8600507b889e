"""What a job costs does not grow with what lies beside it: rows for later, ended rows, history, a long queue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from store.contract import Store
from store.events import Kind
from store.identity import new_id
from store.job import HISTORY_KEPT
from store.sqlite.rows import PARKED
from store.valkey import entries
from store.valkey.leases import Leases
from tests.bench import steps
from tests.bench.conftest import Metered
from tests.bench.meters import ValkeyMeter
from tests.bench.steps import Spent
from tests.contract.acts import take
from tests.contract.rows import wake

FEW, MANY = 1_000, 20_000

#: An index of more rows is read a level deeper at some point, so not all of these stay to the last one.
GROWTH = 1.25

ENDED = {
    "sqlite": f"UPDATE dramaturg_job SET state = 'completed', run_at = {PARKED}, finished_at = updated_at WHERE id IN "
    "(SELECT id FROM dramaturg_job WHERE state = 'queued' LIMIT :count)",
    "postgres": "UPDATE dramaturg.job SET state = 'completed', run_at = 'infinity', finished_at = updated_at "
    "WHERE id IN (SELECT id FROM dramaturg.job WHERE state = 'queued' LIMIT %(count)s)",
}


def crowd(store: Store, dialect: str, number: int) -> None:
    """Rows beside the ones that count: half of them have ended, the others wait for their time."""
    for first in range(0, number, 5_000):
        store.wake(
            [wake(None, id=new_id(), delay=1e6 + place) for place in range(min(5_000, number - first))], notify=False
        )
    with store.transaction() as tx:
        tx.execute(ENDED[dialect], {"count": number // 2})


def not_more(before: Spent, after: Spent, *names: str, growth: float = GROWTH) -> None:
    """Each step costs the same after as before."""
    grown = [
        f"{step} grew from {before[step][name]} to {counts[name]} {name}"
        for step, counts in after.items()
        for name in names
        if counts[name] > before[step][name] * growth + 20
    ]
    assert not grown, "\n".join(grown)


@pytest.mark.parametrize("metered", ENDED, indirect=True)
def test_a_job_costs_the_same_beside_many_rows_for_later_and_ended_ones(metered: Metered) -> None:
    crowd(metered.store, metered.name, FEW)
    before = steps.of_store(metered.store, metered.meter)

    crowd(metered.store, metered.name, MANY - FEW)

    not_more(
        before, steps.of_store(metered.store, metered.meter), "instructions", "rows by index", "rows by scan", "pages"
    )


@pytest.mark.parametrize("metered", ENDED, indirect=True)
def test_a_failure_costs_the_same_with_a_full_history(metered: Metered) -> None:
    store = metered.store
    ids = [new_id() for _ in range(10)]
    store.wake([wake(None, id=id_) for id_ in ids], notify=False)

    def fail_once() -> None:
        jobs = [take(store, id_) for id_ in ids]
        assert all(store.swap(steps.finishes(jobs, Kind.RETRY)))
        make_due(store, metered.name)

    fail_once()
    trimming = HISTORY_KEPT + 2
    spent: list[Counter[str]] = [metered.meter.spent(fail_once) for _ in range(trimming)]

    assert all(len(store.history(id_, limit=500)) == HISTORY_KEPT for id_ in ids)
    # What was kept longest is deleted from now on, which is all that is added.
    not_more({"fail": spent[5]}, {"fail": spent[-1]}, "instructions", "rows by scan", "pages", growth=1.5)


def make_due(store: Store, dialect: str) -> None:
    table = "dramaturg_job" if dialect == "sqlite" else "dramaturg.job"
    with store.transaction() as tx:
        tx.execute(f"UPDATE {table} SET run_at = created_at, retries = 0, failure_streak = 0")


def _ready(leases: Leases, number: int) -> None:
    behind = "999999999999999"
    leases.offer("default", [entries.Offer(f"j:{new_id()}", behind) for _ in range(number)], watermark=steps.WATERMARK)


def _in_flight(leases: Leases, number: int) -> None:
    _ready(leases, number)
    while leases.claim("default", [new_id() for _ in range(100)], full_ms=600_000, short_ms=600_000).taken:
        pass


def _delayed(leases: Leases, number: int) -> None:
    leases.delay("default", [entries.Delay(f"m:{new_id()}", 10**8, "1", b"{}") for _ in range(number)])


BESIDE: dict[str, Callable[[Leases, int], None]] = {"ready": _ready, "in flight": _in_flight, "delayed": _delayed}


@pytest.mark.parametrize("others", BESIDE)
def test_a_job_costs_valkey_the_same_beside_many(leases: Leases, valkey_meter: ValkeyMeter, others: str) -> None:
    BESIDE[others](leases, 10)
    before = steps.of_leases(leases, valkey_meter)

    BESIDE[others](leases, 10_000)

    after = steps.of_leases(leases, valkey_meter)
    for step, counts in after.items():
        assert (step, counts["round trips"], counts["commands"]) == (
            step,
            before[step]["round trips"],
            before[step]["commands"],
        )
    not_more(before, after, "bytes")
