"""What these tests do in one line."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any, TypeVar

import psycopg

from store.postgres.store import PostgresStore

Found = TypeVar("Found")

#: Sessions of others in this database.
SESSIONS = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
END_SESSIONS = SESSIONS.replace("count(*)", "pg_terminate_backend(pid)")


def eventually(look: Callable[[], Found], *, within: float = 20.0) -> Found:
    """What ``look`` answers, as soon as it is true and raises no error of the driver's."""
    deadline = time.monotonic() + within
    while True:
        try:
            if found := look():
                return found
        except psycopg.Error:
            if time.monotonic() > deadline:
                raise
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.01)


def in_a_child(work: Callable[[], str]) -> str:
    """Fork, and answer what ``work`` answers in the child; there it must not raise."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(writing, work().encode())
            os._exit(0)
        finally:
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answer = pipe.read().decode()
    assert os.waitpid(child, 0)[1] == 0
    return answer


def one(connection: psycopg.Connection, statement: str, *values: Any) -> Any:
    """The only value that a statement answers."""
    rows = connection.execute(statement, values or None).fetchall()
    [[value]] = rows
    return value


def backend(store: PostgresStore) -> int:
    """The server's process that the store's next statement goes to."""
    with store.transaction() as tx:
        [(pid,)] = tx.execute("SELECT pg_backend_pid()")
    return int(pid)


def sleeper(connection: psycopg.Connection) -> int:
    """The server's process that runs pg_sleep; 0 where there is none."""
    active = (
        "SELECT coalesce(max(pid), 0) FROM pg_stat_activity WHERE state = 'active' AND query LIKE '%pg_sleep%' "
        "AND datname = current_database() AND pid <> pg_backend_pid()"
    )
    return int(one(connection, active))
