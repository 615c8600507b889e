"""The embedded engines of ``up``: a Valkey, unless one is named; a Postgres or a SurrealDB where it is asked for."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from store.engines.sockets import Answer, ping
from store.engines.valkey import SharedValkey, Valkey, shared_valkey
from store.errors import EngineFailed, Refused, UsageError
from store.valkey.address import parse
from store.valkey.client import Client

if TYPE_CHECKING:
    from store.engines.postgres import Postgres
    from store.engines.surreal import Surreal

Kind = Literal["sqlite", "postgres", "surreal"]

_KINDS: dict[str, Kind] = {
    "sqlite": "sqlite",
    "postgresql": "postgres",
    "postgres": "postgres",
    "ws": "surreal",
    "wss": "surreal",
}

_NAMES = {"postgres": "Postgres", "surreal": "SurrealDB"}


def kind_of(asked: Kind | None, db_url: str | None) -> Kind:
    """Which store: the one that was asked for, else that of JOBS_DB_URL. Raises UsageError where the two differ."""
    named = None if db_url is None else _KINDS.get(urlsplit(db_url).scheme)
    if asked is not None and named not in (None, asked):
        raise UsageError(
            f"JOBS_DB_URL names another database than --store {asked}: unset it, or choose the other store"
        )
    return asked or named or "sqlite"


class Engines:
    """Engines under ``home``. What ``db_url`` and ``valkey_url`` name are somebody else's servers, and left alone.

    Raises SettingsInvalid for a URL of Valkey that can't be used.
    """

    def __init__(self, home: Path, kind: Kind, *, db_url: str | None = None, valkey_url: str | None = None) -> None:
        self._home = home
        self._valkey: SharedValkey | None = None
        self._kind = kind
        self._database = None if kind == "sqlite" or db_url is not None else _database(home, kind)
        self._ours = db_url is None
        self._shares = valkey_url is None
        self._place = Valkey(home)
        self.db_url = db_url or (f"sqlite:///{home / 'jobs.db'}" if self._database is None else self._database.url)
        self.valkey_url = valkey_url or self._place.url
        self._address = parse(self.valkey_url)

    def forget(self) -> None:
        """Delete the database of an earlier one on this home, which Postgres may keep elsewhere. Raises Refused."""
        if self._database is None or not self._database.data.exists():
            return
        try:
            shutil.rmtree(self._database.data)
        except OSError as error:
            raise Refused(f"{self._database.data} can't be deleted ({type(error).__name__}): delete it") from None

    def exports(self) -> dict[str, str]:
        """The settings, by name, with which another shell sees the same; no server of somebody else is among them."""
        found = {"JOBS_HOME": str(self._home)}
        if self._database is not None:
            found["JOBS_DB_URL"] = self.db_url
        return found

    def named(self) -> list[str]:
        """The settings that name servers of somebody else: they hold credentials, and are never repeated."""
        return [name for name, ours in (("JOBS_DB_URL", self._ours), ("JOBS_VALKEY_URL", self._shares)) if not ours]

    def reach_named(self) -> None:
        """Returns if the Valkey answers that somebody else runs. Raises ValkeyUnavailable."""
        if not self._shares:
            named = Client(self._address)
            try:
                named.ping()
            finally:
                named.close()

    def start(self) -> None:
        """Returns when they answer. Raises EngineFailed."""
        if self._shares:
            self._valkey = shared_valkey(self._home)
        if self._database is not None:
            self._database.start()

    def tend(self) -> str | None:
        """Start again what ended; what there is to tell, if anything. Raises EngineFailed."""
        if self._shares and ping(self._place.socket) is Answer.NOBODY:
            self._valkey = shared_valkey(self._home)
            return "Valkey was gone and is started again: what is due is offered anew"
        if self._database is not None and not self._database.running:
            self._database.start()
            return f"{_NAMES[self._kind]} was gone and is started again"
        return None

    def stop(self) -> list[EngineFailed]:
        """End what was started here; answers what could not be ended."""
        ends = [] if self._valkey is None else [self._valkey.end]
        if self._database is not None:
            ends.append(self._database.stop)
        failed = []
        for end in ends:
            try:
                end()
            except EngineFailed as error:
                failed.append(error)
        self._valkey = None
        return failed


def _database(home: Path, kind: Kind) -> Postgres | Surreal:
    if kind == "surreal":
        from store.engines.surreal import Surreal

        return Surreal(home)
    from store.engines.postgres import Postgres  # brings its driver along

    return Postgres(home)
