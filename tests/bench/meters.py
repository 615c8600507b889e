"""Counts of what work costs a store and Valkey, told by driver and engine: the same on any machine."""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from typing import Any, ClassVar

import psycopg
import pytest
import redis

from store.contract import Store
from store.postgres.connections import Connection
from store.surreal.connections import Link
from tests.postgres.acts import SESSIONS, eventually, one

Work = Callable[[], object]


class Meter(ABC):
    """Counts from its making on: make it before the store that it watches opens its first connection."""

    def spent(self, work: Work) -> Counter[str]:
        """What ``work`` costs."""
        before = self.read()
        work()
        after = self.read()
        return Counter({name: after[name] - before[name] for name in after})

    @abstractmethod
    def read(self) -> Counter[str]:
        """All that was counted so far."""

    def seen(self) -> Counter[str]:
        """What can be read while others are at work: how often the store was asked."""
        return self.read()


class SqliteMeter(Meter):
    """Statements, rows written (those of triggers too), and instructions of SQLite's machine, to the ten."""

    STEP: ClassVar = 10

    def __init__(self, monkeypatch: pytest.MonkeyPatch, store: Store) -> None:
        self._counts: Counter[str] = Counter()
        self._open: list[_Counted] = []
        monkeypatch.setattr(sqlite3, "connect", self._connect(sqlite3.connect))

    def _connect(self, connect: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **options: Any) -> Any:
            made: _Counted = connect(*args, factory=_Counted, **options)
            made.farewell = lambda: self._counts.update({"rows": made.total_changes})
            made.set_trace_callback(self._trace)
            made.set_progress_handler(self._step, self.STEP)
            self._open.append(made)
            return made

        return counted

    def _trace(self, statement: str) -> None:
        # What a trigger does is told as a comment; settings are made once a connection.
        self._counts["statements"] += not statement.startswith(("--", "PRAGMA"))

    def _step(self) -> int:
        self._counts["instructions"] += self.STEP
        return 0

    def seen(self) -> Counter[str]:
        return Counter({"statements": self._counts["statements"]})

    def read(self) -> Counter[str]:
        counts = Counter(self._counts)
        counts["rows"] += sum(connection.total_changes for connection in self._open if not connection.over)
        return counts


class _Counted(sqlite3.Connection):
    over = False
    farewell: Work

    def close(self) -> None:
        if not self.over:
            self.farewell()
            self.over = True
        super().close()


class PostgresMeter(Meter):
    """Round trips; rows written, and updates among them that went into every index; rows that indexes led to, rows of
    whole tables that were read; pages of tables and indexes; bytes of log.

    The server tells once a session has ended, so the store hangs up before and after the work.
    """

    _NAMES = ("rows", "updates of indexes", "rows by index", "rows by scan", "pages", "log bytes")
    _ROWS = (
        "SELECT sum(n_tup_ins + n_tup_upd + n_tup_del)::bigint, sum(n_tup_upd - n_tup_hot_upd)::bigint, "
        "sum(coalesce(idx_tup_fetch, 0))::bigint, sum(seq_tup_read)::bigint, "
        "sum(heap_blks_hit + heap_blks_read + coalesce(idx_blks_hit + idx_blks_read, 0))::bigint, "
        "pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint "
        "FROM pg_stat_user_tables JOIN pg_statio_user_tables USING (relid, schemaname) WHERE schemaname = 'dramaturg'"
    )

    def __init__(self, monkeypatch: pytest.MonkeyPatch, store: Store, url: str) -> None:
        self._store, self._url = store, url
        self._trips = 0
        wait = Connection.wait

        def counted(connection: Connection, gen: Any, *args: Any, **options: Any) -> Any:
            self._trips += gen.__name__ != "notifies"  # which sends nothing
            return wait(connection, gen, *args, **options)

        monkeypatch.setattr(Connection, "wait", counted)

    def read(self) -> Counter[str]:
        self._store.close()
        with psycopg.connect(self._url, autocommit=True) as connection:
            assert eventually(lambda: one(connection, SESSIONS) == 0)
            [told] = connection.execute(self._ROWS).fetchall()
        return Counter(dict(zip(self._NAMES, map(int, told), strict=True)) | self.seen())

    def seen(self) -> Counter[str]:
        return Counter({"round trips": self._trips})


class SurrealMeter(Meter):
    """Requests."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, store: Store) -> None:
        self._requests = 0
        query = Link.query

        def counted(link: Link, *args: Any) -> Any:
            self._requests += 1
            return query(link, *args)

        monkeypatch.setattr(Link, "query", counted)

    def read(self) -> Counter[str]:
        return Counter({"requests": self._requests})


class ValkeyMeter(Meter):
    """Round trips, the commands in them (of scripts too), and bytes both ways."""

    _TRIPS = ("evalsha", "eval", "blpop")
    _OURS = ("info", "client|setinfo", "client|setname", "hello", "script|load", "flushall")

    def __init__(self, url: str) -> None:
        self._client = redis.Redis.from_url(url)

    def read(self) -> Counter[str]:
        stats: dict[str, Any] = self._client.info("stats")
        said: dict[str, Any] = self._client.info("commandstats")
        calls = {name.removeprefix("cmdstat_"): told["calls"] for name, told in said.items()}
        return Counter(
            {
                "round trips": sum(calls.get(name, 0) for name in self._TRIPS),
                "commands": sum(count for name, count in calls.items() if name not in (*self._OURS, *self._TRIPS)),
                "bytes": stats["total_net_input_bytes"] + stats["total_net_output_bytes"],
            }
        )

    def spent(self, work: Work) -> Counter[str]:
        """What ``work`` costs, without what it costs to ask: that is taken from two readings with nothing between."""
        idle = super().spent(lambda: None)
        spent = super().spent(work)
        spent["bytes"] -= idle["bytes"]
        return spent

    def close(self) -> None:
        """Hang up."""
        self._client.close()
