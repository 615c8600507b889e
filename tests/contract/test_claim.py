"""A claim takes a runnable row under a lease of the claimer's own, and no other row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial

import pytest

from store import identity
from store.clock import PARKED
from store.contract import ANY_VERSION, Claimed, Document, Store
from store.errors import StoreUnavailable
from store.events import Claim, Event, GiveBack, Kind, Reclaim, Release
from store.job import Job
from store.policy import Policy
from store.transitions import after
from tests.contract import rows
from tests.contract.acts import at_once, differences, pause, publish, read, settle, take
from tests.contract.adapters import Adapter
from tests.contract.rows import LEASE, NOW, OTHER_LEASE, SPENT_LEASE, TYPE, claim, later, row, wake

REFUSED = Claimed(None, held=False)


def test_a_claim_takes_the_row_and_answers_it_as_it_is_then(store: Store, adapter: Adapter) -> None:
    before = row(retries=2, progress_percent=80, progress_message="nearly", ended_lease=SPENT_LEASE)
    adapter.plant(store, [before])
    asked = claim(before.id, OTHER_LEASE, worker="münchen-1", seconds=42.5)

    [claimed] = store.claim([asked], now=NOW)

    expected = after(before, asked, NOW, Policy(TYPE))
    assert not claimed.held
    assert not differences(claimed.job, expected)
    assert not differences(read(store, before.id), expected)


def test_a_lease_counts_from_the_databases_now(store: Store) -> None:
    [woken] = store.wake([wake()])

    before = store.ping()
    job = take(store, woken.id, seconds=30)
    until = store.ping()

    assert job.leased_until is not None
    assert job.started_at is not None
    assert before <= job.started_at <= until
    assert before <= job.leased_until - (later(30) - NOW) <= until


# --- one predicate for ``due`` and ``claim`` --------------------------------------------------------------------------


def _plain(store: Store, adapter: Adapter) -> None:
    pass


def _resumed(store: Store, adapter: Adapter) -> None:
    pause(store, "default")
    pause(store, "default", "default")
    pause(store, "default", paused=False)
    pause(store, "default", "default", paused=False)


def _others_are_paused(store: Store, adapter: Adapter) -> None:
    pause(store, "high")
    pause(store, "default", "elsewhere")
    pause(store, "high", "default")


def _pause_document_says_nothing(store: Store, adapter: Adapter) -> None:
    store.put(Document("queue", "default", ANY_VERSION, {"note": "quota"}))


def _another_kind_of_document(store: Store, adapter: Adapter) -> None:
    store.put(Document("queues", "default", ANY_VERSION, {"paused": True}))


@pytest.mark.parametrize(
    "arrange", [_plain, _resumed, _others_are_paused, _pause_document_says_nothing, _another_kind_of_document]
)
def test_a_runnable_row_is_due_and_can_be_claimed(
    store: Store, adapter: Adapter, arrange: Callable[[Store, Adapter], None]
) -> None:
    adapter.plant(store, [row(run_at=NOW)])
    arrange(store, adapter)

    assert [due.id for due in store.due(now=NOW)] == [row().id]
    assert take(store, row().id, now=NOW).state == "processing"


def _queue_is_paused(store: Store) -> Job:
    pause(store, "default")
    return row()


def _queue_is_paused_for_its_domain(store: Store) -> Job:
    pause(store, "default", "default")
    return row()


def _queue_goes_on_for_its_domain_but_is_paused_for_all(store: Store) -> Job:
    pause(store, "default")
    pause(store, "default", "default", paused=False)
    return row()


def _queue_with_an_odd_name_is_paused(store: Store) -> Job:
    pause(store, "a\"%s'", "日本🎭")
    return row(queue="a\"%s'", domain="日本🎭")


def _type_is_not_published(store: Store) -> Job:
    return row(job_type="test.unknown")


def _type_differs_in_case(store: Store) -> Job:
    return row(job_type=TYPE.upper())


def _not_due_for_a_microsecond(store: Store) -> Job:
    return row(run_at=later(0.000001))


def _parked(store: Store) -> Job:
    return row(run_at=PARKED)


INELIGIBLE = [
    _queue_is_paused,
    _queue_is_paused_for_its_domain,
    _queue_goes_on_for_its_domain_but_is_paused_for_all,
    _queue_with_an_odd_name_is_paused,
    _type_is_not_published,
    _type_differs_in_case,
    _not_due_for_a_microsecond,
    _parked,
    *(
        lambda _, state=state: row(state, run_at=later(-60) if state == "processing" else PARKED)
        for state in rows.STATES
        if state != "queued"
    ),
]


@pytest.mark.parametrize("arrange", INELIGIBLE)
def test_what_is_not_runnable_is_not_due_and_refuses_a_claim(
    store: Store, adapter: Adapter, arrange: Callable[[Store], Job]
) -> None:
    before = arrange(store)
    adapter.plant(store, [before])

    assert store.due(now=NOW) == []
    assert store.claim([claim(before.id)], now=NOW) == [REFUSED]
    assert not differences(read(store, before.id), before)


def test_a_row_becomes_runnable_when_its_type_is_published(store: Store, adapter: Adapter) -> None:
    before = row(job_type="test.later")
    adapter.plant(store, [before])

    assert store.claim([claim(before.id)], now=NOW) == [REFUSED]
    publish(store, "test.later")
    assert [due.id for due in store.due(now=NOW)] == [before.id]
    assert take(store, before.id, now=NOW).attempt == 3


def test_what_is_not_there_refuses(store: Store) -> None:
    assert store.claim([claim(identity.new_id())], now=NOW) == [REFUSED]
    assert store.claim([]) == []


# --- the same again, and too late -------------------------------------------------------------------------------------


def test_a_claim_repeated_gets_the_same_answer(store: Store, adapter: Adapter) -> None:
    adapter.plant(store, [row()])
    asked = claim(row().id)

    [first] = store.claim([asked], now=NOW)
    [again] = store.claim([asked], now=later(5))

    assert again == first
    assert read(store, row().id) == first.job


def test_a_claim_repeated_after_a_wake_sees_the_newer_intent_under_the_same_attempt(store: Store) -> None:
    store.wake([wake()], now=NOW)
    asked = claim(wake().id)
    [first] = store.claim([asked], now=NOW)
    store.wake([wake(payload="[2]")], now=NOW)

    [again] = store.claim([asked], now=NOW)

    assert first.job is not None
    assert again.job is not None
    assert (again.job.attempt, again.job.lease_id) == (first.job.attempt, first.job.lease_id)
    assert (again.job.generation, again.job.payload) == (first.job.generation + 1, "[2]")


def test_a_claim_repeated_gets_its_row_even_where_the_queue_was_paused_meanwhile(store: Store) -> None:
    store.wake([wake()], now=NOW)
    asked = claim(wake().id)
    [first] = store.claim([asked], now=NOW)
    pause(store, "default")

    assert store.claim([asked], now=NOW) == [first]


def test_a_lapsed_lease_is_still_its_holders_until_somebody_reclaims_it(store: Store, adapter: Adapter) -> None:
    before = row("processing", leased_until=later(-3600))
    adapter.plant(store, [before])

    stranger, holder = store.claim([claim(before.id), claim(before.id, LEASE)], now=NOW)

    assert stranger == REFUSED
    assert not differences(holder.job, before)


def test_a_lease_that_was_finished_can_not_claim_again(store: Store) -> None:
    store.wake([wake()], now=NOW)
    job = take(store, wake().id, now=NOW)
    assert settle(store, job, rows.finish(job, Kind.AGAIN), now=NOW)

    assert store.claim([claim(job.id, job.lease_id)], now=NOW) == [REFUSED]
    assert take(store, job.id, now=NOW).attempt == 2


@pytest.mark.parametrize("way", ["release", "give back", "reclaim"])
def test_a_lease_that_was_given_up_can_not_claim_again(store: Store, way: str) -> None:
    store.wake([wake()], now=NOW)
    job = take(store, wake().id, now=NOW)
    assert job.lease_id is not None
    ways: dict[str, Event] = {
        "release": Release(job.lease_id, job.attempt),
        "give back": GiveBack(job.lease_id, job.attempt, 5, "type_unknown"),
        "reclaim": Reclaim(job.lease_id),
    }
    assert settle(store, job, ways[way], now=later(61))

    assert store.claim([claim(job.id, job.lease_id)], now=later(1000)) == [REFUSED]
    assert read(store, job.id).state == "queued"


@pytest.mark.parametrize("remembered", ["ended_lease", "finish_token"])
def test_a_lease_that_the_row_remembers_is_spent(store: Store, adapter: Adapter, remembered: str) -> None:
    adapter.plant(store, [row(**{remembered: OTHER_LEASE})])

    assert store.claim([claim(row().id, OTHER_LEASE)], now=NOW) == [REFUSED]


# --- batches ----------------------------------------------------------------------------------------------------------


def test_answers_come_in_the_order_asked(store: Store, adapter: Adapter) -> None:
    good = [row(key=f"good-{number}") for number in range(50)]
    bad = [row(key=f"bad-{number}", run_at=later(1)) for number in range(50)]
    adapter.plant(store, [*good, *bad])
    asked = [job for pair in zip(bad, good[::-1], strict=True) for job in pair]

    answers = store.claim([claim(job.id) for job in asked], now=NOW)

    assert [answer.job.id if answer.job else None for answer in answers] == [
        job.id if job in good else None for job in asked
    ]
    assert not any(answer.held for answer in answers)


def test_of_two_claims_of_one_row_in_a_call_one_gets_it(store: Store) -> None:
    store.wake([wake()], now=NOW)

    answers = store.claim([claim(wake().id), claim(wake().id)], now=NOW)

    [winner] = [answer.job for answer in answers if answer.job]
    assert read(store, wake().id) == winner
    assert winner.attempt == 1


def test_the_same_claim_twice_in_a_call_gets_the_row_twice(store: Store) -> None:
    store.wake([wake()], now=NOW)
    asked = claim(wake().id)

    first, second = store.claim([asked, asked], now=NOW)

    assert first == second
    assert first.job is not None
    assert first.job.attempt == 1


def test_three_hundred_rows_are_claimed_in_one_call(store: Store) -> None:
    woken = store.wake([wake(str(number)) for number in range(300)], now=NOW)

    answers = store.claim([claim(one.id) for one in woken], now=NOW)

    assert [answer.job.id for answer in answers if answer.job] == [one.id for one in woken]


def test_two_claimers_never_get_one_row(store: Store, adapter: Adapter) -> None:
    ids = [woken.id for woken in store.wake([wake(str(number)) for number in range(120)])]
    stores = [adapter.open() for _ in range(4)]

    def drain(mine: Store) -> list[Job]:
        taken = []
        for start in range(0, len(ids), 10):
            answers = mine.claim([claim(id_) for id_ in ids[start : start + 10]])
            taken += [answer.job for answer in answers if answer.job]
        return taken

    taken = at_once([partial(drain, mine) for mine in stores])

    counts = Counter(job.id for jobs in taken for job in jobs)
    assert counts == dict.fromkeys(ids, 1)
    for jobs in taken:
        for job in jobs:
            assert read(store, job.id).lease_id == job.lease_id


def test_one_lease_sent_by_many_at_once_is_one_claim(store: Store) -> None:
    store.wake([wake()])
    asked = Claim(wake().id, OTHER_LEASE, "worker", 60)

    answers = [answer for [answer] in at_once([partial(store.claim, [asked])] * 8)]

    taken = [answer.job for answer in answers if answer.job]
    assert taken
    assert all(answer.held for answer in answers if answer.job is None)
    assert {job.attempt for job in taken} == {1}
    assert store.claim([asked])[0].job == read(store, wake().id)


# --- rows in somebody's open transaction ------------------------------------------------------------------------------


def test_a_row_in_an_open_transaction_is_passed_by_and_told_from_one_that_refuses(
    store: Store, other: Store, adapter: Adapter
) -> None:
    adapter.plant(store, [row(key="free"), row(key="held"), row(key="early", run_at=later(9))])
    asked = [claim(row(key=key).id) for key in ("held", "free", "early")]

    with other.transaction() as tx:
        tx.wake([wake("held")], now=NOW)
        if "row_locks" in adapter.gaps:  # then the whole database is held, and nothing is known to have happened
            with pytest.raises(StoreUnavailable):
                adapter.open_hasty().claim(asked, now=NOW)
        elif "locks" in adapter.gaps:  # then the claim is first, and the wake is one in mid-run
            held, free, early = store.claim(asked, now=NOW)
            assert held.job is not None
            assert free.job is not None
            assert early == REFUSED
        else:
            held, free, early = store.claim(asked, now=NOW)
            assert held == Claimed(None, held=True)
            assert free.job is not None
            assert early == REFUSED

    if "locks" in adapter.gaps:
        assert (left := read(store, row(key="held").id)).generation == row(key="held").generation + 1
        assert (left.state, left.run_at) == ("processing", NOW)
    else:
        assert take(store, row(key="held").id, now=NOW).state == "processing"


def test_an_uncommitted_wake_is_not_due_and_can_not_be_claimed(store: Store, other: Store, adapter: Adapter) -> None:
    with other.transaction() as tx:
        tx.wake([wake()], now=NOW)
        assert store.due(now=NOW) == []
        assert store.read([wake().id]) == [None]

    assert [due.id for due in store.due(now=NOW)] == [wake().id]
