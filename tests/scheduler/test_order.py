"""The order in which jobs reach workers: the most urgent first, also out of a backlog that Valkey never holds whole."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from middleware.broker import Broker
from scheduler import reconcile
from store.events import Claim
from store.identity import new_lease_id
from store.job import Job
from tests.endtoend.house import eventually
from tests.middleware.conftest import working_broker  # noqa: F401 - a fixture
from tests.middleware.test_fence import job
from tests.scheduler.test_reconcile import Working, ready


@pytest.fixture
def broker(working_broker: Broker) -> Iterator[Broker]:  # noqa: F811
    job(working_broker, lambda payload, run: None)
    working_broker.runtime.publish()
    yield working_broker
    working_broker.runtime.completion.close(5)


def woken(broker: Broker, number: int) -> list[Job]:
    """A backlog in no order at all, a millisecond and more apart, which nobody rang for."""
    store = broker.runtime.store
    began = store.ping() - timedelta(hours=1)
    request = broker.actors["test.job"].request  # type: ignore[attr-defined]
    wakes = [
        request(priority=1 + place * 7 % 10, run_at=began + timedelta(milliseconds=place * 31 % 499))
        for place in range(number)
    ]
    rows = store.read([one.id for one in store.wake(wakes)])
    return [row for row in rows if row is not None]


def claim(broker: Broker, number: int) -> list[str]:
    """What a worker with so many free places takes: in Valkey, then the rows."""
    tokens = [new_lease_id() for _ in range(number)]
    taken = broker.runtime.leases.claim("default", tokens, full_ms=60_000, short_ms=60_000).taken
    broker.runtime.store.claim([Claim(one.member[2:], one.token, "here", 60) for one in taken])
    return [one.member[2:] for one in taken]


def test_a_backlog_beyond_the_watermark_is_taken_in_its_order(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconcile, "WATERMARK", 250)
    rows = woken(broker, 1200)
    expected = [row.id for row in sorted(rows, key=lambda row: (row.priority, row.run_at, row.id))]
    taken: list[str] = []
    with Working(broker):

        def drain() -> bool:
            if ready(broker) or len(taken) == len(expected):
                taken.extend(claim(broker, 40))
            return len(taken) >= len(expected)

        eventually(drain, 40, "the whole backlog")
    assert taken == expected


def test_rows_that_are_more_urgent_than_a_full_ready_set_come_next(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconcile, "WATERMARK", 250)
    woken(broker, 1000)
    store = broker.runtime.store
    request = broker.actors["test.job"].request  # type: ignore[attr-defined]
    with Working(broker):
        eventually(lambda: ready(broker) >= 250, 10, "the ready set to be full")
        late = store.ping()
        urgent = [
            one.id
            for one in store.wake(
                [
                    request(priority=1, run_at=late - timedelta(days=1) + timedelta(milliseconds=place))
                    for place in range(150)
                ]
            )
        ]
        eventually(lambda: ready(broker) >= 250 + 100, 10, "the urgent rows to be offered")
        taken: list[str] = []

        def drain() -> bool:
            wanted = 150 - len(taken)
            page = claim(broker, min(wanted, 30)) if ready(broker) >= 250 else []
            taken.extend(page)
            return len(taken) >= 150

        eventually(drain, 20, "the urgent rows")
    assert taken == urgent


def test_as_long_as_rows_were_kept_back_by_a_full_ready_set_the_next_look_comes_soon(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconcile, "WATERMARK", 250)
    expected = {row.id for row in woken(broker, 1200)}
    shift, taken = reconcile.Shift(broker), set[str]()
    while not taken or shift.hurries:
        shift.dispatch()
        taken.update(claim(broker, 170))
    taken.update(claim(broker, 500))
    assert taken == expected
