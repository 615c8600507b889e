"""What happened, in a file that the system does not know: one line for each fact, appended whole."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any


def note(kind: str, **fields: Any) -> None:
    """Append a fact with this moment (CLOCK_MONOTONIC, the same in every process of a machine)."""
    line = json.dumps({"kind": kind, "at": time.monotonic(), **fields}) + "\n"
    descriptor = os.open(os.environ["TORTURE_LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, line.encode())  # one write: lines of several processes don't mix
    finally:
        os.close(descriptor)


def facts(path: Path) -> list[dict[str, Any]]:
    """Every whole line; the last one may still be on its way."""
    whole = path.read_text().rpartition("\n")[0]
    return [json.loads(line) for line in whole.splitlines()]
