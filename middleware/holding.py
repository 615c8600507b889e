"""What a process has in hand: claimed rows with their runs, and ordinary messages, by lease."""

from __future__ import annotations

import asyncio
import ctypes
import threading
from collections.abc import Iterable
from typing import NamedTuple

from dramatiq.middleware.threading import Interrupt, raise_thread_exception

from middleware.credentials import Credential
from store import clock
from store.events import Finish
from store.job import Job
from store.operations import Settled
from store.policy import Policy


class Holding:
    """One claimed row, from its claim to its finish. Written by its worker thread and by the heartbeat's."""

    __slots__ = (
        "_interrupted", "_signal", "cancelled", "claimed", "counts", "credentials", "ended", "job", "lost", "member",
        "overdue", "policy", "progress", "progress_seen", "renew_at", "settled", "started", "stopped",
        "thread",
    )  # fmt: skip

    _gate = threading.Lock()  # one for all: it is held for moments, and making one for each costs more

    def __init__(self, job: Job, policy: Policy, member: str, renew_at: float) -> None:
        self.job = job
        self.policy = policy
        self.member = member
        self.renew_at = renew_at  # on clock.elapsed
        self.claimed = clock.elapsed()
        self.started: float | None = None  # on clock.elapsed; None: prefetched
        self.thread: int | None = None  # the thread that runs the handler, while it does
        self.cancelled = self.lost = self.stopped = self.overdue = self.ended = False
        self.progress: tuple[int, str | None] | None = None  # still to be written
        self.progress_seen = -1
        self.counts: dict[str, int] = {}
        self.credentials: list[Credential] | None = None  # those that the run has opened
        self.settled: tuple[Finish, Settled] | None = None  # the run's own transaction has finished the row
        self._signal: threading.Event | None = None
        self._interrupted = False

    @property
    def lease_id(self) -> str:
        """The lease under which this row is ours."""
        return self.job.lease_id or ""

    def ran_for(self, moment: float) -> float:
        """Seconds since the handler started, at ``moment`` on clock.elapsed; 0 for what waits."""
        return 0.0 if self.started is None else moment - self.started

    def begin(self) -> None:
        """The handler starts, in this thread."""
        self.thread = threading.get_ident()
        self.started = clock.elapsed()

    def leave(self) -> None:
        """The handler is over: no interrupt reaches this thread from here on. May be called again."""
        with self._gate:
            thread, self.thread = self.thread, None
            for credential in self.credentials or ():
                credential.close()
            if thread is not None and self._interrupted:
                # One that was sent and not yet raised would be raised in whatever this thread does next: take it back.
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), None)

    def keep(self, credential: Credential) -> bool:
        """See that ``credential`` is closed as the run ends; False, and closed at once, where it has."""
        with self._gate:
            if self.thread is None:
                credential.close()
                return False
            self.credentials = [*(self.credentials or ()), credential]
            return True

    def interrupt(self, why: type[Interrupt]) -> None:
        """Raise ``why`` in the handler's thread, once."""
        with self._gate:  # held while it is raised, so that ``leave`` can take it back
            if self.thread is not None and not self._interrupted:
                self._interrupted = True
                raise_thread_exception(self.thread, why)  # type: ignore[no-untyped-call]

    def tell(
        self, *, cancelled: bool = False, lost: bool = False, stopped: bool = False, overdue: bool = False
    ) -> None:
        """Something that the run should see at its next check; sleeping runs wake up for it."""
        self.cancelled |= cancelled
        self.lost |= lost
        self.stopped |= stopped
        self.overdue |= overdue
        with self._gate:
            if self._signal is not None:
                self._signal.set()

    def wait(self, seconds: float) -> None:
        """Sleep, unless a cancel or the loss of the lease is told meanwhile."""
        with self._gate:
            if self._signal is None:
                self._signal = threading.Event()
            signal = self._signal
        deadline = clock.elapsed() + seconds
        while not (self.cancelled or self.lost or self.overdue) and signal.wait(max(0.0, deadline - clock.elapsed())):
            signal.clear()  # a stop was told, which ends no sleep

    async def nap(self, seconds: float) -> None:
        """A short part of a coroutine's ``wait``, which looks for itself in between."""
        await asyncio.sleep(seconds)


class _Kept(NamedTuple):
    """An ordinary message's lease in Valkey."""

    queue: str
    member: str
    seconds: float
    renew_at: float
    until: float


class InHand:
    """All holdings of a process, and the leases of ordinary messages. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rows: dict[str, Holding] = {}
        self._messages: dict[str, _Kept] = {}  # by token
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

    def add_message(self, token: str, queue: str, member: str, seconds: float, most: float | None = None) -> None:
        """An ordinary message that was just claimed for so many seconds; renewed for ``most`` seconds, or for ever."""
        moment = clock.elapsed()
        until = float("inf") if most is None else moment + most
        with self._lock:
            self._messages[token] = _Kept(queue, member, seconds, moment + seconds / 4, until)

    def drop_message(self, token: str) -> None:
        """An ordinary message that is over."""
        with self._lock:
            self._messages.pop(token, None)

    def messages_to_renew(self, moment: float) -> list[tuple[str, str, str, float]]:
        """(queue, member, token, seconds) of the messages whose renewal is due, a quarter of their lease after the
        last."""
        due = []
        with self._lock:
            for token, kept in self._messages.items():
                if kept.renew_at <= moment < kept.until:
                    self._messages[token] = kept._replace(renew_at=moment + kept.seconds / 4)
                    due.append((kept.queue, kept.member, token, kept.seconds))
        return due
