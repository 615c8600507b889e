"""Allow-lists and quotas: obeyed by wakes, by `due` and by claims, and nothing where there are none."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from store import limits
from store.contract import ANY_VERSION, Document, Store
from store.errors import DramaturgError, NotAllowed, NotFound, QuotaExceeded, UsageError
from store.events import Cancel, Kind
from store.filters import Filter
from store.identity import SEPARATOR
from store.limits import Quota, list_key, remove_quota, set_quota
from store.operations import apply
from tests.contract.acts import at_once, publish, read, settle, take
from tests.contract.adapters import Adapter
from tests.contract.rows import NOW, TYPE, claim, finish, later, row, wake


def allow(store: Store, what: str, *names: str, domain: str | None = None) -> None:
    assert store.put(Document("allow", list_key(what, domain), ANY_VERSION, {"names": list(names)}))


def starts(store: Store, *ids: str) -> list[bool]:
    """Whether claims get these rows, which `due` must have offered if they do."""
    offered = {due.id for due in store.due()}
    taken = [store.claim([claim(id_)])[0].job is not None for id_ in ids]
    assert all(id_ in offered for id_, one in zip(ids, taken, strict=True) if one)
    return taken


def refused(act: Callable[[], object], error: type[DramaturgError] = QuotaExceeded) -> str:
    with pytest.raises(error) as raised:
        act()
    return str(raised.value)


# --- allow-lists


def test_only_queues_on_the_list_and_those_that_always_exist_take_wakes(store: Store) -> None:
    allow(store, "queues", "mail")
    store.wake([wake(queue=queue) for queue in ("mail", "default", "high", "low")])
    told = refused(lambda: store.wake([wake("fine"), wake(queue="other")]), NotAllowed)
    assert "queue 'other' is not on the list" in told
    assert "JOBS_ALLOWED_QUEUES" in told
    assert store.read([wake("fine").id]) == [None], "a refused batch wrote something"


def test_only_types_on_the_list_are_woken(store: Store) -> None:
    allow(store, "types", TYPE)
    store.wake([wake()])
    assert "test.other" in refused(lambda: store.wake([wake(job_type="test.other")]), NotAllowed)


def test_a_domains_list_adds_to_the_one_for_all(store: Store) -> None:
    allow(store, "queues", "mail")
    allow(store, "queues", "print", domain="office")
    store.wake([wake(queue="mail"), wake(queue="mail", domain="office"), wake(queue="print", domain="office")])
    refused(lambda: store.wake([wake(queue="print")]), NotAllowed)
    refused(lambda: store.wake([wake(queue="else", domain="office")]), NotAllowed)


def test_a_domains_list_alone_says_nothing_of_others(store: Store) -> None:
    allow(store, "types", "test.other", domain="office")
    store.wake([wake()])
    refused(lambda: store.wake([wake(domain="office")]), NotAllowed)


def test_rows_that_are_there_and_not_allowed_do_not_run_until_they_are(store: Store) -> None:
    ids = [
        one.id
        for one in store.wake(
            [wake(queue="mail"), wake(queue="print", domain="office"), wake(queue="print"), wake("of default")]
        )
    ]
    allow(store, "queues", "mail")
    allow(store, "queues", "print", domain="office")
    assert {due.id for due in store.due()} == {ids[0], ids[1], ids[3]}
    assert starts(store, *ids) == [True, True, False, True]
    assert store.claim([claim(ids[2])])[0].held is False
    assert store.remove("allow", list_key("queues"))
    assert store.remove("allow", list_key("queues", "office"))
    assert starts(store, ids[2]) == [True]


# --- quotas: waiting


def test_a_wake_beyond_what_may_wait_is_refused_with_its_whole_batch(store: Store) -> None:
    set_quota(store, Quota("default", None, max_queued=2))
    store.wake([wake("a")])
    told = refused(lambda: store.wake([wake("b"), wake("c")]))
    assert "2 jobs that wait" in told
    assert "domain default" in told
    assert store.read([wake("b").id]) == [None]
    store.wake([wake("b")])
    refused(lambda: store.wake([wake("c")]))
    refused(lambda: store.wake([wake(None)]))
    store.wake([wake("c", domain="elsewhere")])


def test_a_wake_that_adds_no_row_is_taken_however_full_it_is(store: Store) -> None:
    runs = take(store, store.wake([wake("runs")])[0].id)
    set_quota(store, Quota(None, None, max_queued=1))
    store.wake([wake("a")])
    store.wake([wake("a", payload='{"n":2}')])
    assert store.wake([wake("a", once=True)])[0].repeated
    store.wake([wake("runs")])
    assert read(store, wake("a").id).payload.replace(" ", "") == '{"n":2}'
    assert read(store, runs.id).generation > runs.generation


def test_a_row_that_had_ended_is_added_again_by_a_wake(store: Store) -> None:
    ended = take(store, store.wake([wake("ended")])[0].id)
    assert settle(store, ended, finish(ended))
    set_quota(store, Quota(None, None, max_queued=1))
    store.wake([wake("a")])
    refused(lambda: store.wake([wake("ended")]))
    assert read(store, ended.id).state == "completed"


def test_what_has_left_the_queue_makes_room(store: Store) -> None:
    set_quota(store, Quota(None, None, max_queued=3))
    store.wake([wake("a"), wake("b"), wake("c")])
    refused(lambda: store.wake([wake("d")]))
    apply(store, Filter(key="a"), Cancel())
    store.wake([wake("d")])
    take(store, wake("b").id)
    store.wake([wake("e")])
    refused(lambda: store.wake([wake("f")]))


def test_what_comes_back_from_a_run_takes_its_place_again(store: Store) -> None:
    job = take(store, store.wake([wake("a")])[0].id)
    set_quota(store, Quota(None, None, max_queued=2))
    store.wake([wake("b")])  # counted here, while the other ran
    assert settle(store, job, finish(job, Kind.AGAIN))
    assert read(store, job.id).state == "queued"
    refused(lambda: store.wake([wake("c")]))


def test_the_most_specific_quota_governs_a_row_and_it_counts_for_no_other(store: Store) -> None:
    set_quota(store, Quota(None, None, max_queued=1))
    set_quota(store, Quota("big", None, max_queued=3))
    set_quota(store, Quota(None, "ann", max_queued=2))
    set_quota(store, Quota("big", "ann", max_queued=1))
    for quota, domain, owner, most in (
        ("domain and owner", "big", "ann", 1),
        ("owner", "small", "ann", 2),
        ("domain", "big", "bob", 3),
        ("all", "small", None, 1),
    ):
        for number in range(most):
            store.wake([wake(f"{quota} {number}", domain=domain, owner=owner)])
        refused(lambda domain=domain, owner=owner: store.wake([wake("more", domain=domain, owner=owner)]))  # type: ignore[misc]
    refused(lambda: store.wake([wake("third domain", domain="third", owner="ann")]))


def test_each_figure_is_governed_by_itself(store: Store) -> None:
    set_quota(store, Quota(None, None, max_queued=1, submits_per_minute=100))
    set_quota(store, Quota("default", None, submits_per_minute=50))
    store.wake([wake("a")])
    assert "1 jobs that wait for everything" in refused(lambda: store.wake([wake("b")]))


def test_of_wakes_that_race_for_the_last_places_no_more_get_in_than_there_are(store: Store, other: Store) -> None:
    set_quota(store, Quota("default", None, max_queued=3, submits_per_minute=1000))

    def ask(number: int) -> bool:
        try:
            (store if number % 2 else other).wake([wake(f"n{number}")])
        except QuotaExceeded:
            return False
        return True

    got = at_once([lambda number=number: ask(number) for number in range(10)])  # type: ignore[misc]
    assert sum(got) == 3
    assert len(store.find(Filter(states=["queued"]))) == 3


def test_a_wake_in_a_transaction_is_refused_there_too_and_one_that_rolls_back_counts_for_nothing(store: Store) -> None:
    set_quota(store, Quota(None, None, max_queued=1))
    with pytest.raises(ZeroDivisionError), store.transaction() as tx:
        tx.wake([wake("a")])
        raise ZeroDivisionError
    store.wake([wake("b")])

    def both() -> None:
        with store.transaction() as tx:
            tx.wake([wake("c")])

    refused(both)
    assert store.read([wake("a").id, wake("c").id]) == [None, None]


# --- quotas: submits


def test_submits_are_counted_by_the_minute_and_replays_are_none(store: Store) -> None:
    set_quota(store, Quota("default", None, submits_per_minute=3))
    store.wake([wake("a")], now=NOW)
    store.wake([wake("a")], now=later(1))  # coalesced, and a submit
    assert store.wake([wake("a", once=True)], now=later(2))[0].repeated
    told = refused(lambda: store.wake([wake("b"), wake("c")], now=later(3)))
    assert "3 submits in a minute" in told
    store.wake([wake("b")], now=later(4))
    refused(lambda: store.wake([wake("a")], now=later(5)))
    store.wake([wake("a"), wake("b"), wake("c")], now=later(61))
    assert store.read([wake("c").id]) != [None]


def test_a_quota_of_an_owner_does_not_hold_for_what_has_none(store: Store) -> None:
    set_quota(store, Quota(None, "ann", submits_per_minute=0))
    store.wake([wake("nobodys")])
    refused(lambda: store.wake([wake("hers", owner="ann")]))


def test_the_owner_that_a_row_has_is_the_one_that_counts(store: Store) -> None:
    store.wake([wake("a", owner="ann")])
    set_quota(store, Quota(None, "ann", submits_per_minute=0))
    refused(lambda: store.wake([wake("a", owner="bob")]))


# --- quotas: in flight


def test_a_claim_beyond_what_may_run_is_refused_and_not_offered_until_one_ends(store: Store) -> None:
    set_quota(store, Quota("default", None, max_in_flight=2))
    ids = [one.id for one in store.wake([wake(key) for key in "abcd"])]
    assert len(store.due()) == 4
    claims = store.claim([claim(id_) for id_ in ids])
    assert [one.job is not None for one in claims] in permuted(2, 4)
    assert not any(one.held for one in claims)
    assert store.due() == []
    job = next(one.job for one in claims if one.job is not None)
    assert settle(store, job, finish(job))
    waiting = [id_ for id_ in ids if read(store, id_).state == "queued"]
    assert {due.id for due in store.due()} == set(waiting)
    assert starts(store, *waiting) == [True, False]


def permuted(ones: int, size: int) -> list[list[bool]]:
    return [[bool(bits >> place & 1) for place in range(size)] for bits in range(1 << size) if bits.bit_count() == ones]


def test_only_leases_that_stand_are_in_flight(store: Store, adapter: Adapter) -> None:
    adapter.plant(store, [row("processing", key="lapsed", leased_until=later(-1)), row(key="waits")])
    set_quota(store, Quota("default", None, max_in_flight=1))
    assert [due.id for due in store.due(now=NOW)] == [row(key="waits").id]
    assert store.claim([claim(row(key="waits").id)], now=NOW)[0].job is not None
    assert store.due(now=NOW) == []


def test_the_same_claim_again_gets_the_same_answer_however_full_it_is(store: Store) -> None:
    set_quota(store, Quota("default", None, max_in_flight=1))
    asked = claim(store.wake([wake()])[0].id)
    [first], [again] = store.claim([asked]), store.claim([asked])
    assert first.job is not None
    assert again.job == first.job


def test_of_claims_that_race_for_the_last_place_one_gets_it(store: Store, other: Store) -> None:
    set_quota(store, Quota(None, None, max_in_flight=1))
    ids = [one.id for one in store.wake([wake(f"n{number}") for number in range(8)])]
    calls = [
        lambda number=number, id_=id_: (store if number % 2 else other).claim([claim(id_)])[0].job is not None  # type: ignore[misc]
        for number, id_ in enumerate(ids)
    ]
    assert sum(at_once(calls)) == 1
    assert len(store.find(Filter(states=["processing"]))) == 1


def test_batches_of_claims_under_several_quotas_do_not_wait_for_each_other_in_a_circle(
    store: Store, other: Store
) -> None:
    for domain in "pq":
        set_quota(store, Quota(domain, None, max_in_flight=3))
    wakes = [wake(f"n{number}", domain="pq"[number % 2]) for number in range(20)]
    ids = [one.id for one in store.wake(wakes)]
    batches = [ids[:10], ids[10:], ids[5:15], ids[::2]]
    stores = (store, other, store, other)
    at_once([partial(one.claim, [claim(id_) for id_ in some]) for one, some in zip(stores, batches, strict=True)])
    running = store.find(Filter(states=["processing"]))
    assert sorted(job.domain for job in running) == ["p"] * 3 + ["q"] * 3


@pytest.mark.parametrize("why", ["over its quota", "not allowed"])
def test_a_healthy_row_is_not_hidden_behind_many_that_limits_keep(store: Store, adapter: Adapter, why: str) -> None:
    publish(store, "test.other")
    if why == "not allowed":
        allow(store, "types", TYPE)
    else:
        set_quota(store, Quota("crowd", None, max_in_flight=0))
    stuck = [
        row(key=f"stuck-{number}", domain="crowd", job_type="test.other", priority=1, run_at=later(-1000))
        for number in range(150)
    ]
    healthy = row(key="healthy", priority=10)
    adapter.plant(store, [*stuck, healthy])
    assert [due.id for due in store.due(limit=100, now=NOW)] == [healthy.id]
    first = store.due(limit=1, now=NOW)
    assert [due.id for due in first] == [healthy.id]
    assert store.due(limit=1, after={"default": first[0]}, now=NOW) == []


def test_pages_go_on_under_limits(store: Store, adapter: Adapter) -> None:
    set_quota(store, Quota("crowd", None, max_in_flight=0))
    free = [row(key=f"free-{number:02}", run_at=later(-number // 3), priority=1 + number % 2) for number in range(20)]
    stuck = [row(key=f"stuck-{number}", domain="crowd", run_at=later(-3)) for number in range(20)]
    adapter.plant(store, [*free, *stuck])
    found = page = store.due(limit=7, now=NOW)
    while page:
        page = store.due(limit=7, after={"default": page[-1]}, now=NOW)
        found = found + page
    assert [due.id for due in found] == [
        job.id for job in sorted(free, key=lambda job: (job.priority, job.run_at, job.id))
    ]


# --- the operator's side


def test_a_quota_is_amended_figure_by_figure_listed_and_removed(store: Store) -> None:
    set_quota(store, Quota("default", "ann", max_queued=5))
    assert set_quota(store, Quota("default", "ann", max_in_flight=2)) == Quota("default", "ann", 5, None, 2)
    set_quota(store, Quota(None, None, submits_per_minute=9))
    assert limits.quotas(store) == [Quota(None, None, None, 9, None), Quota("default", "ann", 5, None, 2)]
    remove_quota(store, "default", "ann")
    refused(lambda: remove_quota(store, "default", "ann"), NotFound)
    assert limits.quotas(store) == [Quota(None, None, None, 9, None)]


def test_removing_a_quota_removes_its_counters(store: Store) -> None:
    set_quota(store, Quota("default", None, max_queued=5, max_in_flight=5))
    take(store, store.wake([wake()])[0].id)
    remove_quota(store, "default", None)
    assert store.list("spent") == store.list("flight") == []
    assert limits.limits(store) is None


@pytest.mark.parametrize("quota", [Quota("a", None), Quota("a", None, -1), Quota("a\n", None, 1), Quota(None, "", 1)])
def test_a_quota_that_can_not_be_is_refused(store: Store, quota: Quota) -> None:
    refused(lambda: set_quota(store, quota), UsageError)
    assert store.list("quota") == []


def test_limits_that_can_not_be_read_limit_nothing(store: Store) -> None:
    store.put(Document("quota", SEPARATOR, ANY_VERSION, {"max_queued": None}))
    store.put(Document("allow", list_key("queues"), ANY_VERSION, {}))
    assert starts(store, store.wake([wake(queue="else")])[0].id) == [True]


def test_where_there_are_no_limits_nothing_is_counted(store: Store) -> None:
    take(store, store.wake([wake()])[0].id)
    assert store.list("spent") == store.list("flight") == []
