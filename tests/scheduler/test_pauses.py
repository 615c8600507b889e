"""Valkey's pauses follow the store's words, whatever became of Valkey."""

from __future__ import annotations

from store import queues
from store.identity import new_lease_id
from tests.endtoend.house import eventually
from tests.scheduler.test_reconcile import Broker, Working, broker, wake, working_broker  # noqa: F401 - fixtures


def claimable(broker: Broker, queue: str = "default") -> bool:  # noqa: F811
    """Whether Valkey hands anything of a queue out."""
    return bool(broker.runtime.leases.claim(queue, [new_lease_id()], full_ms=1000).taken)


def test_a_pause_that_valkey_lost_comes_back(broker: Broker) -> None:  # noqa: F811
    leases = broker.runtime.leases
    queues.pause(broker.runtime.store, leases, "default")
    assert leases.resume("default"), "the command did not tell Valkey"
    with Working(broker):
        eventually(lambda: not leases.pause("default"), 5, "the shift to pause the queue")


def test_a_resume_that_valkey_did_not_hear_is_said_again(broker: Broker) -> None:  # noqa: F811
    store, leases = broker.runtime.store, broker.runtime.leases
    queues.pause(store, leases, "default")
    queues.resume(store, None, "default")
    wake(broker)
    with Working(broker):
        eventually(lambda: claimable(broker), 5)


def test_a_resume_offers_at_once_what_is_due(broker: Broker) -> None:  # noqa: F811
    store, leases = broker.runtime.store, broker.runtime.leases
    queues.pause(store, leases, "default")
    wake(broker, 3)
    wake(broker, queue="high")
    assert leases.sizes("default").ready == 0
    queues.resume(store, leases, "default")
    assert (leases.sizes("default").ready, leases.sizes("high").ready) == (3, 0)
    assert leases.block("default", 5)


def test_a_pause_for_one_domain_leaves_valkey_alone(broker: Broker) -> None:  # noqa: F811
    queues.pause(broker.runtime.store, broker.runtime.leases, "default", "elsewhere")
    wake(broker)
    with Working(broker):
        eventually(lambda: claimable(broker), 5)
