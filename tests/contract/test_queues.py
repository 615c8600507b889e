"""An operator's word on a queue: kept in the store, obeyed by `due` and by claims."""

from __future__ import annotations

import threading

import pytest

from store import queues
from store.contract import Store
from store.errors import UsageError
from store.queues import Control, Told
from tests.contract.acts import publish, read, settle, take
from tests.contract.adapters import Adapter
from tests.contract.rows import NOW, TYPE, claim, finish, later, row, wake


def starts(store: Store, id_: str) -> bool:
    """Whether `due` offers a row and a claim gets it: they must agree."""
    offered = id_ in {due.id for due in store.due()}
    taken = store.claim([claim(id_)])[0].job is not None
    assert offered == taken
    return taken


def test_nothing_of_a_paused_queue_is_offered_or_claimed_until_it_is_resumed(store: Store, other: Store) -> None:
    id_ = store.wake([wake()])[0].id
    assert queues.pause(store, None, "default") == Told(True, True)
    assert queues.pause(other, None, "default") == Told(False, True)
    assert not starts(other, id_)
    assert queues.resume(other, None, "default").changed
    assert not queues.resume(store, None, "default").changed
    assert starts(store, id_)


def test_a_pause_for_one_domain_is_of_that_domain_alone(store: Store) -> None:
    here, there = (store.wake([wake(domain=domain)])[0].id for domain in ("default", "elsewhere"))
    queues.pause(store, None, "default", "elsewhere")
    assert starts(store, here)
    assert not starts(store, there)
    queues.resume(store, None, "default")
    assert not starts(store, there), "a resume for all ended a pause for one"
    queues.resume(store, None, "default", "elsewhere")
    assert starts(store, there)


def test_a_pause_for_all_is_not_ended_by_a_resume_for_one(store: Store) -> None:
    id_ = store.wake([wake()])[0].id
    queues.pause(store, None, "default")
    queues.resume(store, None, "default", "default")
    assert not starts(store, id_)


def test_what_runs_goes_on_and_ends_as_ever(store: Store) -> None:
    job = take(store, store.wake([wake()])[0].id)
    queues.pause(store, None, "default")
    assert settle(store, job, finish(job))
    assert read(store, job.id).state == "completed"


def test_a_drain_is_a_pause_that_a_pause_does_not_undo_and_a_resume_does(store: Store) -> None:
    queues.pause(store, None, "default", drain=True)
    queues.pause(store, None, "default")
    assert queues.controls(store) == [Control("default", None, True, True)]
    queues.resume(store, None, "default")
    assert queues.controls(store) == [Control("default", None, False, False)]


def test_standing_counts_what_runs_and_what_waits(store: Store, adapter: Adapter) -> None:
    adapter.plant(
        store,
        [
            row("processing", key="runs"),
            row("processing", key="lapsed", leased_until=later(-1)),
            row("processing", key="elsewhere", queue="high"),
            row("processing", key="of another", domain="other"),
            row(key="ready", run_at=later(-50)),
            row(key="longer", run_at=later(-70)),
            row(key="scheduled", run_at=later(70)),
            row("completed", key="over"),
        ],
    )
    queues.pause(store, None, "default", "other", drain=True)
    found = queues.standing(store, "default", now=NOW)
    assert found == ("default", None, False, False, 2, 2, later(-70))
    assert queues.standing(store, "default", "default", now=NOW) == (
        "default",
        "default",
        False,
        False,
        1,
        2,
        later(-70),
    )
    assert queues.standing(store, "default", "other", now=NOW) == ("default", "other", True, True, 1, 0, None)


def test_waiting_for_a_drain_ends_with_the_last_run(store: Store, other: Store) -> None:
    job = take(store, store.wake([wake()])[0].id)
    queues.pause(store, None, "default", drain=True)
    assert queues.wait_drained(store, "default", None, 0.01).running == 1
    ending = threading.Timer(0.2, lambda: settle(other, job, finish(job)))
    ending.start()
    found = queues.wait_drained(store, "default", None, 30)
    ending.join()
    assert (found.running, found.drain) == (0, True)


def test_waiting_for_a_drain_ends_where_somebody_resumes(store: Store, other: Store) -> None:
    take(store, store.wake([wake()])[0].id)
    queues.pause(store, None, "default", drain=True)
    resuming = threading.Timer(0.2, lambda: queues.resume(other, None, "default"))
    resuming.start()
    found = queues.wait_drained(store, "default", None, 30)
    resuming.join()
    assert (found.running, found.paused) == (1, False)


@pytest.mark.parametrize(("queue", "domain"), [("scheduler", None), ("", None), ("a\x1fb", None), ("default", "a\nb")])
def test_names_that_no_queue_has_are_refused(store: Store, queue: str, domain: str | None) -> None:
    with pytest.raises(UsageError):
        queues.pause(store, None, queue, domain)
    with pytest.raises(UsageError):
        queues.standing(store, queue, domain)
    assert store.list("queue") == []


def test_a_word_that_can_not_be_read_stops_nothing(store: Store) -> None:
    publish(store, TYPE)
    store.put(queues.Document("queue", "default", 0, {"paused": "perhaps"}))
    assert queues.controls(store) == [Control("default", None, False, False)]
    assert starts(store, store.wake([wake()])[0].id)
