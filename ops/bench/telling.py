"""What all systems under measurement share: how fast senders go, and the moment at which a run began, told to whoever
measures latency."""

from __future__ import annotations

import os
import socket
import time

#: Seconds between two sends when latency is measured: the system is idle in between.
PACE = 0.02

#: Wakes in one transaction.
LOT = 1_000

_SOCKET = os.environ.get("BENCH_SOCKET", "")
_sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)


def tell(number: int) -> None:
    """Send ``number`` and this moment (CLOCK_MONOTONIC, the same in every process of a machine)."""
    _sender.sendto(f"{number} {time.monotonic_ns()}".encode(), _SOCKET)
