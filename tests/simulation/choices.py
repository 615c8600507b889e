"""Where a schedule's decisions come from: a list of numbers, made from a seed, replayed as it is and made shorter."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence


class Exhausted(Exception):
    """The schedule is over."""


class Choices:
    """Draws decisions from a list of numbers; the same list makes the same decisions."""

    def __init__(self, numbers: Sequence[int]) -> None:
        self._numbers = numbers
        self._at = 0
        self.tame = False  # no more surprises: the first option always

    def draw(self, options: int) -> int:
        """One of 0 .. options - 1. Raises Exhausted at the end of the list."""
        if self.tame:
            return 0
        if self._at == len(self._numbers):
            raise Exhausted
        number = self._numbers[self._at]
        self._at += 1
        return number % options

    def once_in(self, odds: int) -> bool:
        """True in one of ``odds`` cases; False where there are no more surprises."""
        return self.draw(odds) == odds - 1


def numbers_of(seed: int, length: int) -> list[int]:
    """The schedule of a seed."""
    source = random.Random(seed)
    return [source.randrange(1 << 16) for _ in range(length)]


def shortened(numbers: Sequence[int], fails: Callable[[Sequence[int]], bool], tries: int = 400) -> list[int]:
    """A shorter list that still fails: ever smaller pieces are left out for as long as that keeps it failing."""
    kept = list(numbers)
    piece = len(kept) // 2
    while piece and tries > 0:
        at = 0
        while at < len(kept) and tries > 0:
            tries -= 1
            less = kept[:at] + kept[at + piece :]
            if fails(less):
                kept = less
            else:
                at += piece
        piece //= 2
    return kept
