"""How the hot statements reach their rows in a table of 200,000: by an index, and never by passing all of them."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from store import clock
from store.filters import Filter, Order
from store.sqlite import claims, finding, lanes, swaps, wakes
from store.sqlite.rows import PARKED
from store.sqlite.store import SqliteStore
from tests.contract.acts import publish
from tests.contract.rows import TYPE

LATER = clock.micros(clock.wall()) + 10**14
ENDED = ("completed", "failed", "cancelled")

#: (how many, columns as expressions of the row's number ``i``): mostly rows that are not due, or may not run.
CROWD: tuple[tuple[int, dict[str, str]], ...] = (
    (110_000, {"run_at": f"{LATER} + i", "priority": "1 + i % 10"}),
    (20_000, {"run_at": "i", "job_type": "'nobody.knows'", "priority": "1"}),
    (10_000, {"run_at": "i", "queue": "'paused'"}),
    (30_000, {"state": "'completed'", "finished_at": "i", "run_at": f"{PARKED}"}),
    (29_000, {"state": "'processing'", "lease_id": "i", "leased_until": f"{LATER}", "run_at": f"{PARKED}"}),
    (500, {"state": "'processing'", "lease_id": "i", "leased_until": "i", "run_at": f"{PARKED}"}),
    (500, {"run_at": "i", "priority": "1 + i % 10"}),
)

PLAIN = {
    "domain": "'default'",
    "queue": "'default'",
    "job_type": f"'{TYPE}'",
    "priority": "5",
    "payload": "'{}'",
    "generation": "1",
    "revision": "1",
    "state": "'queued'",
    "retries": "0",
    "failure_streak": "0",
    "attempt": "0",
    "stopping": "0",
    "created_at": "1",
    "updated_at": "1",
}


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SqliteStore, sqlite3.Connection]]:
    """A store of 200,000 rows, and a connection that explains."""
    path: Path = tmp_path_factory.mktemp("crowd") / "jobs.db"
    store = SqliteStore(f"sqlite:///{path}")
    store.migrate()
    publish(store, TYPE)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("PRAGMA cache_size = -262144")
        connection.execute(
            "INSERT INTO dramaturg_document (kind, key, version, body, updated_at) "
            """VALUES ('queue', 'paused', 1, '{"paused":true}', 1)"""
        )
        for group, (count, columns) in enumerate(CROWD):
            connection.execute(insert(count, columns, f"'{group}-' || i", f"printf('%04d-%031d', {group}, i)"))
        yield store, connection
    store.close()


def insert(count: int, columns: dict[str, str], key: str, id_: str) -> str:
    """The statement that makes ``count`` rows."""
    cells = PLAIN | columns | {"key": key, "id": id_}
    return (
        f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count}) "
        f"INSERT INTO dramaturg_job ({', '.join(cells)}) SELECT {', '.join(cells.values())} FROM n"
    )


def plan(connection: sqlite3.Connection, statement: str) -> list[str]:
    """What SQLite says of its way through our tables."""
    named = dict.fromkeys(re.findall(r":(\w+)", statement))
    places = [int(number) for number in re.findall(r"\?(\d+)", statement)]
    parameters = named if not places else (None,) * max(places)
    rows = connection.execute("EXPLAIN QUERY PLAN " + statement, parameters).fetchall()
    return [row[3] for row in rows if re.search(r"\b(job|dramaturg_\w+)\b", row[3])]


PRIMARY = r"SEARCH \w+ USING INDEX sqlite_autoindex_dramaturg_job_1 \(id=\?\)"
STATEMENTS = {
    "the next queue": (lanes.NEXT_QUEUE, r"SEARCH \w+ USING COVERING INDEX dramaturg_job_lane \(queue>\?\)"),
    "the next type": (
        lanes.NEXT_TYPE,
        r"SEARCH \w+ USING COVERING INDEX dramaturg_job_lane \(queue=\? AND job_type>\?\)",
    ),
    "due": (
        lanes.PROBE,
        r"SEARCH \w+ USING COVERING INDEX dramaturg_job_lane "
        r"\(queue=\? AND job_type=\? AND priority=\? AND run_at<\?\)",
    ),
    "the rest of a priority": (
        lanes.REST,
        r"SEARCH \w+ USING COVERING INDEX dramaturg_job_lane "
        r"\(queue=\? AND job_type=\? AND priority=\? AND \(run_at,id\)>\(\?,\?\) AND run_at<\?\)",
    ),
    "claim": (claims.TAKE, PRIMARY),
    "what was claimed": (claims.TAKEN, PRIMARY),
    "renew": (claims.RENEW, PRIMARY),
    "what is held": (claims.HELD, PRIMARY),
    "what was woken": (wakes.STORED, PRIMARY),
    "swap": (
        swaps.statement(swaps.Shape((), ("state", "result"), ("finished_at",), "earliest", False, False)),
        PRIMARY,
    ),
    "a swap of what lapsed": (swaps.statement(swaps.Shape((), ("state",), (), "replace", True, False)), PRIMARY),
    "what stands": (swaps.STANDS, PRIMARY),
    "delete": (swaps.statement(swaps.Shape((), (), (), "", True, True)), PRIMARY),
    "read": (finding.READ, PRIMARY),
    "read on any connection": (finding.READ_UNDECODED, PRIMARY),
}


@pytest.mark.parametrize("name", STATEMENTS)
def test_a_hot_statement_seeks(crowd: tuple[SqliteStore, sqlite3.Connection], name: str) -> None:
    statement, expected = STATEMENTS[name]
    steps = plan(crowd[1], statement)

    assert re.fullmatch(expected, steps[0])
    for step in steps[1:]:
        assert re.fullmatch(r"SEARCH dramaturg_document USING PRIMARY KEY \(.*\)", step)
    assert not [step for step in steps if "TEMP B-TREE" in step]


@pytest.mark.parametrize("order", ["id", "claim", "created", "updated"])
@pytest.mark.parametrize(
    ("filter_", "index"),
    [
        (Filter(lapsed=True), "dramaturg_job_lease (leased_until<?)"),
        (Filter(states=("processing",), lapsed=True, queue="default"), "dramaturg_job_lease (leased_until<?)"),
        (Filter(states=ENDED, finished_before=clock.wall()), "dramaturg_job_ended (finished_at<?)"),
        (Filter(job_type=TYPE, finished_before=clock.wall()), "dramaturg_job_ended (finished_at<?)"),
        (Filter(ids=("a", "b")), "sqlite_autoindex_dramaturg_job_1 (id=?)"),
        (
            Filter(domain="d", queue="q", job_type="t", key="k"),
            "dramaturg_job_identity (domain=? AND queue=? AND job_type=? AND key=?)",
        ),
        (Filter(queue="q", job_type="t", states=("queued",)), "dramaturg_job_lane (queue=? AND job_type=?)"),
    ],
)
def test_a_narrow_filter_seeks_in_any_order(
    crowd: tuple[SqliteStore, sqlite3.Connection], filter_: Filter, index: str, order: Order
) -> None:
    statement, _ = finding.found_by(filter_, order, False)

    assert plan(crowd[1], statement)[0] == f"SEARCH job USING INDEX {index}"


@pytest.mark.parametrize(
    "filter_",
    [
        Filter(after_id="a"),
        Filter(states=("completed",), ended_over=1, after_id="a"),
        Filter(states=("queued",), waiting_over=1, after_id="a"),
    ],
)
def test_pages_by_id_are_read_in_their_order(crowd: tuple[SqliteStore, sqlite3.Connection], filter_: Filter) -> None:
    statement, _ = finding.found_by(filter_, "id", False)

    assert plan(crowd[1], statement) == ["SEARCH job USING INDEX sqlite_autoindex_dramaturg_job_1 (id>?)"]


def steps_of(store: SqliteStore) -> int:
    """How many instructions of SQLite's machine (in hundreds) a page of due rows takes."""
    taken = 0

    def count() -> int:
        nonlocal taken
        taken += 1
        return 0

    with store._connections.lend() as connection:
        connection.set_progress_handler(count, 100)
    assert len(store.due(limit=50)) == 50
    with store._connections.lend() as connection:
        connection.set_progress_handler(None, 0)
    return taken


def test_due_rows_cost_the_same_beside_any_number_of_others(
    crowd: tuple[SqliteStore, sqlite3.Connection], tmp_path: Path
) -> None:
    alone = SqliteStore(f"sqlite:///{tmp_path}/jobs.db")
    alone.migrate()
    publish(alone, TYPE)
    with alone.transaction() as tx:
        tx.execute(insert(*CROWD[-1], "i", "printf('%036d', i)"))

    assert steps_of(crowd[0]) <= 2 * steps_of(alone) + 2
    alone.close()
