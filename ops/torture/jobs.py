"""The job types under torture. ``number`` grows with every wake, so a run tells which wakes it came after."""

from __future__ import annotations

import os
import time

import dramatiq

from dramaturg import Again, Fail, Outcome, Payload, Retry, Run, Tick, broker, cron, job
from middleware.broker import SCHEDULER_ACTOR
from ops.torture.ledger import note

#: Seconds for which a deaf run neither checks nor sleeps in a way that could be interrupted.
DEAF = 0.6


class Watch(dramatiq.Middleware):
    """Tells which process has a shift of the scheduler in hand."""

    def before_process_message(self, broker: dramatiq.Broker, message: dramatiq.MessageProxy) -> None:
        """A shift begins."""
        if message.actor_name == SCHEDULER_ACTOR:
            note("shift", pid=os.getpid())


broker().add_middleware(Watch())


class Numbered(Payload):
    """``thing`` is the resource; ``number`` is that of the wake which the row's payload comes from."""

    thing: str
    number: int


def _begin(kind: str, number: int, run: Run, **more: object) -> dict[str, object]:
    facts = {"id": run.id, "type": kind, "number": number, "attempt": run.attempt}
    note("begin", **facts, pid=os.getpid(), **more)
    return facts


def _ran(kind: str, numbered: Numbered, run: Run, outcome: Outcome | None = None) -> Outcome | None:
    facts = _begin(kind, numbered.number, run)
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


@job("torture.fleeting", payload=Numbered, key="{thing}", backoff_first=0.2, backoff_cap=1, keep_finished=False)
def fleeting(numbered: Numbered, run: Run) -> Outcome | None:
    """Its row goes with its success, and may be made again while an old run still believes in itself."""
    return _ran("fleeting", numbered, run)


@job("torture.retried", payload=Numbered, key="{thing}", backoff_first=0.2, backoff_cap=1)
def retried(numbered: Numbered, run: Run) -> Outcome | None:
    """Fails once."""
    return _ran("retried", numbered, run, Retry("not_yet") if run.retries == 0 else None)


@job("torture.failed", payload=Numbered, backoff_first=0.2, backoff_cap=1)
def failed(numbered: Numbered, run: Run) -> Outcome | None:
    """Fails for good."""
    return _ran("failed", numbered, run, Fail("never"))


@job("torture.again", payload=Numbered, key="{thing}", backoff_first=0.2, backoff_cap=1)
def again(numbered: Numbered, run: Run) -> Outcome | None:
    """Three steps by checkpoint."""
    step = run.checkpoint or 0
    return _ran("again", numbered, run, Again(seconds=0.1, checkpoint=step + 1) if step < 2 else None)


@job("torture.deaf", payload=Numbered, backoff_first=0.2, backoff_cap=1)
def deaf(numbered: Numbered, run: Run) -> Outcome | None:
    """Hears of nothing while it works: frozen for longer than its lease, it goes on and reports."""
    facts = _begin("deaf", numbered.number, run)
    time.sleep(DEAF)
    note("end", **facts, outcome="None")
    return None


@job("torture.effect", payload=Numbered, backoff_first=0.2, backoff_cap=1)
def effect(numbered: Numbered, run: Run) -> Outcome | None:
    """Its effect, a row of another job, commits together with its own end: exactly one, however often it runs."""
    facts = _begin("effect", numbered.number, run)
    run.sleep(0.02)
    with run.transaction() as tx:
        tx.wake([child.request(kwargs={"thing": run.id, "number": numbered.number})])
    note("end", **facts, outcome="None")
    return None


@job("torture.child", payload=Numbered, backoff_first=0.2, backoff_cap=1)
def child(numbered: Numbered, run: Run) -> Outcome | None:
    """The effect of ``effect``; ``thing`` is the id of the job that it is the effect of."""
    facts = _begin("child", numbered.number, run, parent=numbered.thing)
    note("end", **facts, outcome="None")
    return None


@job("torture.recurring", payload=Tick, periodic=cron("* * * * *"), catch_up="all", backoff_first=0.2, backoff_cap=1)
def recurring(tick: Tick, run: Run) -> Outcome | None:
    """One run for each minute at least."""
    number = -1 if tick.tick is None else int(tick.tick.timestamp()) // 60
    facts = _begin("recurring", number, run)
    note("end", **facts, outcome="None")
    return None


@job("torture.swift", payload=Numbered, keep_finished=False)
def swift(numbered: Numbered, run: Run) -> Outcome | None:
    """For the soak: nothing of it stays."""
    return None


@job("torture.kept", payload=Numbered)
def kept(numbered: Numbered, run: Run) -> Outcome | None:
    """For the soak: its row stays until it is pruned."""
    return None
