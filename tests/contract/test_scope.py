"""A store that works for some domains alone: on every database, nothing outside of them is there for it."""

from __future__ import annotations

import inspect

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store import queues
from store.attachments import Caps, Item
from store.contract import ANY_VERSION, Archived, Change, Document, Renewal, Store
from store.errors import NotAllowed, Refused
from store.events import Cancel, Finish, Kind
from store.filters import Filter
from store.identity import SEPARATOR
from store.job import Job
from store.limits import Quota, quotas, set_quota
from store.operations import apply
from store.policy import Policy
from store.scope import _OPEN, ScopedStore, document_domain
from store.transitions import decide
from tests.contract.acts import pause, read, take
from tests.contract.rows import NOW, TYPE, claim, later, wake
from tests.contract.test_outbox import turn

MINE, THEIRS = "chat", "print"


@pytest.fixture
def scoped(store: Store) -> Store:
    """The same database, for one domain."""
    found: Store = ScopedStore(store, [MINE])  # type: ignore[assignment]
    return found


def woken(store: Store, domain: str, key: str = "k", **fields: object) -> str:
    return store.wake([wake(key, domain=domain, **fields)])[0].id


def done(job: Job) -> Change:
    finish = Finish(job.lease_id or "", job.attempt, job.generation, Kind.DONE)
    return Change(job.id, job.revision, decide(job, finish, Policy(TYPE)))


def test_every_verb_of_the_contract_is_bound_or_known_to_need_no_bounds() -> None:
    verbs = {name for name, _ in inspect.getmembers(Store) if not name.startswith("_")} | {"dialect"}
    assert verbs - _OPEN <= {name for name, _ in inspect.getmembers(ScopedStore)}
    assert _OPEN - verbs <= {"gaps"}


def test_another_domains_jobs_are_not_there_to_be_read(store: Store, scoped: Store) -> None:
    mine, theirs = woken(store, MINE), woken(store, THEIRS)
    assert [job is None for job in scoped.read([mine, theirs])] == [False, True]
    assert [job.id for job in scoped.find(Filter())] == [mine]
    assert scoped.find(Filter(domain=THEIRS)) == scoped.find(Filter(ids=[theirs])) == []
    assert [(one.domain, one.ready) for one in scoped.tally(Filter())] == [(MINE, 1)]
    assert scoped.tally(Filter(domain=THEIRS)) == []
    assert [job.id for job in scoped.find(Filter(), order="claim", descending=True)] == [mine]


def test_another_domains_jobs_can_not_be_woken(store: Store, scoped: Store) -> None:
    with pytest.raises(NotAllowed, match="JOBS_DOMAINS"):
        scoped.wake([wake("a", domain=MINE), wake("a", domain=THEIRS)])
    with scoped.transaction() as tx, pytest.raises(NotAllowed):
        tx.wake([wake("a", domain=THEIRS)])
    assert store.find(Filter()) == []
    with scoped.transaction() as tx:
        assert scoped.adopt(tx) is tx
        tx.wake([wake("a", domain=MINE)])
    assert [job.domain for job in store.find(Filter())] == [MINE]


def test_another_domains_jobs_are_neither_due_nor_claimed_nor_held(store: Store, scoped: Store) -> None:
    mine, theirs = woken(store, MINE), woken(store, THEIRS)
    assert [one.id for one in scoped.due()] == [mine]
    other, own = scoped.claim([claim(theirs), claim(mine)])
    assert (other.job, other.held) == (None, False)
    assert own.job is not None
    running = take(store, theirs)
    renewal = Renewal(theirs, running.lease_id or "", running.attempt, 60.0, stopping=True)
    assert not scoped.renew([renewal])[0].held
    assert read(store, theirs) == running
    assert scoped.swap([done(running), done(own.job)]) == [False, True]
    with scoped.transaction() as tx:
        assert tx.read([theirs]) == [None]
        assert tx.swap([done(running)]) == [False]
    assert read(store, theirs).state == "processing"


def test_own_jobs_are_found_behind_pages_of_others_and_in_the_order_of_the_offer(store: Store, scoped: Store) -> None:
    store.wake([wake(f"theirs-{place}", domain=THEIRS, priority=1) for place in range(25)])
    store.wake([wake(f"mine-{place}", domain=MINE, priority=1 + place % 3) for place in range(7)])
    found = scoped.due(limit=5)
    assert len(found) == 5
    rest = scoped.due(limit=5, after={"default": found[-1]})
    rows = [read(store, one.id) for one in [*found, *rest]]
    assert {row.domain for row in rows} == {MINE}
    assert [row.id for row in rows] == [job.id for job in scoped.find(Filter(), order="claim")]


def test_bulk_actions_reach_own_jobs_alone(store: Store, scoped: Store) -> None:
    mine, theirs = woken(store, MINE), woken(store, THEIRS)
    for dry_run in (True, False):
        told = apply(scoped, Filter(states=("queued",)), Cancel(), dry_run=dry_run)
        assert (told.affected, told.unchanged) == (1, 0)
    assert (read(store, mine).state, read(store, theirs).state) == ("cancelled", "queued")


def test_history_archive_and_attachments_of_others_are_not_there(store: Store, scoped: Store) -> None:
    mine, theirs = woken(store, MINE), woken(store, THEIRS)
    for id_ in (mine, theirs):
        job = take(store, id_)
        finish = Finish(job.lease_id or "", job.attempt, job.generation, Kind.RETRY)
        assert store.swap([Change(id_, job.revision, decide(job, finish, Policy(TYPE)))]) == [True]
        with store.transaction() as tx:
            tx.archive([Archived(id_, 1, job.domain, "default", TYPE, "k", "{}")])
    item = Item("file", "a.txt", "text/plain", b"text")
    assert scoped.attach(mine, [item], caps=Caps()) == [1]
    assert scoped.attach(theirs, [item], caps=Caps()) is None
    assert store.attach(theirs, [item], caps=Caps()) == [1]
    assert (len(scoped.history(mine)), scoped.history(theirs)) == (1, [])
    assert ([row.id for row in scoped.archived(mine)], scoped.archived(theirs)) == ([mine], [])
    assert (len(scoped.attachments(mine)), scoped.attachments(theirs)) == (1, [])
    assert scoped.attachment(mine, 1) is not None
    assert scoped.attachment(theirs, 1) is None
    with scoped.transaction() as tx, pytest.raises(Refused):
        tx.archive([Archived(theirs, 2, THEIRS, "default", TYPE, "k", "{}")])


def test_events_of_others_are_left_out_and_all_are_kept(store: Store, scoped: Store) -> None:
    turn(store)
    for domain in (MINE, THEIRS, MINE):
        woken(store, domain)
    page = scoped.events(0)
    assert {event.domain for event in page.events} == {MINE}
    assert len(page.events) == 2
    both = ScopedStore(store, [MINE, "mail"]).events(0)
    assert both.events == page.events
    assert scoped.events(0, domain=THEIRS).events == []
    with pytest.raises(NotAllowed):
        scoped.prune_events(seconds=0, through=10)
    assert len(store.events(0).events) == 3


def test_what_holds_for_others_is_neither_seen_nor_changed(store: Store, scoped: Store) -> None:
    for domain in (None, MINE, THEIRS):
        set_quota(store, Quota(domain, "ann", max_queued=5))
    pause(store, "default", THEIRS)
    assert {quota.domain for quota in quotas(scoped)} == {None, MINE}
    assert scoped.get("queue", f"default{SEPARATOR}{THEIRS}") is None
    set_quota(scoped, Quota(MINE, "bob", max_queued=1))
    pause(scoped, "default", MINE)
    for kind, key in (
        ("queue", "default"), ("queue", f"default{SEPARATOR}{THEIRS}"), ("quota", f"{SEPARATOR}ann"),
        ("quota", f"{THEIRS}{SEPARATOR}ann"), ("outbox", "events"), ("sla", TYPE), ("odd", "x"),
    ):  # fmt: skip
        before = store.get(kind, key)
        with pytest.raises(NotAllowed):
            scoped.put(Document(kind, key, ANY_VERSION, {}))
        with pytest.raises(NotAllowed):
            scoped.remove(kind, key)
        with scoped.transaction() as tx, pytest.raises(NotAllowed):
            tx.put(Document(kind, key, ANY_VERSION, {}))
        assert store.get(kind, key) == before
    assert scoped.put(Document("policy", "chat.say", ANY_VERSION, Policy("chat.say").document()))


def test_fleets_have_terms_of_their_own(store: Store, scoped: Store) -> None:
    assert store.lead("scheduler", "a", 60).held
    assert scoped.lead("scheduler", "b", 60).held
    assert not ScopedStore(store, [MINE]).lead("scheduler", "c", 60).held
    assert ScopedStore(store, [MINE, THEIRS]).lead("scheduler", "d", 60).held
    scoped.resign("scheduler", "b")
    assert scoped.lead("scheduler", "e", 60).held
    assert not store.lead("scheduler", "b", 60).held


def test_a_queue_is_counted_and_drained_within_the_scope(store: Store, scoped: Store) -> None:
    woken(store, MINE)
    take(store, woken(store, THEIRS))
    pause(store, "default", MINE)
    found = queues.standing(scoped, "default", MINE)
    assert found.running == 0


def test_orphans_are_nobodys(store: Store, scoped: Store) -> None:
    assert scoped.orphans() == 0
    assert scoped.ping() is not None
    with pytest.raises(AttributeError):
        scoped.later_verb  # type: ignore[attr-defined]  # noqa: B018


@given(st.sampled_from(["quota", "spent", "flight", "queue", "allow", "sla", "policy", "schedule"]), st.text())
def test_a_key_of_any_document_is_read(kind: str, key: str) -> None:
    found = document_domain(kind, key)
    assert found is None or found in key


def test_the_clock_of_a_caller_goes_through(store: Store, scoped: Store) -> None:
    scoped.wake([wake("a", domain=MINE)], now=NOW)
    assert [one.run_at for one in scoped.due(now=later(1))] == [NOW]
