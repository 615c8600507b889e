"""Many who want the same rows: nobody waits, and no row is taken or finished twice."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from contextlib import suppress

import pytest

from store import identity
from store.contract import ANY_VERSION, Document
from store.errors import StoreUnavailable, UsageError
from store.events import Cancel
from store.filters import Filter
from store.policy import Policy
from store.surreal.store import SurrealStore
from store.transitions import decide
from tests.contract.acts import change, read, take
from tests.contract.rows import NOW, TYPE, wake

JOBS = 5_000

#: One worker: looks at what is due like all the others, claims, finishes, until nothing is left; tells what it finished
WORKER = """
import random, sys
from store import identity
from store.contract import Change
from store.events import Claim, Finish, Kind
from store.open import open_store
from store.policy import Policy
from store.transitions import decide

store, policy, mine = open_store(sys.argv[1]), Policy("test.job"), random.Random(sys.argv[2])
while found := store.due(limit=60):
    wanted = mine.sample(found, min(20, len(found)))
    taken = [one.job for one in store.claim([Claim(due.id, identity.new_lease_id(), "w", 600) for due in wanted])]
    taken = [job for job in taken if job]
    ends = [Finish(job.lease_id, job.attempt, job.generation, Kind.DONE) for job in taken]
    done = store.swap([Change(job.id, job.revision, decide(job, end, policy)) for job, end in zip(taken, ends)])
    for job, written in zip(taken, done):
        print(job.id if written else "LOST " + job.id)
store.close()
"""


@pytest.mark.timeout(300)
@pytest.mark.early
def test_four_processes_finish_five_thousand_jobs_each_once(store: SurrealStore, migrated_surreal_url: str) -> None:
    ids = []
    for start in range(0, JOBS, 500):
        ids += [woken.id for woken in store.wake([wake(str(number)) for number in range(start, start + 500)])]

    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, migrated_surreal_url, str(number)], stdout=subprocess.PIPE, text=True
        )
        for number in range(4)
    ]
    told = [worker.communicate(timeout=280)[0].split() for worker in workers]

    assert [worker.returncode for worker in workers] == [0] * 4
    assert Counter(id_ for mine in told for id_ in mine) == dict.fromkeys(ids, 1)
    assert all(len(mine) > 0 for mine in told)
    [tally] = store.tally(Filter())
    assert (tally.completed, tally.ready, tally.processing) == (JOBS, 0, 0)
    assert {job.attempt for job in store.read(ids) if job} == {1}


# --- a transaction of several calls -----------------------------------------------------------------------------------


def test_what_changed_under_a_transaction_refuses_its_commit_and_leaves_nothing(store: SurrealStore) -> None:
    store.wake([wake("a")], now=NOW)
    seen = read(store, wake("a").id)
    cancelled = decide(seen, Cancel(), Policy(TYPE))

    def ask() -> None:
        with store.transaction() as tx:
            assert tx.swap([change(seen)._replace(decision=cancelled)]) == [True]
            tx.wake([wake("b")])
            take(store, seen.id)

    with pytest.raises(StoreUnavailable, match="begin it again"):
        ask()

    assert read(store, seen.id).state == "processing"
    assert store.read([wake("b").id]) == [None]


def test_what_changed_is_told_to_the_next_call_already(store: SurrealStore) -> None:
    store.put(Document("tick", "x", 0, {}))
    with suppress(StoreUnavailable), store.transaction() as tx:
        assert tx.put(Document("tick", "x", 1, {"mine": True}))
        assert store.put(Document("tick", "x", 1, {"theirs": True}))
        tx.wake([wake("never")])
        raise AssertionError("it went on with what was not so any more")

    assert store.get("tick", "x") == Document("tick", "x", 2, {"theirs": True})
    assert store.read([wake("never").id]) == [None]


def test_a_wake_is_wanted_whatever_has_become_of_its_row(store: SurrealStore) -> None:
    store.wake([wake("a")])
    with store.transaction() as tx:
        [woken] = tx.wake([wake("a", payload="[2]")])
        held = take(store, woken.id)

    left = read(store, woken.id)
    assert (left.state, left.lease_id, left.payload) == ("processing", held.lease_id, "[2]")
    assert left.generation == held.generation + 1
    assert left.run_at < left.leased_until  # type: ignore[operator]


def test_a_renewal_is_no_change_to_a_runs_own_transaction(store: SurrealStore) -> None:
    from store.contract import Renewal
    from tests.contract import rows

    store.wake([wake("a")])
    job = take(store, wake("a").id)
    with store.transaction() as tx:
        [row] = tx.read([job.id])
        assert row is not None
        finish = decide(row, rows.finish(job), Policy(TYPE))
        assert tx.swap([change(row)._replace(decision=finish)]) == [True]
        assert store.renew([Renewal(job.id, job.lease_id or "", job.attempt, 600)])[0].held

    assert read(store, job.id).state == "completed"


def test_a_statement_that_writes_without_return_answers_nothing_and_may_make_ids_of_its_own(
    store: SurrealStore,
) -> None:
    with store.transaction() as tx:
        assert tx.execute("CREATE effect SET name = $name", {"name": "x"}) == []
        assert tx.execute("SELECT VALUE name FROM effect") == [("x",)]

    with store.transaction() as tx:
        assert tx.execute("SELECT VALUE name FROM effect") == [("x",)]


@pytest.mark.parametrize(
    "statement", ["RETURN 1", "{ CREATE effect; RETURN 5 }", "IF true THEN RETURN NONE END", "/* x */ return 1"]
)
def test_a_return_that_would_commit_at_once_is_refused(store: SurrealStore, statement: str) -> None:
    with suppress(UsageError), store.transaction() as tx:
        tx.wake([wake("never")])
        tx.execute(statement)
        raise AssertionError("it was run")

    assert store.read([wake("never").id]) == [None]


def test_racing_read_modify_write_loses_no_update(store: SurrealStore) -> None:
    store.put(Document("sum", "x", 0, {"n": 0}))
    document = store.get("sum", "x")
    assert document is not None
    assert not store.put(document._replace(version=9))
    assert store.put(document._replace(version=ANY_VERSION, body={"n": 1}))
    assert store.get("sum", "x") == Document("sum", "x", 2, {"n": 1})
    assert identity.check_id(wake().id)
