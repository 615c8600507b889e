"""What our consumers hand to Dramatiq's workers, and the queue in which it waits for one."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from queue import Empty
from typing import Any

from dramatiq import Message, MessageProxy

from middleware.holding import Holding
from store import clock


class Delivery(MessageProxy):
    """An ordinary message under its lease in Valkey."""

    def __init__(self, message: Message[object], member: str, token: str, over: Callable[[], None]) -> None:
        super().__init__(message)
        self.member = member
        self.token = token
        self.taken = clock.elapsed()
        self._over: Callable[[], None] | None = over

    def end(self) -> None:
        """It is out of this process' hands; said more than once, it counts once."""
        over, self._over = self._over, None
        if over is not None:
            over()

    def clear_exception(self) -> None:
        """The last thing that a worker thread does with a delivery, whatever middleware did before."""
        super().clear_exception()
        self.end()


class JobDelivery(MessageProxy):
    """A claimed row, dressed as a message without arguments: the row holds all there is to know.

    The message itself is made only for whoever asks for it; a worker's own way needs no more than its names.
    """

    args: tuple[Any, ...] = ()
    failed = False
    _exception: BaseException | None = None

    def __init__(self, holding: Holding, queue: str, over: Callable[[], None]) -> None:
        self.holding = holding
        self.taken = holding.claimed
        self.queue_name = queue
        self.actor_name = holding.job.job_type
        self.message_id = holding.job.id
        self.kwargs: dict[str, Any] = {}
        self.options: dict[str, Any] = {}
        self._over: Callable[[], None] | None = over

    def end(self) -> None:
        """As ``Delivery.end``."""
        over, self._over = self._over, None
        if over is not None:
            over()

    def clear_exception(self) -> None:
        """As ``Delivery.clear_exception``."""
        self._exception = None
        self.end()

    @cached_property
    def message_timestamp(self) -> int:  # type: ignore[override]
        """When the run had become due, in ms since 1970: what third-party middleware measures latency from."""
        return clock.micros(self.holding.job.due_at or self.holding.job.updated_at) // 1000

    @cached_property
    def _message(self) -> Message[object]:  # type: ignore[override]
        return Message(
            self.queue_name, self.actor_name, (), self.kwargs, self.options, self.message_id, self.message_timestamp
        )


class Lane:
    """A worker's queue: first in, first out.

    Valkey hands work over in the order of its urgency, and little of it is in hand at a time, so sorting it once more
    (which is what Dramatiq's own queue does at each step) would cost more than the rest of a hand-over.
    """

    def __init__(self) -> None:
        # Not queue.SimpleQueue: a thread was seen that waited in its ``get`` long after the timeout.
        self._items: deque[Any] = deque()
        self._changed = threading.Condition()
        self._settled = threading.Condition()
        self.unfinished_tasks = 0

    def put(self, item: Any) -> None:
        """Add an item."""
        with self._settled:
            self.unfinished_tasks += 1
        self._add(item)

    def get(self, timeout: float | None = None) -> Any:
        """The next item; raises queue.Empty after ``timeout`` seconds."""
        with self._changed:
            if not self._items and not self._changed.wait_for(lambda: self._items, timeout):
                raise Empty
            return self._items.popleft()

    def get_nowait(self) -> Any:
        """The next item; raises queue.Empty if there is none."""
        try:
            return self._items.popleft()
        except IndexError:
            raise Empty from None

    def empty(self) -> bool:
        """Whether nothing waits."""
        return not self._items

    def _add(self, item: Any) -> None:
        with self._changed:
            self._items.append(item)
            self._changed.notify()

    def take_out(self, wanted: Callable[[Any], bool]) -> list[Any]:
        """Items that wait and are ``wanted``, taken out; the others keep their order. Workers may go on meanwhile."""
        out, back = [], []
        try:
            with suppress(Empty):
                while True:
                    back.append(self.get_nowait())
                    if wanted(back[-1]):
                        out.append(back.pop())
        finally:
            for item in back:
                self._add(item)
        return out

    def task_done(self) -> None:
        """An item that was taken is over."""
        with self._settled:
            self.unfinished_tasks -= 1
            if not self.unfinished_tasks:
                self._settled.notify_all()

    def join(self) -> None:
        """Wait until every item is over."""
        with self._settled:
            self._settled.wait_for(lambda: not self.unfinished_tasks)
