"""``fn::wake``: waking from anybody's own transaction, in SurrealQL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from store.contract import ANY_VERSION, Document
from store.errors import DramaturgError
from store.events import Wake
from store.identity import job_id
from store.payloads import decode
from store.policy import Policy
from store.surreal.errors import Thrown, results
from store.surreal.store import SurrealStore
from tests.contract import rows
from tests.contract.acts import differences, publish, read
from tests.contract.rows import TYPE, wake


def call(store: SurrealStore, statements: str, values: Mapping[str, Any] | None = None) -> list[Any]:
    """What each statement answers. Raises what the first that failed means."""
    return results(store._ask(statements, values or {}))


def test_it_makes_the_row_that_the_store_makes(store: SurrealStore) -> None:
    call(
        store,
        "fn::wake('test.job', {n: 1}, {key: 'k', owner: 'o', priority: 2, delay: 5s, max_retries: 3, request_id: 'r', "
        "trace: 't', domain: 'd', queue: 'high'})",
    )
    event = wake(domain="d", queue="high", owner="o", priority=2, delay=5, max_retries=3, request_id="r", trace="t")
    found = read(store, event.id)
    store.wake([event._replace(key="other", id=job_id("d", "high", TYPE, "other"))], now=found.created_at)
    same = read(store, job_id("d", "high", TYPE, "other"))

    assert not differences(found, same._replace(id=found.id, key="k"))


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows.names("domain"), rows.names("queue"), rows.names())
def test_it_derives_the_same_id(store: SurrealStore, domain: str, queue: str, key: str) -> None:
    names = {"d": domain, "q": queue, "k": key}
    [answer] = call(store, "fn::wake('test.job', {}, {domain: $d, queue: $q, key: $k})", names)

    assert answer["id"] == job_id(domain, queue, TYPE, key)
    assert answer["created"] or not answer["repeated"]


def test_it_commits_or_vanishes_with_the_callers_own_transaction(store: SurrealStore) -> None:
    with pytest.raises((Thrown, DramaturgError)):
        call(store, "BEGIN; CREATE orders:1; fn::wake('test.job', {}, {key: 'a'}); THROW 'no'; COMMIT")
    assert store.read([wake("a").id]) == [None]

    call(store, "BEGIN; CREATE orders:1; fn::wake('test.job', {}, {key: 'a'}); COMMIT")
    assert read(store, wake("a").id).state == "queued"


def test_what_is_left_out_comes_from_the_published_policy(store: SurrealStore) -> None:
    policy = Policy("test.mild", queue="low", priority=8, max_retries=2)
    assert store.put(Document("policy", policy.job_type, ANY_VERSION, policy.document()))

    [answer] = call(store, "fn::wake('test.mild', {})")

    job = read(store, answer["id"])
    assert (job.queue, job.priority, job.max_retries, job.key, job.domain) == ("low", 8, 2, None, "default")


def test_once_leaves_the_original_and_needs_a_type_that_keeps_its_rows(store: SurrealStore) -> None:
    first, again = call(
        store, "fn::wake('test.job', 1, {key: 'k', once: true}); fn::wake('test.job', 2, {key: 'k', once: true})"
    )
    assert (first["created"], again["created"], again["repeated"]) == (True, False, True)
    assert decode(read(store, wake().id).payload) == 1

    store.put(Document("policy", TYPE, ANY_VERSION, Policy(TYPE, keep_finished=False).document()))
    with pytest.raises(Thrown):
        call(store, "fn::wake('test.job', 1, {key: 'x', once: true})")


@pytest.mark.parametrize(
    "options", ["{priority: 11}", "{key: ''}", "{key: 'a\\nb'}", "{nonsense: 1}", "{queue: 7}", "{run_at: 'soon'}"]
)
def test_what_can_not_be_is_refused(store: SurrealStore, options: str) -> None:
    publish(store, "test.other")
    with pytest.raises((Thrown, DramaturgError)):
        call(store, f"fn::wake('test.other', {{}}, {options})")


def test_it_rings_for_whoever_waits(store: SurrealStore) -> None:
    signal = store.changes()
    try:
        call(store, "fn::wake('test.job', {}, {key: 'k'})")
        assert signal.wait(20)
    finally:
        signal.close()


def test_values_of_every_kind_become_json(store: SurrealStore) -> None:
    [answer] = call(
        store, "fn::wake('test.job', $value)", {"value": {"n": 2**53 + 1, "f": 0.5, "t": "é🎭", "l": [True, []]}}
    )
    assert decode(read(store, answer["id"]).payload) == {"n": 2**53 + 1, "f": 0.5, "t": "é🎭", "l": [True, []]}


def test_a_wake_of_the_store_and_one_of_the_function_are_one_job(store: SurrealStore) -> None:
    event: Wake = wake("shared")
    [made] = store.wake([event])
    [answer] = call(store, "fn::wake('test.job', {}, {key: 'shared'})")

    assert answer["id"] == made.id
    assert answer["generation"] == made.generation + 1
