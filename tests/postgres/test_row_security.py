"""Row-level security: whoever does not own the tables sees and changes rows of the domains of its scope, and none
without one. Each test comes as a user who may run jobs, by plain SQL and by a store."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg import sql

from store.attachments import Caps, Item
from store.contract import ANY_VERSION, Archived, Change, Document
from store.engines.postgres import ADMIN, Postgres
from store.errors import NotAllowed, Refused
from store.events import Finish, Kind
from store.filters import Filter
from store.following import switch_events
from store.identity import SEPARATOR
from store.limits import Quota, set_quota
from store.open import open_store
from store.policy import Policy
from store.postgres.store import PostgresStore
from store.scope import document_domain
from store.transitions import decide
from tests.contract.acts import publish, read, take
from tests.contract.rows import TYPE, claim, wake
from tests.postgres.acts import one

MINE, THEIRS = "chat", "print"

KINDS = ("quota", "spent", "flight", "queue", "allow", "sla", "policy")

#: Tables whose rows are of a domain, with how many of them are mine and theirs in the house that these tests make.
TABLES = {"job": (2, 2), "history": (1, 1), "archive": (1, 1), "outbox": (5, 5), "attachment": (1, 1)}


@pytest.fixture
def member(postgres_server: Postgres) -> Iterator[Callable[[str], str]]:
    """Makes a user who is in one of the groups."""
    made = []
    with psycopg.connect(postgres_server.url_of(ADMIN, ADMIN), autocommit=True) as admin:

        def make(group: str) -> str:
            made.append(f"user_{uuid.uuid4().hex}")
            admin.execute(sql.SQL("CREATE ROLE {} LOGIN IN ROLE {}").format(*map(sql.Identifier, (made[-1], group))))
            return made[-1]

        yield make
        for name in made:
            admin.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(name)))


@pytest.fixture
def runner(member: Callable[[str], str], url: str) -> str:
    """The URL of a user who may run jobs, and does not own the tables."""
    return url.replace("dramaturg@", f"{member('dramaturg_run')}@")


@pytest.fixture
def house(store: PostgresStore) -> PostgresStore:
    """Of each domain two jobs, one of which runs, and something in each table."""
    switch_events(store, on=True)
    for domain in (MINE, THEIRS):
        store.wake([wake("a", domain=domain), wake("b", domain=domain)])
        job = take(store, wake("a", domain=domain).id)
        decision = decide(job, Finish(job.lease_id or "", job.attempt, job.generation, Kind.RETRY), Policy(TYPE))
        store.swap([Change(job.id, job.revision, decision)])
        take(store, wake("b", domain=domain).id)
        store.attach(job.id, [Item("file", "a", "text/plain", b"")], caps=Caps())
        with store.transaction() as tx:
            tx.archive([Archived(job.id, 1, domain, "default", TYPE, "a", "{}")])
    store.events(0)
    return store


@pytest.fixture
def scoped() -> Iterator[Callable[..., PostgresStore]]:
    """Makes stores with a scope; their sessions end with the test."""
    with ExitStack() as made:

        def make(url: str, scope: str | None, *, bound: bool = True) -> PostgresStore:
            store = PostgresStore(url, scope=scope, bound=bound)
            made.callback(store.close)
            return store

        yield make


@pytest.mark.usefixtures("house")
def test_each_table_shows_the_rows_of_the_scope_and_none_without_one(runner: str) -> None:
    def seen(connection: psycopg.Connection) -> dict[str, Any]:
        return {table: one(connection, f"SELECT count(*) FROM dramaturg.{table}") for table in TABLES}

    with psycopg.connect(runner) as connection:
        assert seen(connection) == dict.fromkeys(TABLES, 0)
        for scope, wanted in {
            MINE: {table: mine for table, (mine, _) in TABLES.items()},
            f"{MINE},{THEIRS}": {table: mine + theirs for table, (mine, theirs) in TABLES.items()},
            "*": {table: mine + theirs for table, (mine, theirs) in TABLES.items()},
            "": dict.fromkeys(TABLES, 0),
            "other": dict.fromkeys(TABLES, 0),
        }.items():
            connection.execute("SELECT set_config('app.domain_allowlist', %s, true)", [scope])
            assert seen(connection) == wanted, scope
        connection.rollback()
        assert seen(connection) == dict.fromkeys(TABLES, 0)  # a scope ends with its transaction


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE dramaturg.job SET priority = 1 WHERE domain = 'print'",
        "UPDATE dramaturg.job SET domain = 'print' WHERE domain = 'chat'",
        "DELETE FROM dramaturg.job WHERE domain = 'print'",
        "DELETE FROM dramaturg.history WHERE job_id IN (SELECT job_id FROM dramaturg.outbox WHERE domain = 'print')",
        "DELETE FROM dramaturg.archive WHERE domain <> 'chat'",
        "DELETE FROM dramaturg.attachment WHERE job_id <> (SELECT min(id::text)::uuid FROM dramaturg.job)",
        "DELETE FROM dramaturg.outbox WHERE domain = 'print'",
        "DELETE FROM dramaturg.document WHERE kind = 'queue'",
        "UPDATE dramaturg.document SET body = '{}' WHERE kind = 'quota' AND key LIKE 'print%%'",
        "INSERT INTO dramaturg.document VALUES ('queue', 'default', 1, '{\"paused\": true}', now())",
        "INSERT INTO dramaturg.archive SELECT dramaturg.new_id(), 1, 'print', 'q', 'x', NULL, '{}', NULL, NULL, now()",
        "UPDATE dramaturg.outbox_counter SET last = 99",
        "ALTER TABLE dramaturg.job DISABLE ROW LEVEL SECURITY",
        "SELECT dramaturg.let_in(current_user, 'run')",
    ],
)
def test_nothing_of_another_domain_is_changed_by_any_statement(
    house: PostgresStore, url: str, runner: str, statement: str
) -> None:
    set_quota(house, Quota(THEIRS, None, max_queued=50))
    house.put(Document("queue", "high", ANY_VERSION, {"paused": True}))

    def theirs(connection: psycopg.Connection) -> list[Any]:
        return [
            connection.execute(f"SELECT x::text FROM dramaturg.{table} x WHERE {which} ORDER BY x::text").fetchall()
            for table, which in (
                ("job", "domain <> 'chat'"), ("archive", "domain <> 'chat'"), ("outbox", "domain <> 'chat'"),
                ("document", "kind <> 'policy'"), ("outbox_counter", "true"),
                ("history", "job_id IN (SELECT id FROM dramaturg.job WHERE domain <> 'chat')"),
                ("attachment", "job_id IN (SELECT id FROM dramaturg.job WHERE domain <> 'chat')"),
            )
        ]  # fmt: skip

    with psycopg.connect(url, autocommit=True) as owner, psycopg.connect(runner) as connection:
        before = theirs(owner)
        connection.execute("SELECT set_config('app.domain_allowlist', 'chat', true)")
        try:
            connection.execute(statement)
            connection.commit()
        except (psycopg.errors.InsufficientPrivilege, psycopg.errors.CheckViolation):
            connection.rollback()
        assert theirs(owner) == before


def test_scopes_stay_with_their_transactions_behind_a_pooler(
    pooled_url: str, behind_pooler: str, scoped: Callable[..., PostgresStore]
) -> None:
    """There everybody is the owner, who is bound as well where that is asked for."""
    with psycopg.connect(behind_pooler, autocommit=True) as owner:
        for domain in (MINE, THEIRS):
            owner.execute("SELECT dramaturg.wake('test.job', key => 'k', domain => %s)", [domain])
        owner.execute("ALTER TABLE dramaturg.job FORCE ROW LEVEL SECURITY")
        try:
            stores = {domain: scoped(pooled_url, domain) for domain in (MINE, THEIRS, "other")}

            def look(domain: str) -> set[str]:
                store, seen = stores[domain], set()
                for _ in range(25):
                    seen |= {job.domain for job in store.find(Filter())}
                    seen |= {str(len(store.due()))}
                return seen

            with ThreadPoolExecutor(6) as pool:
                seen = dict(zip(2 * list(stores), pool.map(look, 2 * list(stores)), strict=True))
            assert seen == {MINE: {MINE, "1"}, THEIRS: {THEIRS, "1"}, "other": {"0"}}
        finally:
            owner.execute("ALTER TABLE dramaturg.job NO FORCE ROW LEVEL SECURITY")


def test_the_hot_path_works_within_the_scope_and_nowhere_else(
    house: PostgresStore, runner: str, scoped: Callable[..., PostgresStore]
) -> None:
    mine, theirs = (house.wake([wake("c", domain=domain)])[0].id for domain in (MINE, THEIRS))
    store = scoped(runner, MINE)
    store.check_schema()
    due = {found.id for found in store.due()}
    assert mine in due
    assert theirs not in due
    own, other = store.claim([claim(mine), claim(theirs)])
    assert (own.job is None, other.job, other.held) == (False, None, False)
    job = own.job
    assert job is not None
    decision = decide(job, Finish(job.lease_id or "", job.attempt, job.generation, Kind.RETRY), Policy(TYPE))
    assert store.swap([Change(mine, job.revision, decision), Change(theirs, 1, decision)]) == [True, False]
    assert len(store.history(mine)) == 1
    assert (read(house, mine).state, read(house, theirs).attempt) == ("queued", 0)
    assert store.wake([wake(None, domain=MINE), wake("d", domain=MINE)])[1].created
    assert store.wake([wake(None, domain=MINE)])[0].created
    for key in ("e", None):
        with pytest.raises(Refused, match="JOBS_DOMAINS"):
            store.wake([wake(key, domain=THEIRS)])
    with store.transaction() as tx:
        assert [row.domain for row in [tx.read([mine])[0]] if row] == [MINE]
        assert tx.read([theirs]) == [None]


def test_with_limits_on_claims_stay_within_the_scope_and_quotas_count_everybody(
    house: PostgresStore, runner: str, scoped: Callable[..., PostgresStore]
) -> None:
    set_quota(house, Quota(None, "ann", max_in_flight=1))
    mine, theirs = (house.wake([wake("c", domain=domain, owner="ann")])[0].id for domain in (MINE, THEIRS))
    store = scoped(runner, MINE)
    assert [answer.job for answer in store.claim([claim(theirs)])] == [None]
    running = take(house, theirs)
    assert [answer.job for answer in store.claim([claim(mine)])] == [None]  # the one place is taken, by whomever
    assert mine not in {found.id for found in store.due()}
    finish = Finish(running.lease_id or "", running.attempt, running.generation, Kind.DONE)
    house.swap([Change(theirs, running.revision, decide(running, finish, Policy(TYPE)))])
    assert store.claim([claim(mine)])[0].job is not None


def test_a_deleted_job_takes_its_history_along_under_a_scope(house: PostgresStore, runner: str, url: str) -> None:
    job = read(house, wake("a", domain=MINE).id)
    with psycopg.connect(runner) as connection:
        connection.execute("SELECT set_config('app.domain_allowlist', 'chat', true)")
        connection.execute("DELETE FROM dramaturg.job WHERE id = %s", [job.id])
    with psycopg.connect(url) as owner:
        assert one(owner, "SELECT count(*) FROM dramaturg.history WHERE job_id = %s", job.id) == 0
        assert one(owner, "SELECT count(*) FROM dramaturg.attachment WHERE job_id = %s", job.id) == 0


def test_a_wake_from_sql_needs_a_scope_and_few_rights(
    store: PostgresStore, url: str, member: Callable[[str], str]
) -> None:
    waker = url.replace("dramaturg@", f"{member('dramaturg_wake')}@")
    with psycopg.connect(waker, autocommit=True) as connection:
        for key in ("'k'", "NULL"):
            with pytest.raises(psycopg.Error, match="app.domain_allowlist") as refused:
                connection.execute(f"SELECT dramaturg.wake('test.job', key => {key})")
            assert refused.value.sqlstate == "DG003"
        with connection.transaction():
            connection.execute("SELECT set_config('app.domain_allowlist', 'default,chat', true)")
            assert one(connection, "SELECT (dramaturg.wake('test.job', key => 'k')).created") is True
            assert one(connection, "SELECT (dramaturg.wake('test.job', domain => 'chat')).created") is True
        for statement in ("SELECT FROM dramaturg.history", "DELETE FROM dramaturg.job", "SELECT dramaturg.arm()"):
            with connection.transaction(force_rollback=True):
                connection.execute("SELECT set_config('app.domain_allowlist', '*', true)")
                if "arm" in statement:
                    assert one(connection, statement) is False
                else:
                    with pytest.raises(psycopg.errors.InsufficientPrivilege):
                        connection.execute(statement)
    assert len(store.find(Filter())) == 2


def test_a_callers_own_transaction_gets_the_scope_of_the_store(store: PostgresStore, runner: str) -> None:
    ours = open_store(runner, [MINE], bound=True)
    with psycopg.connect(runner) as connection:
        ours.adopt(connection).wake([wake("a", domain=MINE)])
        with pytest.raises(NotAllowed):
            ours.adopt(connection).wake([wake("a", domain=THEIRS)])
    assert [job.domain for job in store.find(Filter())] == [MINE]
    ours.close()


def test_who_is_not_bound_or_names_no_domain_is_told_at_the_start(
    store: PostgresStore, url: str, runner: str, scoped: Callable[..., PostgresStore]
) -> None:
    with pytest.raises(Refused, match="JOBS_PG_RLS_ENABLE"):
        scoped(url, MINE).check_schema()
    with pytest.raises(Refused, match="JOBS_DOMAINS"):
        scoped(runner, None, bound=False).check_schema()
    scoped(url, None, bound=False).check_schema()
    scoped(runner, "*").check_schema()
    assert store.ping()


@given(
    st.sampled_from(["quota", "spent", "flight", "queue", "allow", "sla", "policy"]),
    st.lists(st.text("ab", max_size=2)),
)
def test_the_database_reads_a_documents_domain_as_the_store_does(direct_url: str, kind: str, parts: list[str]) -> None:
    key = SEPARATOR.join(parts)
    with psycopg.connect(direct_url) as connection:
        assert one(connection, "SELECT dramaturg.document_domain(%s, %s)", kind, key) == document_domain(kind, key)


def test_the_hot_statements_use_their_indexes_under_a_scope(
    store: PostgresStore, url: str, runner: str, scoped: Callable[..., PostgresStore]
) -> None:
    publish(store, TYPE)
    store.wake([wake(f"{place}", domain=MINE, delay=1000.0) for place in range(2_000)])
    with psycopg.connect(url, autocommit=True) as owner:
        owner.execute("ANALYZE dramaturg.job")
    ours = scoped(runner, MINE)
    ids = [ours.wake([wake(f"due-{place}", domain=MINE)])[0].id for place in range(5)]
    with psycopg.connect(url, autocommit=True) as owner:
        read_before = one(owner, "SELECT seq_scan FROM pg_stat_user_tables WHERE relname = 'job'")
    assert {found.id for found in ours.due()} == set(ids)
    jobs = [answer.job for answer in ours.claim([claim(id_) for id_ in ids])]
    assert all(jobs)
    ours.close()  # a session tells its counts when it ends
    with psycopg.connect(url, autocommit=True) as owner:
        owner.execute("SELECT pg_stat_clear_snapshot()")
        assert one(owner, "SELECT seq_scan FROM pg_stat_user_tables WHERE relname = 'job'") == read_before
