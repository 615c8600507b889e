"""What holds of every test: it leaves no thread behind, and those that take long go first."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator

import pytest

pytest_plugins = ["tests.engines_fixtures"]

# A shell that starts this in the background has it ignore interrupts, and every program that a test starts would too.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

#: Seconds that a thread may take to end once its owner was told to.
FAREWELL = 5.0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What is marked ``early`` begins before the rest, so that nobody waits for it alone at the end."""
    items.sort(key=lambda item: item.get_closest_marker("early") is None)


@pytest.fixture(autouse=True)
def _no_thread_is_left_behind() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    deadline = time.monotonic() + FAREWELL
    for thread in set(threading.enumerate()) - before:
        thread.join(max(0.0, deadline - time.monotonic()))
        assert not thread.is_alive(), f"the test left the thread {thread.name!r} running"
