"""How much work a process takes in hand: its job slots, and a small look-ahead learnt from how long jobs take."""

from __future__ import annotations

import threading

from store import clock

#: Work in hand that isn't running should start within this many seconds.
LOOK_AHEAD_SECONDS = 0.1

#: Prefetched work at most, whatever its length: a claim is one statement, and a crash gives all of it back.
LOOK_AHEAD_MOST = 480

#: Weight of the newest duration in the running mean.
_WEIGHT = 0.1


class Slots:
    """Counts work in hand, over all queues of a process. Safe to share between threads."""

    def __init__(self, concurrency: int) -> None:
        self.concurrency = concurrency
        self._free = threading.Condition()
        self._in_hand = 0
        self._mean: float | None = None
        self._closed = False
        self.stuck = 0  # slots whose run has taken long already: nothing will start there soon

    @property
    def in_hand(self) -> int:
        """Deliveries claimed and not yet given back."""
        return self._in_hand

    def capacity(self) -> int:
        """Deliveries that may be in hand now: the slots plus what would start within LOOK_AHEAD_SECONDS."""
        mean = self._mean
        if mean is None:
            return self.concurrency
        free = max(0, self.concurrency - self.stuck)
        ahead = int(free * LOOK_AHEAD_SECONDS / max(mean, 1e-9))
        return self.concurrency + min(ahead, LOOK_AHEAD_MOST)

    def take(self, timeout: float) -> int:
        """Wait up to ``timeout`` seconds until there is room, then take all of it; 0 if there was none."""
        deadline = clock.elapsed() + timeout
        with self._free:
            while not self._closed:
                # Refill in lots: a claim for each single free place of the look-ahead would cost a round trip a job.
                capacity = self.capacity()
                room = capacity - self._in_hand
                if room > 0 and (self._in_hand <= self.concurrency or room >= (capacity - self.concurrency) // 2):
                    self._in_hand += room
                    return room
                left = deadline - clock.elapsed()
                if left <= 0 or not self._free.wait(left):
                    return 0
            return 0

    def give(self, places: int = 1) -> None:
        """Places that weren't used, or whose work is over."""
        if places:
            with self._free:
                self._in_hand -= places
                self._free.notify()

    def learn(self, seconds: float) -> None:
        """How long a delivery kept its thread."""
        mean = self._mean
        # A race between two threads loses one sample of a running mean, which is harmless.
        self._mean = seconds if mean is None else mean + _WEIGHT * (seconds - mean)

    def open(self) -> None:
        """A worker begins."""
        with self._free:
            self._closed = False
            self.stuck = 0

    def close(self) -> None:
        """Nothing more is taken: the worker is stopping."""
        with self._free:
            self._closed = True
            self._free.notify_all()
