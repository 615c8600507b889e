"""What Dramatiq promises of its brokers, on ours."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import dramatiq
import pytest
from dramatiq.errors import QueueJoinTimeout, QueueNotFound
from dramatiq.middleware import Middleware, SkipMessage
from dramatiq.rate_limits import ConcurrentRateLimiter
from dramatiq.rate_limits.backends import StubBackend as LimitStub
from dramatiq.results import Results
from dramatiq.results.backends import StubBackend

from middleware.broker import SCHEDULER_QUEUE, Broker

Start = Callable[[], dramatiq.Worker]


def test_messages_reach_their_actor(working_broker: Broker, start_worker: Start) -> None:
    seen: list[int] = []
    done = threading.Event()

    @dramatiq.actor(broker=working_broker)
    def collect(number: int) -> None:
        seen.append(number)
        if len(seen) == 100:
            done.set()

    for number in range(100):
        collect.send(number)
    start_worker()
    assert done.wait(20)
    working_broker.join("default", timeout=10_000)
    assert sorted(seen) == list(range(100))


def test_a_delayed_message_waits_its_time_in_valkey(working_broker: Broker, start_worker: Start) -> None:
    arrived: list[float] = []
    done = threading.Event()

    @dramatiq.actor(broker=working_broker)
    def late() -> None:
        arrived.append(time.monotonic())
        done.set()

    start_worker()
    sent = time.monotonic()
    message = late.send_with_options(delay=400)
    assert message.options["eta"] > 0
    assert working_broker.runtime.leases.sizes("default").delayed == 1
    assert done.wait(20)
    assert arrived[0] - sent >= 0.4


def test_a_failing_message_is_retried_and_ends_as_a_dead_letter(working_broker: Broker, start_worker: Start) -> None:
    tries: list[int] = []

    @dramatiq.actor(broker=working_broker, max_retries=3, min_backoff=1, max_backoff=10)
    def fail() -> None:
        tries.append(1)
        raise RuntimeError

    start_worker()
    fail.send()
    working_broker.join("default", timeout=20_000)
    assert len(tries) == 4
    assert working_broker.runtime.leases.sizes("default").dead == 1


def test_more_urgent_actors_go_first(working_broker: Broker, start_worker: Start) -> None:
    order: list[str] = []
    done = threading.Event()

    def note(name: str) -> Callable[[], None]:
        def run() -> None:
            order.append(name)
            if len(order) == 40:
                done.set()

        return run

    slow = dramatiq.actor(broker=working_broker, actor_name="slow", priority=10)(note("slow"))
    fast = dramatiq.actor(broker=working_broker, actor_name="fast", priority=0)(note("fast"))
    for _ in range(20):
        slow.send()
        fast.send()
    working_broker.runtime.slots.concurrency = 1
    start_worker()
    assert done.wait(20)
    assert order[:10] == ["fast"] * 10


def test_an_unknown_actors_message_is_a_dead_letter(working_broker: Broker, start_worker: Start) -> None:
    message: Any = dramatiq.Message(queue_name="default", actor_name="nobody", args=(), kwargs={}, options={})
    working_broker.enqueue(message)
    start_worker()
    working_broker.join("default", timeout=20_000)
    assert working_broker.runtime.leases.sizes("default").dead == 1


def test_results_pipelines_and_groups_work(working_broker: Broker, start_worker: Start) -> None:
    backend = StubBackend()
    working_broker.add_middleware(Results(backend=backend))

    @dramatiq.actor(broker=working_broker, store_results=True)
    def add(x: int, y: int) -> int:
        return x + y

    start_worker()
    assert add.send(1, 2).get_result(backend=backend, block=True) == 3
    pipe = add.message(1, 2) | add.message(10)
    dramatiq.pipeline([*pipe.messages], broker=working_broker).run()
    assert pipe.messages[-1].get_result(backend=backend, block=True) == 13
    group = dramatiq.group([add.message(n, n) for n in range(5)], broker=working_broker).run()
    results = [message.get_result(backend=backend, block=True) for message in group.children]
    assert results == [0, 2, 4, 6, 8]


def test_rate_limits_hold(working_broker: Broker, start_worker: Start) -> None:
    limiter = ConcurrentRateLimiter(LimitStub(), "one", limit=1)
    running: list[int] = []
    worst: list[int] = []

    @dramatiq.actor(broker=working_broker, max_retries=50, min_backoff=1, max_backoff=20)
    def limited() -> None:
        with limiter.acquire():
            running.append(1)
            worst.append(len(running))
            time.sleep(0.01)
            running.pop()

    start_worker()
    for _ in range(8):
        limited.send()
    working_broker.join("default", timeout=30_000)
    assert worst == [1] * 8


def test_a_middleware_can_skip_a_message(working_broker: Broker, start_worker: Start) -> None:
    class Skip(Middleware):
        def before_process_message(self, broker: Any, message: Any) -> None:
            if message.actor_name == "skipped":
                raise SkipMessage

    ran: list[int] = []
    working_broker.add_middleware(Skip())
    skipped = dramatiq.actor(broker=working_broker, actor_name="skipped")(lambda: ran.append(1))
    start_worker()
    skipped.send()
    working_broker.join("default", timeout=20_000)
    assert ran == []


def test_flush_drops_what_waits(working_broker: Broker) -> None:
    @dramatiq.actor(broker=working_broker)
    def never() -> None: ...

    never.send()
    never.send_with_options(delay=60_000)
    working_broker.flush("default")
    assert working_broker.runtime.leases.sizes("default") == (0, 0, 0, 0)


def test_join_ends_in_time_and_knows_its_queues(working_broker: Broker) -> None:
    @dramatiq.actor(broker=working_broker)
    def never() -> None: ...

    never.send()
    with pytest.raises(QueueJoinTimeout):
        working_broker.join("default", timeout=50)
    with pytest.raises(QueueNotFound):
        working_broker.join("nowhere", timeout=50)
    with pytest.raises(QueueNotFound):
        working_broker.consume("nowhere")


def test_a_singleton_has_one_message_whoever_sends_it(working_broker: Broker) -> None:
    for _ in range(5):
        working_broker.call_scheduler()
    assert working_broker.runtime.leases.sizes(SCHEDULER_QUEUE).ready == 1


def test_the_three_standard_queues_are_always_there(working_broker: Broker) -> None:
    assert {"default", "high", "low"} <= working_broker.get_declared_queues()


def test_a_broken_hook_of_somebody_elses_stops_nothing(working_broker: Broker, start_worker: Start) -> None:
    class Broken(Middleware):
        def before_process_message(self, broker: Any, message: Any) -> None:
            raise RuntimeError

        def after_process_message(self, broker: Any, message: Any, **_: Any) -> None:
            raise RuntimeError

    done = threading.Event()
    working_broker.add_middleware(Broken())
    actor = dramatiq.actor(broker=working_broker, actor_name="works")(lambda: done.set())
    start_worker()
    actor.send()
    assert done.wait(20)
