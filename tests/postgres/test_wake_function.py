"""``dramaturg.wake``: a wake from any language, as part of the caller's transaction."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from psycopg.rows import namedtuple_row

from store import identity
from store.contract import ANY_VERSION, Document
from store.engines.places import postgres_programs
from store.policy import Policy
from store.postgres.store import PostgresStore
from tests.contract.acts import at_once, differences, read, take
from tests.contract.rows import NOW, TYPE, later, wake
from tests.postgres.acts import one

Connect = Callable[[], psycopg.Connection]


def call(connection: psycopg.Connection, arguments: str, *values: Any) -> Any:
    """The row that ``dramaturg.wake`` answers."""
    with connection.cursor(row_factory=namedtuple_row) as cursor:
        return cursor.execute(f"SELECT * FROM dramaturg.wake({arguments})", values).fetchone()


# --- as part of a transaction -----------------------------------------------------------------------------------------


def psql(url: str, script: str) -> str:
    """What psql prints."""
    program = postgres_programs() / "psql"
    run = subprocess.run(
        [str(program), "--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "-v", "ON_ERROR_STOP=1", url],
        input=script,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return run.stdout


WAKE = f"""SELECT (dramaturg.wake('{TYPE}', key => '7', payload => '{{"invoice_id": 7}}')).id;\n"""


def test_a_wake_in_psql_that_is_rolled_back_never_was(store: PostgresStore, url: str) -> None:
    printed = psql(url, f"BEGIN;\n{WAKE}ROLLBACK;\n")

    assert store.read([printed.strip()]) == [None]
    assert store.due() == []


def test_a_wake_in_psql_runs_once_it_is_committed(store: PostgresStore, url: str) -> None:
    printed = psql(url, f"BEGIN;\n{WAKE}COMMIT;\n")

    [due] = store.due()
    assert due.id == printed.strip() == identity.job_id("default", "default", TYPE, "7")
    assert take(store, due.id).payload == '{"invoice_id": 7}'


def test_a_wake_in_psql_alone_is_its_own_transaction(store: PostgresStore, url: str) -> None:
    psql(url, WAKE)

    assert len(store.due()) == 1


# --- what it writes and answers ---------------------------------------------------------------------------------------


def test_it_writes_what_the_store_writes(store: PostgresStore, connect: Connect) -> None:
    connection = connect()
    arguments = (
        "%s, key => %s, payload => %s, run_at => %s, queue => %s, domain => %s, owner => %s, priority => 3, "
        "max_retries => 4, request_id => 'r-1', trace => 't', now => %s"
    )
    call(connection, arguments, TYPE, "k", '{"n": 2}', later(50), "high", "north", "ö", NOW)
    fields: dict[str, Any] = {"queue": "high", "domain": "north", "owner": "ö", "priority": 3, "max_retries": 4}
    event = wake("k", payload='{"n": 2}', run_at=later(50), request_id="r-1", trace="t", **fields)
    by_function = read(store, event.id)
    with store.transaction() as tx:
        tx.execute("DELETE FROM dramaturg.job")

    store.wake([event], now=NOW)

    assert not differences(by_function, read(store, event.id))


def test_it_answers_what_is_stored(connect: Connect) -> None:
    connection = connect()

    first = call(connection, "%s, key => 'k', now => %s", TYPE, NOW)
    again = call(connection, "%s, key => 'k', delay => '5 min', now => %s", TYPE, later(9))
    once = call(connection, "%s, key => 'k', once => true, now => %s", TYPE, later(10))

    assert (first.state, first.created, first.repeated, first.due) == ("queued", True, False, True)
    assert (again.id, again.generation, again.run_at) == (first.id, first.generation + 1, NOW)
    assert (again.created, again.repeated) == (False, False)
    assert once == again._replace(repeated=True)


def test_what_is_left_out_comes_from_the_types_policy(store: PostgresStore, connect: Connect) -> None:
    policy = Policy("test.slow", queue="low", priority=8, max_retries=2)
    store.put(Document("policy", "test.slow", ANY_VERSION, policy.document()))
    connection = connect()

    plain = read(store, str(call(connection, "'test.slow', key => 'a'").id))
    said = read(store, str(call(connection, "'test.slow', 'a', queue => 'high', priority => 1, max_retries => 9").id))

    assert (plain.queue, plain.priority, plain.max_retries) == ("low", 8, 2)
    assert plain.id == identity.job_id("default", "low", "test.slow", "a")
    assert (said.queue, said.priority, said.max_retries) == ("high", 1, 9)


def test_a_type_that_nobody_published_is_accepted_and_waits(store: PostgresStore, connect: Connect) -> None:
    job = read(store, str(call(connect(), "'test.tomorrow'").id))

    assert (job.queue, job.priority, job.max_retries, job.payload) == ("default", 5, None, "{}")
    assert (job.domain, job.key, job.state) == ("default", None, "queued")
    assert store.due() == []


NAMES = [
    ("default", "default", "invoice.send", "7"),
    ("north", "a b", "x", "🎭日本"),
    ("d" * 128, "ä'\"%", "\\", "k" * 512),
    ("null", "{}", "ß", "a,b;c:d"),
]


@pytest.mark.parametrize(("domain", "queue", "job_type", "key"), NAMES)
def test_ids_are_derived_as_everywhere(connect: Connect, domain: str, queue: str, job_type: str, key: str) -> None:
    woken = call(connect(), "%s, key => %s, queue => %s, domain => %s", job_type, key, queue, domain)

    assert str(woken.id) == identity.job_id(domain, queue, job_type, key)


def test_without_a_key_ids_are_new_and_in_the_order_of_time(connect: Connect) -> None:
    connection = connect()
    ids = [call(connection, "%s", TYPE).id for _ in range(5)]
    between = uuid.UUID(identity.new_id())

    assert len(set(ids)) == 5
    assert {(id_.version, id_.variant) for id_ in ids} == {(between.version, between.variant)} == {(7, uuid.RFC_4122)}
    assert max(id_.int >> 80 for id_ in ids) <= between.int >> 80


def test_a_delay_is_added_to_now_or_to_a_moment(connect: Connect) -> None:
    connection = connect()

    assert call(connection, "%s, delay => '90 s', now => %s", TYPE, NOW).run_at == later(90)
    both = call(connection, "%s, run_at => %s, delay => '1 min', now => %s", TYPE, later(5), NOW)
    assert both.run_at == later(65)
    assert one(connection, "SELECT (dramaturg.wake(%s, run_at => 'infinity', delay => '1 s')).run_at::text", TYPE) == (
        "infinity"
    )


def test_a_held_row_is_told(store: PostgresStore, connect: Connect) -> None:
    store.wake([wake()])
    with store.transaction() as tx:
        tx.execute("UPDATE dramaturg.job SET state = 'quarantined', held_at = now(), run_at = 'infinity'")

    assert one(connect(), "SELECT (dramaturg.wake(%s, key => 'k')).state", TYPE) == "quarantined"


# --- racing -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("once", [False, True])
def test_twenty_sessions_that_wake_one_key_get_one_row(connect: Connect, once: bool) -> None:
    connections = [connect() for _ in range(20)]

    woken = at_once([lambda c=c: call(c, "%s, key => 'k', once => %s", TYPE, once) for c in connections])  # type: ignore[misc]

    assert len({answer.id for answer in woken}) == 1
    assert sum(answer.created for answer in woken) == 1
    assert sum(answer.repeated for answer in woken) == (19 if once else 0)
    spread = 0 if once else 19
    assert max(answer.generation for answer in woken) - min(answer.generation for answer in woken) == spread
    assert one(connections[0], "SELECT count(*) FROM dramaturg.job") == 1


# --- the signal -------------------------------------------------------------------------------------------------------


def heard(connection: psycopg.Connection) -> list[str]:
    """The queues that were rung since; a notice of our own marks the end, as notices keep their order."""
    end = uuid.uuid4().hex
    connection.execute("SELECT pg_notify('dramaturg_wake', %s)", [end])
    queues = []
    for notice in connection.notifies(timeout=20):
        if notice.payload == end:
            break
        queues.append(notice.payload)
    return queues


def test_it_rings_at_the_commit_and_only_where_a_job_is_due(connect: Connect) -> None:
    listener, caller = connect(), connect()
    listener.execute("LISTEN dramaturg_wake")

    call(caller, "%s, delay => '1 hour'", TYPE)
    one(caller, "SELECT (dramaturg.wake(%s, run_at => 'infinity')).due", TYPE)
    with caller.transaction(force_rollback=True):
        call(caller, "%s", TYPE)
    assert heard(listener) == []

    with caller.transaction():
        call(caller, "%s, queue => 'high'", TYPE)
        call(caller, "%s, queue => 'high'", TYPE)
        call(caller, "%s, queue => 'low', delay => '0.5 s'", TYPE)
        assert heard(listener) == []
    assert sorted(heard(listener)) == ["high", "low"]


def test_a_store_rings_unless_it_is_told_not_to(store: PostgresStore, connect: Connect) -> None:
    listener = connect()
    listener.execute("LISTEN dramaturg_wake")

    store.wake([wake("a")], notify=False)
    assert heard(listener) == []

    store.wake([wake("b"), wake("c")])
    assert heard(listener) == ["default"]


# --- refusals ---------------------------------------------------------------------------------------------------------

DEEP = "[" * 65 + "]" * 65
REFUSED = {
    "an empty key": ("%s, key => ''", "key is empty"),
    "a blank key": ("%s, key => E'\\u2003 '", "key is empty"),
    "a line break in the key": ("%s, key => E'a\\nb'", "key holds a control character"),
    "the separator in the key": ("%s, key => E'a\\u001fb'", "key holds a control character"),
    "a C1 control in the domain": ("%s, domain => E'a\\u0085b'", "domain holds a control character"),
    "a key that is not NFC": ("%s, key => E'e\\u0301'", "normal form NFC"),
    "a long key": ("%s, key => repeat('k', 513)", "key has 513 characters; 512 are allowed"),
    "a long queue": ("%s, queue => repeat('q', 129)", "queue has 129 characters"),
    "an empty queue": ("%s, queue => ''", "queue is empty"),
    "an empty type": ("%s || NULL || ''", "job type and domain must not be NULL"),
    "a type that is blank": ("repeat(' ', length(%s))", "job type is empty"),
    "no domain": ("%s, domain => NULL", "job type and domain must not be NULL"),
    "a long owner": ("%s, owner => repeat('o', 257)", "owner has 257 characters"),
    "a control in the request id": ("%s, request_id => E'\\t'", "request id is empty"),
    "priority 0": ("%s, priority => 0", "priority must be"),
    "priority 11": ("%s, priority => 11", "priority must be"),
    "101 retries": ("%s, max_retries => 101", "max_retries must be"),
    "minus one retries": ("%s, max_retries => -1", "max_retries must be"),
    "a negative delay": ("%s, delay => '-1 s'", "delay must not be negative"),
    "the first moment of all": ("%s, run_at => '-infinity'", "delay must not be negative"),
    "65 levels": (f"%s, payload => '{DEEP}'", "payload is nested more than 64 levels deep"),
    "more than a megabyte": ("%s, payload => to_jsonb(repeat('x', 1048576))", "payload has more than 1048576 bytes"),
    "a number beyond 64 bits": ("%s, payload => '{\"a\": [9223372036854775808]}'", "payload holds a number beyond"),
    "a negative one": ("%s, payload => '-9223372036854775809'", "payload holds a number beyond"),
    "NULL for a payload": ("%s, payload => NULL", "payload is NULL"),
}


@pytest.mark.parametrize(("arguments", "says"), REFUSED.values(), ids=REFUSED)
def test_what_can_not_be_is_refused_with_our_code_and_a_clear_text(connect: Connect, arguments: str, says: str) -> None:
    connection = connect()

    with pytest.raises(psycopg.Error) as refused:
        call(connection, arguments, TYPE)

    assert refused.value.sqlstate == "DG001"
    assert says in (refused.value.diag.message_primary or "")
    assert one(connection, "SELECT count(*) FROM dramaturg.job") == 0


def test_the_limits_themselves_are_allowed(connect: Connect) -> None:
    arguments = (
        "%s, key => repeat('k', 512), owner => repeat('o', 256), priority => 10, max_retries => 100, payload => %s"
    )
    payload = "[" * 64 + "9223372036854775807, -9223372036854775808, 1e18" + "]" * 64

    assert call(connect(), arguments, TYPE, payload).created


def test_once_is_refused_where_no_finished_rows_are_kept(store: PostgresStore, connect: Connect) -> None:
    policy = Policy("test.brief", keep_finished=False)
    store.put(Document("policy", "test.brief", ANY_VERSION, policy.document()))
    connection = connect()

    with pytest.raises(psycopg.Error, match="keeps no finished rows") as refused:
        call(connection, "'test.brief', key => 'k', once => true")
    assert refused.value.sqlstate == "DG001"
    assert call(connection, "'test.brief', key => 'k'").created


def test_nothing_that_a_caller_puts_in_the_way_changes_what_it_does(connect: Connect) -> None:
    connection = connect()
    connection.execute("BEGIN")
    connection.execute(
        "CREATE SCHEMA evil;"
        "CREATE FUNCTION evil.sha256(bytea) RETURNS bytea LANGUAGE sql AS $$ SELECT '\\x00'::bytea $$;"
        "CREATE FUNCTION evil.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS $$ SELECT now() + '9 days' $$;"
        "CREATE TABLE evil.job (id uuid); SET search_path = evil, pg_catalog"
    )

    woken = call(connection, "%s, key => '7'", TYPE)

    assert str(woken.id) == identity.job_id("default", "default", TYPE, "7")
    assert woken.due
