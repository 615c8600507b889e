"""What happened, in a file that the system does not know: one line for each fact.

Processes under torture hand their facts to the collector through a pipe. A pipe has no disk that could be full, and
what was written to it stays there when its writer is killed.
"""

from __future__ import annotations

import json
import os
import select
import threading
import time
from pathlib import Path
from typing import Any

END = "collected"
#: Seconds that the collector may take to read what is in the pipe.
PATIENCE = 10.0


def note(kind: str, **fields: Any) -> None:
    """Hand over a fact with this moment (CLOCK_MONOTONIC, the same in every process of a machine)."""
    line = json.dumps({"kind": kind, "at": time.monotonic(), **fields}) + "\n"
    descriptor = os.open(os.environ["TORTURE_LEDGER"], os.O_WRONLY)
    try:
        assert os.write(descriptor, line.encode()) <= select.PIPE_BUF  # then lines of several processes don't mix
    finally:
        os.close(descriptor)


class Collector:
    """Reads the pipe in a thread, and knows every fact so far."""

    def __init__(self, pipe: Path) -> None:
        self.facts: list[dict[str, Any]] = []
        os.mkfifo(pipe, 0o600)
        self._descriptor = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)  # never without a writer, so never at its end
        os.environ["TORTURE_LEDGER"] = str(pipe)
        self._closed = threading.Event()
        self._whole = threading.Event()
        self._thread = threading.Thread(target=self._read, name="torture-ledger")
        self._thread.start()

    def settle(self) -> list[dict[str, Any]]:
        """Every fact handed over before this call."""
        self._whole.clear()
        note(END)
        if not self._whole.wait(PATIENCE):
            raise RuntimeError("the ledger was not read in time")
        return list(self.facts)

    def close(self) -> None:
        """Ends the thread."""
        self._closed.set()
        self._thread.join(PATIENCE)
        os.close(self._descriptor)

    def _read(self) -> None:
        rest = b""
        while not self._closed.is_set():
            if not select.select([self._descriptor], [], [], 0.1)[0]:
                continue
            *lines, rest = (rest + os.read(self._descriptor, 65_536)).split(b"\n")
            for line in lines:
                fact = json.loads(line)
                if fact["kind"] == END:
                    self._whole.set()
                else:
                    self.facts.append(fact)
