"""What a process has in hand: claimed rows with their runs, and ordinary messages, by lease."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable

from dramatiq.middleware.threading import raise_thread_exception

from middleware.interrupts import Cancelled, LeaseLost, Stopped
from store import clock
from store.job import Job
from store.policy import Policy


class Holding:
    """One claimed row, from its claim to its finish. Written by its worker thread and by the heartbeat's."""

    __slots__ = (
        "_gate", "_interrupted", "_signal", "cancelled", "counts", "ended", "job", "lost", "member", "policy",
        "progress", "progress_seen", "renew_at", "started", "stopped", "thread",
    )  # fmt: skip

    def __init__(self, job: Job, policy: Policy, member: str, renew_at: float) -> None:
        self.job = job
        self.policy = policy
        self.member = member
        self.renew_at = renew_at  # on clock.elapsed
        self.started: float | None = None  # on clock.elapsed; None: prefetched
        self.thread: int | None = None  # the thread that runs the handler, while it does
        self.cancelled = self.lost = self.stopped = self.ended = False
        self.progress: tuple[int, str | None] | None = None  # still to be written
        self.progress_seen = -1
        self.counts: dict[str, int] = {}
        self._gate = threading.Lock()
        self._signal: threading.Event | None = None
        self._interrupted = False

    @property
    def lease_id(self) -> str:
        """The lease under which this row is ours."""
        return self.job.lease_id or ""

    def begin(self) -> None:
        """The handler starts, in this thread."""
        self.thread = threading.get_ident()
        self.started = clock.elapsed()

    def leave(self) -> None:
        """The handler is over: no interrupt reaches this thread from here on; one that is under way is awaited."""
        with self._gate:
            self.thread = None
            awaited = self._interrupted
        if awaited:
            # The interpreter delivers an interrupt at some later bytecode of this thread; better here than in code
            # that writes the outcome. A hundredth of a second is ages for that; a whole one is the bound.
            with contextlib.suppress(Cancelled, LeaseLost, Stopped):
                for _ in range(100):
                    threading.Event().wait(0.01)

    def interrupt(self, why: type[Cancelled] | type[LeaseLost] | type[Stopped]) -> None:
        """Raise ``why`` in the handler's thread, once."""
        with self._gate:
            if self.thread is not None and not self._interrupted:
                self._interrupted = True
                raise_thread_exception(self.thread, why)  # type: ignore[no-untyped-call]

    def delivered(self) -> None:
        """The handler's thread has seen the interrupt."""
        self._interrupted = False

    def tell(self, *, cancelled: bool = False, lost: bool = False, stopped: bool = False) -> None:
        """Something that the run should see at its next check; sleeping runs wake up for it."""
        self.cancelled |= cancelled
        self.lost |= lost
        self.stopped |= stopped
        with self._gate:
            if self._signal is not None:
                self._signal.set()

    def wait(self, seconds: float) -> None:
        """Sleep, unless told something meanwhile."""
        with self._gate:
            if self._signal is None:
                self._signal = threading.Event()
        if not (self.cancelled or self.lost):
            self._signal.wait(seconds)


class InHand:
    """All holdings of a process, and the leases of ordinary messages. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rows: dict[str, Holding] = {}
        self._messages: dict[str, tuple[str, str, float]] = {}  # token -> (queue, member, renew at)
        self._empty = threading.Condition(self._lock)

    def add(self, holdings: Iterable[Holding]) -> None:
        """Rows that were just claimed."""
        with self._lock:
            for holding in holdings:
                self._rows[holding.lease_id] = holding

    def drop(self, leases: Iterable[str]) -> None:
        """Rows that are settled: nothing is renewed any more."""
        with self._lock:
            for lease in leases:
                self._rows.pop(lease, None)
            if not self._rows:
                self._empty.notify_all()

    def rows(self) -> list[Holding]:
        """A snapshot."""
        with self._lock:
            return list(self._rows.values())

    def wait_empty(self, timeout: float) -> bool:
        """Wait until no row is in hand."""
        with self._lock:
            return self._empty.wait_for(lambda: not self._rows, timeout)

    def add_message(self, token: str, queue: str, member: str, renew_at: float) -> None:
        """An ordinary message that was just claimed."""
        with self._lock:
            self._messages[token] = (queue, member, renew_at)

    def drop_message(self, token: str) -> None:
        """An ordinary message that is over."""
        with self._lock:
            self._messages.pop(token, None)

    def messages_to_renew(self, moment: float, again_at: float) -> list[tuple[str, str, str]]:
        """(queue, member, token) of the messages whose renewal is due; their next one is put to ``again_at``."""
        with self._lock:
            due = [(queue, member, token) for token, (queue, member, at) in self._messages.items() if at <= moment]
            for queue, member, token in due:
                self._messages[token] = (queue, member, again_at)
            return due
