"""The job types under torture. ``number`` grows with every wake, so a run tells which wakes it came after."""

from __future__ import annotations

from dramaturg import Again, Outcome, Payload, Retry, Run, job
from ops.torture.ledger import note


class Numbered(Payload):
    """``thing`` is the resource; ``number`` is that of the wake which the row's payload comes from."""

    thing: str
    number: int


def _ran(kind: str, numbered: Numbered, run: Run, outcome: Outcome | None = None) -> Outcome | None:
    facts = {"id": run.id, "type": kind, "number": numbered.number, "attempt": run.attempt}
    note("begin", **facts)
    run.sleep(0.02 if numbered.number % 50 else 1.5)
    note("end", **facts, outcome=type(outcome).__name__)
    return outcome


@job("torture.plain", payload=Numbered, backoff_first=0.2, backoff_cap=1)
def plain(numbered: Numbered, run: Run) -> Outcome | None:
    """A row for each wake."""
    return _ran("plain", numbered, run)


@job("torture.keyed", payload=Numbered, key="{thing}", backoff_first=0.2, backoff_cap=1)
def keyed(numbered: Numbered, run: Run) -> Outcome | None:
    """Many wakes, one row."""
    return _ran("keyed", numbered, run)


@job("torture.retried", payload=Numbered, key="{thing}", backoff_first=0.2, backoff_cap=1)
def retried(numbered: Numbered, run: Run) -> Outcome | None:
    """Fails once."""
    return _ran("retried", numbered, run, Retry("not_yet") if run.retries == 0 else None)


@job("torture.again", payload=Numbered, key="{thing}", backoff_first=0.2, backoff_cap=1)
def again(numbered: Numbered, run: Run) -> Outcome | None:
    """Three steps by checkpoint."""
    step = run.checkpoint or 0
    return _ran("again", numbered, run, Again(seconds=0.1, checkpoint=step + 1) if step < 2 else None)
