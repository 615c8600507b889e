"""What the hot statements read of 200,000 rows: counted by the server while they run, or told by EXPLAIN."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import psycopg
import pytest

from store import identity
from store.contract import Change, Renewal
from store.engines.postgres import Postgres
from store.events import Finish, Kind
from store.filters import Filter, Order
from store.job import Job
from store.policy import Policy
from store.postgres import finding, hot
from store.transitions import decide
from tests.contract.rows import TYPE, claim, wake
from tests.postgres.acts import one
from tests.postgres.conftest import empty, migrated

ROWS = 200_000

#: One row in two hundred is due; as many have ended, by success and by failure; one in a thousand is running, and half
#: of these have lapsed. One in fifty has a key.
FILL = f"""
INSERT INTO dramaturg.job (
  id, domain, queue, job_type, key, priority, payload, run_at, generation, revision, state, retries, failure_streak,
  attempt, stopping, created_at, updated_at, finished_at, lease_id, leased_until
)
SELECT
  CASE WHEN g %% 50 = 0 THEN dramaturg.job_id('default', queue, '{TYPE}', g::text)
    ELSE ('00000000-0000-4000-8000-' || lpad(to_hex(g), 12, '0'))::uuid END,
  'default', queue, '{TYPE}', CASE WHEN g %% 50 = 0 THEN g::text END, 1 + g %% 10, '{{}}',
  CASE WHEN state <> 'queued' THEN 'infinity' WHEN g %% 200 = 3 THEN now() - interval '1 hour' ELSE now() + '1 day' END,
  (extract(epoch FROM now()) * 1000000)::bigint, 1, state, 0, 0, 0, false, now(), now(),
  CASE WHEN state IN ('completed', 'failed') THEN now() - interval '1 day' END,
  CASE WHEN state = 'processing' THEN gen_random_uuid() END,
  CASE WHEN state = 'processing' THEN now() + (g %% 2000 - 1000) * interval '1 second' END
FROM (
  SELECT g, (ARRAY['default', 'high', 'low'])[1 + g %% 3] AS queue, CASE
    WHEN g %% 1000 = 1 THEN 'processing' WHEN g %% 200 = 2 THEN 'completed' WHEN g %% 200 = 4 THEN 'failed'
    ELSE 'queued'
  END AS state
  FROM generate_series(%s::integer, %s::integer) g
) made
"""


class Read(NamedTuple):
    """What a statement read: whole tables, and entries of each index."""

    tables: int
    entries: dict[str, int]


@pytest.fixture(scope="module")
def crowd(postgres_server: Postgres) -> Iterator[str]:
    """A database of many rows whose functions were first planned when it was empty, and that nobody has analysed."""
    with migrated(postgres_server) as url:
        empty(url)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("ALTER TABLE dramaturg.job SET (autovacuum_enabled = off)")
        yield url


@pytest.fixture(scope="module")
def session(crowd: str) -> Iterator[psycopg.Connection]:
    """One session that has met the empty table first."""
    with psycopg.connect(crowd, autocommit=True, prepare_threshold=None) as connection:
        for _ in range(2):
            job = cycle(connection, [hot.wake(connection, [wake("first")], None)[0].id])[0]
        connection.execute("DELETE FROM dramaturg.job")
        assert job.id
        connection.execute(FILL, [1, ROWS])
        yield connection


def cycle(connection: psycopg.Connection, ids: list[str]) -> list[Job]:
    """Claim, renew and finish these rows; answers them as they were claimed."""
    jobs = [answer.job for answer in hot.claim(connection, [claim(id_) for id_ in ids], None) if answer.job]
    assert len(jobs) == len(ids)
    hot.renew(connection, renewals(jobs), None)
    assert all(hot.swap(connection, finishes(jobs), None))
    hot.due(connection, 10, None, None)
    return jobs


def renewals(jobs: list[Job]) -> list[Renewal]:
    return [Renewal(job.id, job.lease_id or "", job.attempt, 90, (50, "half")) for job in jobs]


def finishes(jobs: list[Job]) -> list[Change]:
    events = [Finish(job.lease_id or "", job.attempt, job.generation, Kind.AGAIN) for job in jobs]
    return [
        Change(job.id, job.revision, decide(job, event, Policy(TYPE))) for job, event in zip(jobs, events, strict=True)
    ]


def read_by(connection: psycopg.Connection, work: Any) -> Read:
    """What ``work`` reads of the table of jobs, which it leaves as it was."""
    with connection.transaction(force_rollback=True):
        before = counts(connection)
        work()
        after = counts(connection)
    entries = {name: after.entries[name] - before.entries[name] for name in after.entries}
    return Read(after.tables - before.tables, {name: count for name, count in entries.items() if count})


def counts(connection: psycopg.Connection) -> Read:
    indexes = connection.execute(
        "SELECT indexrelid::regclass::text, pg_stat_get_xact_tuples_returned(indexrelid) + "
        "pg_stat_get_xact_numscans(indexrelid) FROM pg_index WHERE indrelid = 'dramaturg.job'::regclass"
    ).fetchall()
    tables = one(connection, "SELECT pg_stat_get_xact_numscans('dramaturg.job'::regclass)")
    return Read(tables, {name.removeprefix("dramaturg."): count for name, count in indexes})


def due_ids(connection: psycopg.Connection, count: int) -> list[str]:
    return [due.id for due in hot.due(connection, count, None, None)][:count]


def test_due_reads_no_more_than_it_answers_and_a_seek_for_each_lane(session: psycopg.Connection) -> None:
    read = read_by(session, lambda: hot.due(session, 10, None, None))

    lanes = 3 * 10
    assert read.tables == 0
    assert set(read.entries) == {"job_due"}
    assert read.entries["job_due"] < lanes * (10 + 6)


def test_due_reads_the_same_of_more_rows_that_are_not_due(session: psycopg.Connection) -> None:
    before = read_by(session, lambda: hot.due(session, 10, None, None))

    with session.transaction(force_rollback=True):
        session.execute(FILL, [ROWS + 1, ROWS + ROWS // 10])
        after = read_by(session, lambda: hot.due(session, 10, None, None))

    assert after == before


def test_a_batch_is_found_by_its_ids_alone(session: psycopg.Connection) -> None:
    ids = due_ids(session, 50)

    read = read_by(session, lambda: cycle(session, ids))

    assert read.tables == 0
    assert set(read.entries) == {"job_pkey", "job_due", "job_processing"}
    assert read.entries["job_pkey"] + read.entries["job_processing"] < 50 * 3 * 6


def test_a_claim_that_is_refused_is_told_by_ids_alone(session: psycopg.Connection) -> None:
    ids = [identity.new_id() for _ in range(20)] + due_ids(session, 20)
    taken = [claim(id_) for id_ in ids]

    def twice() -> None:
        hot.claim(session, taken, None)
        hot.claim(session, [claim(id_) for id_ in ids], None)

    read = read_by(session, twice)

    assert read.tables == 0
    assert set(read.entries) <= {"job_pkey", "job_processing"}
    assert sum(read.entries.values()) < 2 * 40 * 12


def test_a_wake_is_found_by_its_id_alone(session: psycopg.Connection) -> None:
    events = [wake(str(number)) for number in range(0, 7500, 150)]

    read = read_by(session, lambda: hot.wake(session, events, None))

    assert read.tables == 0
    assert set(read.entries) == {"job_pkey"}
    assert sum(read.entries.values()) < 50 * 6


def test_renewals_and_progress_stay_where_they_are(session: psycopg.Connection) -> None:
    [job] = finding.find(session, Filter(states=["processing"]), "id", False, 1, None)
    updates = (
        "SELECT pg_stat_get_xact_tuples_updated(job), pg_stat_get_xact_tuples_hot_updated(job) "
        "FROM (SELECT 'dramaturg.job'::regclass AS job) j"
    )

    with session.transaction(force_rollback=True):
        before = session.execute(updates).fetchall()[0]
        for percent in range(3):
            [sent] = renewals([job])
            assert hot.renew(session, [sent._replace(progress=(percent, "on"))], None)[0].held
        after = session.execute(updates).fetchall()[0]

    assert (after[0] - before[0], after[1] - before[1]) == (3, 3)


FINDS: dict[str, tuple[Filter, Order, str]] = {
    "lapsed": (Filter(states=["processing"], lapsed=True), "id", "job_processing"),
    "failed": (Filter(states=["failed", "quarantined"]), "id", "job_troubled"),
    "by id": (Filter(ids=[identity.new_id()]), "id", "job_pkey"),
    "by key": (Filter(domain="default", queue="default", job_type=TYPE, key="150"), "id", "job_pkey"),
    "retention": (Filter(states=["completed"], ended_over=90_000), "id", "job_finished"),
    "held for long": (Filter(states=["quarantined"], ended_over=90_000), "id", "job_troubled"),
    "running for long": (Filter(running_over=3600), "id", "job_processing"),
    "waiting for long": (Filter(states=["queued"], waiting_over=90_000), "id", "job_due"),
    "page": (Filter(queue="default", after_id=identity.new_id()), "id", "job_pkey"),
}


@pytest.mark.parametrize("name", FINDS)
def test_what_is_looked_for_often_is_found_by_an_index(session: psycopg.Connection, name: str) -> None:
    filter_, order, index = FINDS[name]
    session.execute("ANALYZE dramaturg.job")

    plan = explained(session, filter_, order)

    assert index in plan
    assert "Seq Scan on job" not in plan


def test_what_has_ended_long_ago_is_found_by_an_index(session: psycopg.Connection) -> None:
    session.execute("ANALYZE dramaturg.job")
    moment = one(session, "SELECT now() - interval '1 day 1 minute'")

    plan = explained(session, Filter(states=["completed"], finished_before=moment), "id")

    assert "job_finished" in plan
    assert "Seq Scan on job" not in plan


def explained(connection: psycopg.Connection, filter_: Filter, order: Order) -> str:
    statement, parameters = finding.found_by(filter_, order, False)
    rows = connection.execute(f"EXPLAIN {statement}", parameters | {"limit": 100, "now": None}).fetchall()
    return "\n".join(line for (line,) in rows)
