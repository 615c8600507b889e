"""A program that owns an engine, for tests that kill owners.

``python -m tests.engines.owner_program KIND HOME MANNER`` writes one line of JSON once its engine runs, and then does
what its manner says until its input ends.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
import threading
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING

from store.engines.valkey import Valkey, shared_valkey

if TYPE_CHECKING:
    from store.engines.postgres import Postgres


def make(kind: str, home: Path) -> Valkey | Postgres:
    if kind == "valkey":
        return Valkey(home)
    from store.engines.postgres import Postgres  # the driver takes a while to load, and most tests are of Valkey

    return Postgres(home, settings={"fsync": "off"})


def say(**facts: object) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


def until_input_ends() -> None:
    sys.stdin.read()


def child(engine: Valkey | Postgres, ready: Connection) -> None:
    """A forked copy of the owner: it inherited every open file and object, and owns nothing."""
    engine.stop()
    ready.send(True)
    signal.pause()


def forked(engine: Valkey | Postgres) -> None:
    engine.start()
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=child, args=(engine, there), daemon=True)
    process.start()
    here.recv()
    say(engine=engine.pid, child=process.pid, running=engine.running)
    until_input_ends()


def threaded(engine: Valkey | Postgres) -> None:
    starter = threading.Thread(target=engine.start)
    starter.start()
    starter.join()
    say(engine=engine.pid)
    until_input_ends()


def replaced(engine: Valkey | Postgres) -> None:
    """As Dramatiq's main process does on SIGHUP: the same process goes on as another program."""
    engine.start()
    say(engine=engine.pid)
    sys.stdin.readline()
    os.execv("/bin/sleep", ["sleep", "60"])


def plain(engine: Valkey | Postgres) -> None:
    engine.start()
    say(engine=engine.pid)
    until_input_ends()


def patient(engine: Valkey | Postgres) -> None:
    """Notices signals and goes on; stops its engine when its input ends."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: say(heard=number))
    plain(engine)
    engine.stop()
    say(stopped=True)


def shared(home: Path) -> None:
    say(ready=True)
    sys.stdin.readline()
    valkey = shared_valkey(home)
    say(url=valkey.url, owner=valkey.engine is not None)
    sys.stdin.readline()
    valkey.end()
    say(ended=True)
    until_input_ends()


def main() -> None:
    kind, home, manner = sys.argv[1:]
    if manner == "shared":
        shared(Path(home))
    else:
        manners = {"plain": plain, "forked": forked, "threaded": threaded, "replaced": replaced, "patient": patient}
        manners[manner](make(kind, Path(home)))
    sys.stdout.flush()
    os._exit(0)  # with nothing stopped: not even what Python does at a normal exit


if __name__ == "__main__":
    main()
