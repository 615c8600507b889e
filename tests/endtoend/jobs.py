"""Job types for the end-to-end tests; each run leaves a line in the ledger, a file outside of the system."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import dramatiq

from dramaturg import Again, Done, Fail, Outcome, Park, Payload, Retry, Run, Tick, broker, cron, job


def note(*words: object) -> None:
    line = " ".join(map(str, words)) + "\n"
    with open(os.environ["LEDGER"], "a") as ledger:  # O_APPEND: lines of several processes don't mix
        ledger.write(line)


def gate(name: str) -> Path:
    return Path(os.environ["LEDGER"]).parent / name


def wait_for_gate(name: str, run: Run | None = None) -> None:
    while not gate(name).exists():
        if run is not None:
            run.sleep(0.02)
        else:
            time.sleep(0.02)


class Thing(Payload):
    thing: str
    value: int = 0


@job("test.plain", payload=Thing)
def plain(thing: Thing, run: Run) -> Outcome | None:
    note("plain", thing.thing, thing.value, run.attempt)
    return None


@job("test.keyed", payload=Thing, key="{thing}")
def keyed(thing: Thing, run: Run) -> Outcome | None:
    note("keyed", thing.thing, thing.value, run.attempt)
    return Done({"value": thing.value})


@job("test.gated", payload=Thing, key="{thing}", backoff_first=0.05, backoff_cap=0.1)
def gated(thing: Thing, run: Run) -> Outcome | None:
    """Waits at a gate that the test opens, checking as it waits."""
    note("begin", thing.thing, thing.value, run.attempt)
    wait_for_gate(thing.thing, run)
    note("end", thing.thing, thing.value, run.attempt)
    return None


@job("test.deaf", payload=Thing, key="{thing}", backoff_first=0.05, backoff_cap=0.1, keep_finished=False)
def deaf(thing: Thing, run: Run) -> Outcome | None:
    """As ``test.gated``, but never checks; finished rows are not kept."""
    note("begin", thing.thing, thing.value, run.attempt)
    wait_for_gate(thing.thing)
    note("end", thing.thing, thing.value, run.attempt)
    return None


@job("test.interrupted", payload=Thing, key="{thing}", interrupt=True)
def interrupted(thing: Thing, run: Run) -> Outcome | None:
    note("begin", thing.thing)
    try:
        wait_for_gate(thing.thing)
    except BaseException as error:
        note("stopped", thing.thing, type(error).__name__)
        raise
    return None


@job("test.failing", payload=Thing, key="{thing}", backoff_first=0.05, backoff_cap=0.1)
def failing(thing: Thing, run: Run) -> Outcome | None:
    """Fails ``value`` times with a text full of secrets, then succeeds."""
    note("try", thing.thing, run.attempt, run.retries)
    if run.retries < thing.value:
        raise ValueError("hunter2 <img src=x onerror=alert(1)>")
    return None


@job("test.outcomes", payload=Thing, key="{thing}", max_retries=0)
def outcomes(thing: Thing, run: Run) -> Outcome | None:
    note("outcome", thing.thing, run.attempt, run.checkpoint, run.woken)
    match thing.thing:
        case "again" if run.checkpoint != 2:
            return Again(checkpoint=(run.checkpoint or 0) + 1)
        case "park":
            return Park(checkpoint={"parked": True})
        case "fail":
            return Fail("no_such_thing")
        case "retry":
            return Retry("not_yet")
        case "nan":
            return Done({"good": 1, "bad": float("nan")})
        case "deep":
            value: list[object] = []
            for _ in range(10_000):
                value = [value]
            return Done(value)
        case "nonsense":
            return "nonsense"  # type: ignore[return-value]
    return Done()


@job("test.loose")
def loose(payload: object, run: Run) -> Outcome | None:
    """Looks at nothing that it is given: it would run for anybody who could call it."""
    note("loose")
    return None


@job("test.async", payload=Thing, key="{thing}")
async def asynchronous(thing: Thing, run: Run) -> Outcome | None:
    await asyncio.sleep(0.01)
    note("async", thing.thing)
    return Done("async")


@job("test.progress", payload=Thing, key="{thing}")
def progressing(thing: Thing, run: Run) -> Outcome | None:
    for number in range(10_000):
        run.progress(number // 200, f"step {number}")
    note("progressed", thing.thing)
    wait_for_gate(thing.thing, run)
    return None


@job("test.atomic", payload=Thing, key="{thing}")
def atomic(thing: Thing, run: Run) -> Outcome | None:
    """Its effect is a row, written together with its finish; what comes afterwards counts for nothing."""
    note("begin", thing.thing)
    if thing.value:
        wait_for_gate(thing.thing)
    with run.transaction(Done("once")) as tx:
        tx.execute(f"INSERT INTO effect (name) VALUES ('{thing.thing}')")
    raise ValueError("hunter2")


@job("test.ticking", periodic=cron("* * * * *"))
def ticking(tick: Tick, run: Run) -> Outcome | None:
    note("tick", tick.tick)
    return None


@dramatiq.actor(broker=broker())
def ordinary(word: str) -> None:
    note("ordinary", word)


@dramatiq.actor(broker=broker(), max_retries=0)
def ordinary_failing(word: str) -> None:
    note("ordinary_failing", word)
    raise ValueError("hunter2")


@dramatiq.actor(broker=broker(), max_retries=2, min_backoff=1, max_backoff=5)
def ordinary_retried(word: str) -> None:
    note("ordinary_retried", word)
    raise ValueError("hunter2")
