"""How much work a process takes in hand."""

from __future__ import annotations

import threading

from middleware.slots import LOOK_AHEAD_MOST, Slots


def test_at_first_only_as_much_as_there_are_slots() -> None:
    slots = Slots(4)
    assert slots.take(0) == 4
    assert slots.take(0) == 0


def test_long_jobs_are_not_prefetched() -> None:
    slots = Slots(4)
    slots.learn(60.0)
    assert slots.capacity() == 4


def test_short_jobs_are_prefetched_up_to_what_starts_within_a_tenth_of_a_second() -> None:
    slots = Slots(4)
    slots.learn(0.01)
    assert slots.capacity() == 4 + 40
    slots = Slots(4)
    slots.learn(0.000001)
    assert slots.capacity() == 4 + LOOK_AHEAD_MOST


def test_a_long_job_among_short_ones_shrinks_the_look_ahead() -> None:
    slots = Slots(2)
    for _ in range(100):
        slots.learn(0.001)
    before = slots.capacity()
    slots.learn(10.0)
    assert slots.capacity() < before / 10


def test_whoever_waits_is_woken_by_a_place_that_is_given_back() -> None:
    slots = Slots(1)
    assert slots.take(0) == 1
    taken: list[int] = []
    waiter = threading.Thread(target=lambda: taken.append(slots.take(10)))
    waiter.start()
    slots.give()
    waiter.join(10)
    assert taken == [1]


def test_closing_wakes_everybody_with_nothing() -> None:
    slots = Slots(1)
    slots.take(0)
    taken: list[int] = []
    waiter = threading.Thread(target=lambda: taken.append(slots.take(10)))
    waiter.start()
    slots.close()
    waiter.join(10)
    assert taken == [0]
