"""Job types that fail in every way that could carry an error's text out of a worker."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from typing import Any

import structlog
from dramatiq.middleware import Middleware

from dramaturg import Done, Fail, Outcome, Payload, Retry, Run, broker, job

#: A secret, markup, a terminal's escape, U+0000 and a megabyte. Spelled by the environment, so that no file holds it.
SECRET = os.environ["SECRET"]
TEXT = f"{SECRET} <img src=x onerror={SECRET}> \x1b[31m\x00 \ud800 " + SECRET * 20_000


class Leak(Exception):
    """An error whose every part speaks."""

    def __init__(self) -> None:
        super().__init__(TEXT, {"password": SECRET})
        self.add_note(TEXT)
        self.detail = TEXT

    def __repr__(self) -> str:
        return f"Leak({TEXT})"


class Unsayable:
    """What fails when it is turned into text."""

    def __str__(self) -> str:
        raise Leak

    __repr__ = __str__


class Numbers(Payload):
    numbers: dict[str, int]


def leak() -> None:
    try:
        raise KeyError(TEXT)
    except KeyError as error:
        raise Leak from error


@job("leak.sync", payload=Payload, key="sync")
def sync(_: Payload, run: Run) -> None:
    run.count("tried")
    leak()


@job("leak.coroutine", payload=Payload, key="coroutine")
async def coroutine(_: Payload, run: Run) -> None:
    async def forgotten() -> None:
        leak()

    task = asyncio.get_running_loop().create_task(forgotten())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    del task
    leak()


@job("leak.group", payload=Payload, key="group")
def group(_: Payload, run: Run) -> None:
    raise ExceptionGroup(TEXT, [Leak(), ValueError(TEXT)])


@job("leak.base", payload=Payload, key="base")
def base(_: Payload, run: Run) -> None:
    raise SystemExit(TEXT)


@job("leak.class", payload=Payload, key="class")
def made_class(_: Payload, run: Run) -> None:
    raise type("Odd\x1b<b>", (Exception,), {})(TEXT)


@job("leak.answer", payload=Payload, key="answer")
def answer(_: Payload, run: Run) -> Any:
    return type("Odd\x1b<b>", (), {"__repr__": lambda self: TEXT})()


@job("leak.result", payload=Payload, key="result")
def result(_: Payload, run: Run) -> Outcome:
    return Done({"a": TEXT})


@job("leak.verbs", payload=Payload, key="verbs")
def verbs(_: Payload, run: Run) -> Any:
    for call in (
        lambda: Fail(TEXT),
        lambda: Retry(SECRET + " " + SECRET),
        lambda: run.count(TEXT),
        lambda: run.progress(5, TEXT),
        lambda: run.progress(TEXT),  # type: ignore[arg-type]
        lambda: run.attach(TEXT, b""),
        lambda: run.log(TEXT),
        lambda: numbers.send(numbers={SECRET: TEXT}),
        lambda: numbers.send(**{SECRET: 1}),
        lambda: numbers.send_with_options(kwargs={"numbers": {}}, key=TEXT),
        lambda: numbers.send_with_options(kwargs={"numbers": {}}, queue=SECRET + " x"),
    ):
        try:
            call()
        except Exception as error:
            structlog.get_logger("app").error("refused", error=error)
            last = error
    raise last


@job("leak.wake", payload=Payload, key="wake")
def wake(_: Payload, run: Run) -> None:
    numbers.send(numbers={SECRET: TEXT})


@job("leak.logged", payload=Payload, key="logged")
def logged(_: Payload, run: Run) -> None:
    def die() -> None:
        leak()

    thread = threading.Thread(target=die, name="dying")
    thread.start()
    thread.join()
    try:
        leak()
    except Leak as error:
        logging.getLogger("app").exception("it failed: %s", error)
        logging.getLogger("urllib3").warning("retrying %(why)s", {"why": error})
        logging.getLogger("app").exception(f"it failed: {error} and {error!r}")
        logging.getLogger("app").error(error)
        logging.getLogger("app").error("odd %s", Unsayable())
        logging.getLogger("app").error("odd %d", error)
        structlog.get_logger("app").error("odd", value=Unsayable())
        structlog.get_logger("app").exception("it failed", cause=error, causes=[error, {"e": error}])
    raise RuntimeError(TEXT)


@job("leak.hook", payload=Payload, key="hook")
def hook(_: Payload, run: Run) -> None:
    """Its hooks speak: see below."""


@job("leak.store", payload=Payload, key="store")
def store(_: Payload, run: Run) -> None:
    with run.transaction() as tx:
        tx.execute(f"SELECT '{SECRET}' FROM {SECRET.replace('-', '_')}")


@job("test.numbers", payload=Numbers)
def numbers(_: Numbers, run: Run) -> None:
    """Never reached: what it is sent does not fit."""


class Speaking(Middleware):
    """Another's middleware, which fails at one job and is told of all failures."""

    def before_process_message(self, broker: Any, message: Any) -> None:
        if message.actor_name == "leak.hook":
            leak()

    def after_process_message(
        self, broker: Any, message: Any, *, result: Any = None, exception: BaseException | None = None
    ) -> None:
        if message.actor_name == "leak.hook":
            leak()
        if exception is not None:
            logging.getLogger("watcher").error("seen %r", exception, exc_info=exception)


broker().add_middleware(Speaking())
