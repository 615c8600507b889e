"""Hints are rung beside whoever wakes: soon, together, and never in the way."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

from middleware.ringing import WAITING_MOST, Hint, Ringing


class Tower:
    """Hears what is rung; may be held up."""

    def __init__(self) -> None:
        self.heard: list[list[Hint]] = []
        self.free = threading.Event()
        self.free.set()
        self.reached = threading.Event()
        self.ringing = Ringing(self._offer)

    def _offer(self, hints: list[Hint]) -> None:
        self.reached.set()
        assert self.free.wait(20)
        self.heard.append(hints)


@pytest.fixture
def tower() -> Iterator[Tower]:
    made = Tower()
    yield made
    made.free.set()
    made.ringing.close(10)


def hint(number: int) -> Hint:
    return Hint("default", str(number), 5)


def test_what_is_put_while_one_round_is_rung_goes_together_in_the_next(tower: Tower) -> None:
    tower.free.clear()
    tower.ringing.put([hint(0)])
    assert tower.reached.wait(10)
    for number in range(1, 50):
        tower.ringing.put([hint(number)])
    tower.free.set()
    assert tower.ringing.flush(10)
    assert tower.heard == [[hint(0)], [hint(number) for number in range(1, 50)]]


def test_a_valkey_that_hangs_holds_up_nobody_who_wakes_and_what_waits_is_bounded(tower: Tower) -> None:
    tower.free.clear()
    tower.ringing.put([hint(0)])
    assert tower.reached.wait(10)
    tower.ringing.put(hint(number) for number in range(WAITING_MOST + 7))
    assert not tower.ringing.flush(0.01)
    tower.free.set()
    assert tower.ringing.flush(10)
    assert len(tower.heard[1]) == WAITING_MOST
    assert tower.heard[1][0] == hint(7)  # the oldest went: their rows are found by the scheduler


def test_closed_it_has_rung_for_all_and_can_be_used_again(tower: Tower) -> None:
    tower.ringing.put([hint(1)])
    tower.ringing.close(10)
    assert tower.heard == [[hint(1)]]
    tower.ringing.put([hint(2)])
    assert tower.ringing.flush(10)
    assert tower.heard[-1] == [hint(2)]


def test_a_forked_child_rings_for_itself(tower: Tower) -> None:
    tower.ringing.put([hint(1)])
    assert tower.ringing.flush(10)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        tower.ringing.put([hint(2)])
        rung = tower.ringing.flush(10) and tower.heard[-1] == [hint(2)]
        os.write(writer, b"rung" if rung else b"silent")
        os._exit(0)
    assert os.read(reader, 10) == b"rung"
    os.waitpid(child, 0)
    for end in (reader, writer):
        os.close(end)
