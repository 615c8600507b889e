"""The owner's side of an engine: hand an order to a keeper, hear whether the engine started, end it.

Nothing here depends on the thread that calls, and no Python runs between fork and exec in the owner, so it is safe in a
program with many threads. A forked copy of the owner owns nothing: there, ``stop`` and ``kill`` do nothing.
"""

from __future__ import annotations

import errno
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable

from store.clock import elapsed
from store.engines import keeper
from store.engines.keeper import Order, Report
from store.errors import EngineFailed

PREPARATION_TIME = 90.0  # seconds that a new data directory may take on a slow disk
SLACK = 5.0  # seconds beyond what was asked of a keeper before it counts as hung
LARGEST_REPORT = 4096  # bytes
READY_POLL = 0.01  # seconds between two looks at whether a server is ready

STEPS = {
    "lock": "its lock file {lock} can't be opened ({why}): choose a home (JOBS_HOME) that this user can write to",
    "log": "its log {log} can't be opened ({why}): choose a home (JOBS_HOME) that this user can write to",
    "prepare": "its data directory {creates} could not be made ({why}): see {log}",
    "clean": "a stale pid file beside its data can't be removed ({why}): remove it once no such server runs",
    "start": "{program} can't be run ({why}): install this project's dependencies again",
}


class Engine:
    """A started engine; ``pid`` is the server's own."""

    def __init__(self, name: str, pid: int, process: subprocess.Popen[bytes], order: Order) -> None:
        self.pid = pid
        self.log = order["log"]
        self._name = name
        self._process = process
        self._patience = sum(seconds for _, seconds in order["farewell"]) + SLACK

    @property
    def running(self) -> bool:
        """Whether the server lives; always False in a forked copy of the owner."""
        return self._process.poll() is None

    def stop(self) -> None:
        """Ends the server in its own way and returns when it is gone; repeating it does nothing. EngineFailed if not
        even SIGKILL ended it in time."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Ends the server with SIGKILL, as a crash would, and returns when it is gone."""
        self._end(signal.SIGUSR1)

    def _end(self, how: signal.Signals) -> None:
        # To the keeper; nothing is sent once it has ended, nor by a forked copy of us, whose child it is not.
        self._process.send_signal(how)
        try:
            self._process.wait(self._patience)
        except subprocess.TimeoutExpired as error:
            dismiss(self._process)
            raise EngineFailed(
                f"{self._name} (process {self.pid}) did not end within {self._patience:.0f} s: see {self.log}"
            ) from error
        dismiss(self._process)


def launch(order: Order, name: str) -> Engine | None:
    """Starts what ``order`` says; None if its lock is held by another. EngineFailed, with what to do, if it can't."""
    if not sys.executable:
        raise EngineFailed(f"{name} can't be started: this Python doesn't say where its program is (sys.executable)")
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", keeper.__file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        bufsize=0,
        cwd="/",
        start_new_session=True,  # a Ctrl-C at the terminal is the owner's to act on
    )
    try:
        said = _converse(process, order, name)
    except BaseException:
        dismiss(process)
        raise
    if "pid" in said:
        return Engine(name, said["pid"], process, order)
    dismiss(process)
    if "held" in said:
        return None
    step = said["step"]
    why = f"exit code {said['exit_code']}" if "exit_code" in said else error_name(said["errno"])
    creates = order["preparation"]["creates"] if order["preparation"] else ""
    text = STEPS[step].format(lock=order["lock"], log=order["log"], program=order["argv"][0], creates=creates, why=why)
    raise EngineFailed(f"{name} can't be started: {text}")


def await_ready(engine: Engine, name: str, ready: Callable[[], bool], seconds: float) -> None:
    """Returns once ``ready()``; else ends the engine and raises EngineFailed."""
    deadline = elapsed() + seconds
    try:
        while not ready():
            if not engine.running:
                raise EngineFailed(f"{name} ended while it was starting: see {engine.log}")
            if elapsed() > deadline:
                raise EngineFailed(f"{name} was not ready within {seconds:.0f} s: see {engine.log}")
            time.sleep(READY_POLL)
    except BaseException:
        engine.stop()
        raise


def error_name(number: int | None) -> str:
    """``EACCES`` for 13 and so on: what may be said of a foreign OSError."""
    return errno.errorcode.get(number or 0, "unknown error")


def dismiss(process: subprocess.Popen[bytes]) -> None:
    """Lets go of a keeper, which ends whatever it had started."""
    process.terminate()  # a forked child of ours may hold the other end of its input open
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
    try:
        process.wait(SLACK)
    except subprocess.TimeoutExpired:
        process.kill()  # the kernel then ends the engine
        process.wait(SLACK)


def _converse(process: subprocess.Popen[bytes], order: Order, name: str) -> Report:
    assert process.stdin is not None
    assert process.stdout is not None
    deadline = elapsed() + order["lock_wait"] + SLACK + (PREPARATION_TIME if order["preparation"] else 0.0)
    try:
        process.stdin.write(json.dumps(order).encode() + b"\n")
    except BrokenPipeError as error:
        raise EngineFailed(f"{name} can't be started: its keeper ended (exit code {process.wait(SLACK)})") from error
    answers = select.poll()
    answers.register(process.stdout, select.POLLIN)
    line = b""
    while not line.endswith(b"\n"):
        if not answers.poll(max(0.0, deadline - elapsed()) * 1000):
            raise EngineFailed(f"{name} can't be started: its keeper did not answer in time; see {order['log']}")
        piece = os.read(process.stdout.fileno(), LARGEST_REPORT)
        if not piece:
            code = process.wait(SLACK)
            raise EngineFailed(f"{name} can't be started: its keeper ended (exit code {code}); see {order['log']}")
        line += piece
    said: Report = json.loads(line)
    return said
