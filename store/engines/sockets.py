"""Where a server listens: unix sockets with paths short enough, private directories for them, ports nobody has."""

from __future__ import annotations

import hashlib
import os
import random
import socket
import stat
from enum import Enum
from pathlib import Path

from store.engines.launch import error_name
from store.errors import EngineFailed

LONGEST_PATH = 103  # bytes of a unix socket's path: 104 on macOS, 108 on Linux, with a closing zero
PORTS = range(15_000, 32_000)  # below the range from which systems take the ports of outgoing connections
PORT_TRIES = 100
TEMPORARY = Path("/tmp")  # noqa: S108 - private directories are made there; not TMPDIR: processes whose environments differ must agree on it


class Answer(Enum):
    """What became of a question put to a socket."""

    NOBODY = "nobody listens"
    SILENT = "somebody listens and does not answer"
    ALIVE = "a server answers"
    FORBIDDEN = "the socket belongs to another user"


def home_key(home: Path) -> str:
    """Sixteen characters that stand for a home wherever its own path can't be used."""
    return hashlib.sha256(os.fsencode(home)).hexdigest()[:16]


def open_home(home: Path) -> Path:
    """The home as an absolute path without links, made if it was missing. EngineFailed if it can't be used."""
    try:
        home = Path(os.path.realpath(home))
        home.mkdir(parents=True, exist_ok=True)
        usable = os.access(home, os.W_OK | os.X_OK)
    except OSError as error:
        raise EngineFailed(
            f"the home {home} can't be made ({error_name(error.errno)}): choose another one (JOBS_HOME)"
        ) from error
    if not usable:
        raise EngineFailed(f"the home {home} can't be written to: choose another one (JOBS_HOME)")
    return home


def private_directory(path: Path, mode: int, owner: tuple[int, int] | None = None) -> Path:
    """The directory, made with ``mode`` and ``owner`` (uid and gid; None: ours) if it was missing.

    EngineFailed if something else already has that name: in a directory that all may write to, it could be a trap.
    """
    uid = os.geteuid() if owner is None else owner[0]
    try:
        try:
            path.mkdir(mode=0o700)
        except FileExistsError:
            pass
        else:
            if owner is not None:
                os.chown(path, *owner)
            path.chmod(mode)
        found = path.lstat()
    except OSError as error:
        raise EngineFailed(f"the directory {path} can't be made ({error_name(error.errno)})") from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != uid or stat.S_IMODE(found.st_mode) & ~mode:
        raise EngineFailed(f"{path} is not a private directory of this program's: remove it, or choose another home")
    return path


def fits(path: Path) -> bool:
    """Whether a unix socket can have this path."""
    return len(os.fsencode(path)) <= LONGEST_PATH


def socket_path(home: Path, name: str) -> Path:
    """``name`` under the home, or under a private directory of the temporary one where that would be too long."""
    if fits(home / name):
        return home / name
    return TEMPORARY / f"dramaturg-{os.geteuid()}-{home_key(home)}" / name


def ping(path: Path, timeout: float = 1.0) -> Answer:
    """Whether a Valkey answers at the socket; any reply counts, also "busy" and "no password"."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout)
        try:
            connection.connect(os.fspath(path))
            connection.sendall(b"PING\r\n")
            return Answer.ALIVE if connection.recv(64) else Answer.NOBODY
        except (FileNotFoundError, ConnectionError):
            return Answer.NOBODY
        except PermissionError:
            return Answer.FORBIDDEN
        except (TimeoutError, BlockingIOError):
            return Answer.SILENT


def port_is_free(port: int) -> bool:
    """Whether 127.0.0.1 would let a server listen at ``port`` right now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
            probe.listen(1)
        except OSError:
            return False
        return True


def free_port() -> int:
    """A port of 127.0.0.1 that nobody has yet; whoever uses it must be ready to lose a race for it."""
    chance = random.SystemRandom()
    for _ in range(PORT_TRIES):
        port = chance.choice(PORTS)
        if port_is_free(port):
            return port
    raise EngineFailed(f"no free port was found on 127.0.0.1 between {PORTS.start} and {PORTS.stop}")
