"""The process between an owner and its engine: it ends the engine when the owner has gone, however the owner went.

``launch.py`` runs this file as a program of its own (``python -I -S keeper.py``), so it knows the standard library
only. Its standard input carries one line of JSON, the ``Order``, and then stays open for as long as the owner lives.
Its standard output carries one line of JSON back, the ``Report``, and is closed after it.

The owner is gone when the input ends **or** when our parent is no longer the owner. The second is needed because a
forked child of the owner inherits the other end of the pipe and would keep it open; the first is there because it
tells at once. Should the keeper itself be killed, the kernel ends the engine (``PR_SET_PDEATHSIG``: bound to the thread
that forked, which here is the only one). An engine's lock is inherited by the engine and all its children: as long as
any of them lives, nobody else can start on the same files.

Signals: SIGTERM, SIGINT and SIGHUP end the engine in its own way, once, however often they come; SIGUSR1 kills it.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import select
import signal
import sys
import time
from typing import TypedDict

OWNER_CHECK = 0.5  # seconds between two looks at who our parent is
LOCK_POLL = 0.01  # seconds between two tries to take the lock
PR_SET_PDEATHSIG = 1


class Preparation(TypedDict):
    """A command that makes a directory, run only where that directory is missing; it appears whole or not at all."""

    argv: list[str]  # its last argument is the directory to fill, which exists, is empty and is not yet ``creates``
    creates: str


class Order(TypedDict):
    """What to start and how to end it. Paths are absolute, times are seconds."""

    owner: int  # the pid that must be our parent
    lock: str
    lock_wait: float
    log: str  # the one before is kept as ``<log>.1``
    account: tuple[int, int] | None  # uid and gid of the engine; None: ours
    env: dict[str, str]
    preparation: Preparation | None
    pid_files: list[str]  # left by a killed engine; removed unless their process lives and works in ``cwd``
    cwd: str
    argv: list[str]
    text: str  # the engine's standard input, up to 32 KiB
    farewell: list[tuple[int, float]]  # signals that end the engine, with the time that each of them is given
    orphan_signal: int  # what the kernel sends the engine when the keeper is killed


class Report(TypedDict, total=False):
    """``pid`` of the started engine, or ``held`` (the lock is another's), or the ``step`` that failed and how."""

    pid: int
    held: bool
    step: str
    errno: int
    exit_code: int


class Watch:
    """What the keeper has been told so far: ``stopping`` once the engine must end, ``killing`` for the hard way."""

    def __init__(self) -> None:
        self.stopping = False
        self.killing = False
        self.owner: int | None = None
        self._input_open = True
        self._bell, write_end = os.pipe()
        os.set_blocking(self._bell, False)
        os.set_blocking(write_end, False)
        signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD, signal.SIGUSR1):
            signal.signal(number, lambda *_: None)  # the wake-up pipe tells; an ignored signal would not ring it
        # Whoever started us may have had signals blocked, and a mask outlives exec.
        signal.pthread_sigmask(signal.SIG_SETMASK, [])

    def pause(self, seconds: float) -> None:
        """Returns at the first news, after ``seconds``, or when it is time to look for the owner."""
        sources = [self._bell, 0] if self._input_open else [self._bell]
        ready, _, _ = select.select(sources, [], [], max(0.0, min(seconds, OWNER_CHECK)))
        if 0 in ready and not os.read(0, 4096):
            self._input_open = False
            self.stopping = True
        if self._bell in ready:
            for number in os.read(self._bell, 4096):
                if number == signal.SIGUSR1:
                    self.killing = True
                elif number != signal.SIGCHLD:
                    self.stopping = True
        if os.getppid() != self.owner:
            self.stopping = True


def read_order() -> Order | None:
    """The first line of the input; None if the owner went before it was whole."""
    line = b""
    while not line.endswith(b"\n"):
        piece = os.read(0, 65536)
        if not piece:
            return None
        line += piece
    order: Order = json.loads(line)
    return order


def take_lock(path: str, wait: float, watch: Watch) -> int | None:
    """The locked file, or None if another still held it after ``wait`` seconds."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    deadline = time.monotonic() + wait
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if watch.stopping or time.monotonic() >= deadline:
                return None
            watch.pause(LOCK_POLL)
        else:
            os.set_inheritable(lock, True)
            return lock


def open_log(path: str) -> int:
    """A new log; the one before moves aside, so that there are never more than two."""
    with contextlib.suppress(FileNotFoundError):
        os.replace(path, path + ".1")
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def drop_stale(pid_file: str, cwd: str) -> None:
    """Removes a pid file that a killed engine left.

    The lock proves that no engine of ours lives; but the number may have been given to any process since, and then
    Postgres would refuse to start. One that works in ``cwd`` was started by someone without us, and keeps its file.
    """
    if not os.path.isdir("/proc/self"):
        return
    try:
        with open(pid_file, encoding="utf-8") as lines:
            pid = int(lines.readline())
    except (FileNotFoundError, ValueError):
        return
    try:
        lives = os.path.samefile(f"/proc/{pid}/cwd", cwd)
    except FileNotFoundError:
        lives = False
    except PermissionError:
        lives = True
    if not lives:
        os.unlink(pid_file)


def become_engine(order: Order, argv: list[str], keeper: int) -> None:
    """In the forked child: from here to the engine's first instruction. Raises OSError, or does not return."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD, signal.SIGUSR1, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    if order["account"] is not None:
        uid, gid = order["account"]
        os.setgroups([])
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    if sys.platform == "linux":
        # After the change of user, which would clear it. Where it isn't to be had, the keeper alone must do.
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, order["orphan_signal"], 0, 0, 0)
    if os.getppid() != keeper:
        os._exit(0)  # the keeper went before the kernel was told to care
    os.chdir(order["cwd"])
    os.execve(argv[0], argv, order["env"])  # noqa: S606 - that is what a keeper is for


def spawn(order: Order, argv: list[str], text: str, log: int) -> int:
    """The pid of the started program; OSError if it could not be started."""
    keeper = os.getpid()
    input_read, input_write = os.pipe()
    os.write(input_write, text.encode())
    os.close(input_write)
    failure_read, failure_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.dup2(input_read, 0)
            os.dup2(log, 1)
            os.dup2(log, 2)
            become_engine(order, argv, keeper)
        except OSError as error:
            os.write(failure_write, str(error.errno).encode())
        finally:
            os._exit(127)
    os.close(input_read)
    os.close(failure_write)
    failed = os.read(failure_read, 16)  # ends empty when exec closes the other side
    os.close(failure_read)
    if failed:
        os.waitpid(pid, 0)
        raise OSError(int(failed), os.strerror(int(failed)))
    return pid


def see_out(pid: int, order: Order, watch: Watch) -> int:
    """Waits for the program's end, brings it about when told to, and returns the exit code (128 + n for a signal)."""
    farewell = iter(order["farewell"])
    next_step = 0.0
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code
        now = time.monotonic()
        if watch.killing:
            watch.killing = False
            os.kill(pid, signal.SIGKILL)
        elif watch.stopping and now >= next_step:
            step = next(farewell, None)
            if step is None:
                return 125  # not even SIGKILL: it hangs in the kernel, and the lock that it holds keeps others away
            os.kill(pid, step[0])
            next_step = now + step[1]
        watch.pause(next_step - now if watch.stopping else OWNER_CHECK)


def prepare(preparation: Preparation, order: Order, log: int, watch: Watch) -> int:
    """The exit code of the command, 0 if there was nothing to do."""
    target = preparation["creates"]
    if os.path.exists(target):
        return 0
    import shutil

    unfinished = target + ".new"
    if os.path.lexists(unfinished):
        shutil.rmtree(unfinished)
    os.mkdir(unfinished, 0o700)
    if order["account"] is not None:
        os.chown(unfinished, *order["account"])
    code = see_out(spawn({**order, "cwd": "/"}, [*preparation["argv"], unfinished], "", log), order, watch)
    if code == 0:
        os.rename(unfinished, target)
        parent = os.open(os.path.dirname(target), os.O_RDONLY)
        os.fsync(parent)
        os.close(parent)
    return code


def report(said: Report) -> None:
    """Tells the owner; one that has gone meanwhile is noticed by the watch."""
    with contextlib.suppress(BrokenPipeError):
        os.write(1, json.dumps(said).encode() + b"\n")


def keep(order: Order, watch: Watch) -> int:
    """Starts the engine and sees it out; the exit code is the engine's, or 1 if it never started."""
    step = "lock"
    try:
        if take_lock(order["lock"], order["lock_wait"], watch) is None:
            report({"held": True})
            return 1
        step = "log"
        log = open_log(order["log"])
        os.dup2(log, 2)
        step = "prepare"
        if order["preparation"] is not None:
            code = prepare(order["preparation"], order, log, watch)
            if code != 0:
                report({"step": step, "exit_code": code})
                return 1
        step = "clean"
        for pid_file in order["pid_files"]:
            drop_stale(pid_file, order["cwd"])
        step = "start"
        if watch.stopping:
            return 1
        pid = spawn(order, order["argv"], order["text"], log)
    except OSError as error:
        report({"step": step, "errno": error.errno or 0})
        return 1
    report({"pid": pid})
    os.dup2(log, 1)
    os.close(log)
    return see_out(pid, order, watch)


def main() -> int:
    os.umask(0o077)
    watch = Watch()
    order = read_order()
    if order is None or os.getppid() != order["owner"]:
        return 1
    watch.owner = order["owner"]
    return keep(order, watch)


if __name__ == "__main__":
    sys.exit(main())
