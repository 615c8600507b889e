"""The loop of ``Jobs.run``: what is due is claimed as there is room for it, run by threads, and finished in batches.

Everything that surrounds a run is a Dramatiq worker's: the slots, the fence, the heartbeat, the completion, the way a
stop is seen through. Only the way in differs: from the rows, and not through Valkey.
"""

from __future__ import annotations

import random
import signal as signals
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from middleware import logs
from middleware.acquiring import Acquirer, ClaimInDoubt, Where
from middleware.delivery import Lane
from middleware.fence import enter, leave, run_held
from middleware.handlers import Handled, event_loop
from middleware.heartbeat import Heartbeat
from middleware.holding import Holding
from middleware.lost import LostLeases
from middleware.slots import Slots
from middleware.stopping import FLUSH_SECONDS, see_out
from store import clock
from store.contract import Signal
from store.errors import Refused, StoreUnavailable, UsageError
from store.events import Claim, Release
from store.identity import new_lease_id
from store.job import Job

if TYPE_CHECKING:
    from middleware.rows_only import RowsOnly

#: Seconds between two looks where nothing signals.
LOOK_EVERY: Final = 1.0

#: Seconds between two looks that find nothing although signals come: the first, and the last that it grows to.
BREATH: Final = 0.02
BREATH_MOST: Final = 0.25

#: Seconds to wait for a store that is away: the first, and the last that it grows to.
PAUSE: Final = 0.05
PAUSE_MOST: Final = 2.0

#: Seconds that a claimed row waits for a thread at most, before others may have it.
WAITING_MOST: Final = 1.0

#: The loop's name among the signs of life.
SIGN: Final = "consumer rows"


class RowHeartbeat(Heartbeat):
    """A heartbeat that has no Valkey to talk to."""

    def _send(self, *_: Any) -> None:
        """Nobody hears it."""


class Loop:
    """One loop; it runs once."""

    def __init__(
        self, runtime: RowsOnly, handled: Mapping[str, Handled], where: Where, concurrency: int | None
    ) -> None:  # fmt: skip
        self.runtime = runtime
        self._handled = handled
        self._where = where
        if concurrency is not None:
            if isinstance(concurrency, bool) or not isinstance(concurrency, int) or not 1 <= concurrency <= 64:
                raise UsageError("concurrency is a whole number of threads from 1 to 64")
            runtime.slots = Slots(concurrency)
        self._acquirer = Acquirer(runtime)
        self._lane = Lane()
        self._doubt: Sequence[Claim] = ()
        self._breath, self._pause = BREATH, PAUSE
        self._lost: LostLeases | None = None

    def call_scheduler(self) -> None:
        """What the heartbeat asks for now and then: here it takes back what lost workers held, however busy we are."""
        if self._lost is not None:
            try:
                self._lost.step()
            except StoreUnavailable as error:
                logs.trouble("queue_unavailable", error)

    def run(self, stop: threading.Event | None) -> None:
        """Until ``stop`` is set or a signal tells to stop. Raises Refused for a schema that can't be worked with."""
        runtime = self.runtime
        runtime.boot()
        runtime.policies.update({job_type: one.policy for job_type, one in self._handled.items()})
        stop = stop or threading.Event()
        heartbeat = RowHeartbeat(self, self._give_back_waiting)
        threads = [
            threading.Thread(target=self._work, name=f"job {number}", daemon=True)
            for number in range(runtime.slots.concurrency)
        ]
        with _obeying_signals(stop), event_loop():
            if not self._begin(stop):
                return
            heartbeat.start()
            for thread in threads:
                thread.start()
            try:
                self._feed(stop)
            finally:
                self._see_out(heartbeat, threads)

    def _begin(self, stop: threading.Event) -> bool:
        """Check the schema and publish the types, as soon as the store answers; False: stopped before."""
        while not stop.is_set():
            try:
                self.runtime.store.check_schema(self.runtime.subjects)
                self.runtime.publish()
                self._lost = LostLeases(self.runtime)
                return True
            except StoreUnavailable as error:
                logs.trouble("queue_unavailable", error)
                self._wait_out(stop)
        return False

    def _feed(self, stop: threading.Event) -> None:
        runtime = self.runtime
        signal: Signal | None = None
        try:
            while not stop.is_set():
                places = runtime.slots.take(LOOK_EVERY / 2)
                runtime.health.sign(SIGN)
                if not places:
                    continue
                rows: list[Job] = []
                try:
                    signal = signal or runtime.store.changes()
                    self.call_scheduler()
                    rows = self._take(places)
                    self._pause = PAUSE
                    for row in rows:
                        self._hand_over(row)
                except StoreUnavailable as error:
                    if isinstance(error, ClaimInDoubt):
                        self._doubt = error.claims
                    logs.trouble("queue_unavailable", error)
                    self._wait_out(stop)
                    continue
                except Refused as error:
                    self._doubt = ()  # what may be ours of it is left to its leases
                    logs.trouble("claim_refused", error)
                    self._wait_out(stop)
                    continue
                finally:
                    runtime.slots.give(places - len(rows))
                runtime.health.sign("store")
                if rows:
                    self._breath = BREATH
                elif signal is not None:
                    self._wait_for_work(signal, stop)
        finally:
            if signal is not None:
                signal.close()

    def _take(self, places: int) -> list[Job]:
        """Rows for ``places``; claims whose answer was lost are asked for again first, under their own leases."""
        if self._doubt:
            answers = self.runtime.store.claim(self._doubt)
            self._doubt = ()
            return [answer.job for answer in answers if answer.job is not None]
        leases = [new_lease_id() for _ in range(places)]
        return self._acquirer.take(leases, self._where, self.runtime.worker.lease_seconds)

    def _hand_over(self, row: Job) -> None:
        again_at = clock.elapsed() + self.runtime.worker.renew_every
        holding = Holding(row, self._handled[row.job_type].policy, "", again_at)
        self.runtime.in_hand.add((holding,))
        self._lane.put(holding)

    def _wait_for_work(self, signal: Signal, stop: threading.Event) -> None:
        """Until something changed, in short steps so that a stop is heard; never busily, whatever changes."""
        waited = clock.elapsed()
        deadline = waited + LOOK_EVERY
        changed = False
        while not (changed or stop.is_set()) and clock.elapsed() < deadline:
            changed = signal.wait(min(LOOK_EVERY / 4, max(0.0, deadline - clock.elapsed())))
        if clock.elapsed() - waited > BREATH_MOST:
            self._breath = BREATH  # it has been quiet
        else:
            stop.wait(self._breath)
            self._breath = min(self._breath * 2, BREATH_MOST)

    def _wait_out(self, stop: threading.Event) -> None:
        if self._lost is not None:
            self._lost.put_off()
        stop.wait(self._pause * (1 + random.random()))
        self._pause = min(self._pause * 2, PAUSE_MOST)

    # --- the threads that run handlers

    def _work(self) -> None:
        while (holding := self._lane.get()) is not None:
            try:
                run_one(holding, self._handled[holding.job.job_type], self.runtime)
            except BaseException as error:  # noqa: BLE001 - a thread that ended would leave its slot empty for ever
                logs.trouble("run_failed", error if isinstance(error, Exception) else Refused("a run was interrupted"))
            finally:
                self._lane.task_done()
                self.runtime.slots.give()

    # --- the ways back

    def _give_back_waiting(self) -> None:
        moment = clock.elapsed()
        self._give_back(lambda holding: holding is not None and moment - holding.claimed > WAITING_MOST)

    def _give_back(self, wanted: Callable[[Any], bool]) -> None:
        for holding in self._lane.take_out(wanted):
            self.runtime.completion.put(holding, Release(holding.lease_id, holding.job.attempt))
            self._lane.task_done()
            self.runtime.slots.give()

    def _see_out(self, heartbeat: Heartbeat, threads: Sequence[threading.Thread]) -> None:
        runtime = self.runtime
        runtime.stopping.set()
        runtime.slots.close()
        heartbeat.mark_stopping()
        self._settle_doubt()
        self._give_back(lambda holding: True)
        see_out(runtime)
        for _ in threads:
            self._lane.put(None)
        for thread in threads:
            thread.join(LOOK_EVERY)  # a handler that did not end in its time is left to its lease
        runtime.completion.close(FLUSH_SECONDS)
        heartbeat.stop(FLUSH_SECONDS)
        try:
            if self._lost is not None:
                self._lost.resign()
        except StoreUnavailable as error:
            logs.trouble("queue_unavailable", error)  # then it runs out

    def _settle_doubt(self) -> None:
        """Rows that may be ours, of a claim whose answer was lost: asked for once more, and given back."""
        if not self._doubt:
            return
        try:
            rows = self._take(0)
        except (StoreUnavailable, Refused) as error:
            logs.trouble("queue_unavailable", error)  # then their leases run out
            return
        for row in rows:
            holding = Holding(row, self._handled[row.job_type].policy, "", float("inf"))
            self.runtime.completion.put(holding, Release(holding.lease_id, row.attempt))


def run_one(holding: Holding, handled: Handled, runtime: RowsOnly) -> None:
    """Run one claimed row in this thread, as a worker does."""
    if not enter(holding, runtime):
        return
    try:
        run_held(holding, handled.payload_type, handled.handler, runtime)
    finally:
        leave(holding, runtime)


@contextmanager
def _obeying_signals(stop: threading.Event) -> Iterator[None]:
    """SIGTERM and SIGINT set ``stop``, where the main thread waits; what was there before comes back afterwards."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def obey(number: int, frame: FrameType | None) -> None:
        stop.set()

    before = {number: signals.signal(number, obey) for number in (signals.SIGTERM, signals.SIGINT)}
    try:
        yield
    finally:
        for number, was in before.items():
            signals.signal(number, was)
