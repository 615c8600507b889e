"""Counts, in a worker, what it asks of a database that can't tell: one byte in BENCH_ASKED for each statement.

Not counted, as on Postgres: the words that begin and end a transaction. And of SQLite ``PRAGMA``: reading
``data_version`` is no statement that the database works on.
"""

from __future__ import annotations

import os
from typing import Any

_NOT_COUNTED = ("--", "PRAGMA", "BEGIN", "COMMIT", "ROLLBACK")


def count_into(path: str) -> None:
    """From here on, in this process and its children."""
    asked = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    if os.environ["JOBS_DB_URL"].startswith("sqlite"):
        from store.sqlite import connections

        driver: Any = vars(connections)["sqlite3"]

        connect = driver.connect

        def traced(statement: str) -> None:
            if not statement.startswith(_NOT_COUNTED):
                os.write(asked, b".")

        def connected(*details: Any, **options: Any) -> Any:
            made = connect(*details, **options)
            made.set_trace_callback(traced)
            return made

        driver.connect = connected
        return
    from store.surreal.connections import Link

    query = Link.query

    def asking(link: Link, *details: Any) -> Any:
        os.write(asked, b".")
        return query(link, *details)

    Link.query = asking  # type: ignore[method-assign, assignment]
