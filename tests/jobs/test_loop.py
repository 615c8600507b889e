"""``Jobs.run``: a loop without Dramatiq and Valkey that does what a worker does."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from middleware.handlers import handler
from middleware.jobs import Jobs
from middleware.run import Run
from store.contract import Store
from store.errors import Refused, StoreUnavailable, UsageError
from store.events import Cancel
from store.operations import Item, settle
from store.outcome import Again, Done
from store.policy import Policy
from tests.contract.acts import read
from tests.contract.adapters import Adapter
from tests.contract.rows import TYPE, later, row, wake
from tests.endtoend.house import eventually
from tests.jobs.conftest import MakeJobs

ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def running(jobs: Jobs, *handlers: Any, **options: Any) -> Iterator[threading.Event]:
    """A loop in a thread; stopped at the end, and what it raised is raised here."""
    stop = threading.Event()
    raised: list[BaseException] = []

    def run() -> None:
        try:
            jobs.run(*handlers, stop=stop, **options)
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield stop
    finally:
        stop.set()
        thread.join(60)
        assert not thread.is_alive()
        if raised:
            raise raised[0]


def woken(store: Store, **fields: Any) -> str:
    return store.wake([wake(**fields)])[0].id


def in_state(store: Store, id_: str, state: str) -> Callable[[], bool]:
    return lambda: read(store, id_).state == state


# --- on every store


def test_what_is_due_is_run_and_what_is_woken_later_too(store: Store, make_jobs: MakeJobs) -> None:
    @handler(TYPE)
    def double(payload: Any, run: Run) -> Done:
        return Done(payload.n * 2)

    first = woken(store, key="a", payload='{"n":2}')
    with running(make_jobs(store), double, concurrency=2):
        eventually(in_state(store, first, "completed"), what="the first job")
        second = woken(store, key="b", payload='{"n":4}')
        eventually(in_state(store, second, "completed"), what="the second job")
    assert (read(store, first).result, read(store, second).result) == ("4", "8")


def test_only_the_types_that_it_handles_are_taken(store: Store, make_jobs: MakeJobs) -> None:
    @handler(TYPE)
    def done(payload: Any, run: Run) -> None:
        return None

    jobs = make_jobs(store)
    jobs.publish(Policy("other.job"))
    others = [woken(store, key=str(number), job_type="other.job", priority=1) for number in range(30)]
    mine = woken(store, key="mine", priority=10)
    with running(jobs, done):
        eventually(in_state(store, mine, "completed"), what="the job behind those of another type")
    assert {read(store, id_).attempt for id_ in others} == {0}


def test_five_restarts_in_one_long_job_are_no_failure(store: Store, make_jobs: MakeJobs) -> None:
    going = threading.Event()
    finish = threading.Event()

    @handler(TYPE, max_retries=3)
    def long(payload: Any, run: Run) -> None:
        going.set()
        while not finish.is_set():
            run.sleep(0.02)

    id_ = woken(store, max_retries=3)
    for _ in range(5):
        with running(make_jobs(store, JOBS_SHUTDOWN_WAIT_FOR_LEASES_SEC=0), long):
            assert going.wait(30)
        going.clear()
        there = read(store, id_)
        assert (there.state, there.retries, there.failure_code, there.failure_streak) == ("queued", 0, None, 0)
    finish.set()
    with running(make_jobs(store), long):
        eventually(in_state(store, id_, "completed"), what="the job to end normally")
    assert read(store, id_).attempt == 6


def test_a_job_in_hand_is_marked_at_a_stop_so_that_a_kill_counts_as_none(store: Store, make_jobs: MakeJobs) -> None:
    going = threading.Event()

    @handler(TYPE)
    def patient(payload: Any, run: Run) -> Done:
        going.set()
        eventually(lambda: read(store, id_).stopping, what="the mark in the row")
        eventually(lambda: run.stopping, what="the run to hear of it")
        return Done(run.stopping)

    id_ = woken(store)
    with running(make_jobs(store), patient):
        assert going.wait(30)
    there = read(store, id_)
    assert (there.state, there.result) == ("completed", "true")  # it had its time to end


def test_what_a_lost_worker_held_is_run_by_the_loop(store: Store, adapter: Adapter, make_jobs: MakeJobs) -> None:
    @handler(TYPE, backoff_first=0.001)
    def done(payload: Any, run: Run) -> None:
        return None

    gone = row("processing", leased_until=later(-3600 * 24 * 365 * 2))
    adapter.plant(store, [gone])
    with running(make_jobs(store, JOBS_LEASE_SECONDS=1), done):
        eventually(in_state(store, gone.id, "completed"), what="the row to be taken back and run")
    assert read(store, gone.id).attempt == gone.attempt + 1


@pytest.mark.parametrize("interrupt", [False, True])
def test_a_cancel_reaches_a_run_in_about_a_second(store: Store, make_jobs: MakeJobs, interrupt: bool) -> None:
    going = threading.Event()

    @handler(TYPE, interrupt=interrupt)
    def long(payload: Any, run: Run) -> None:
        going.set()
        for _ in range(3000):
            if not interrupt:
                run.check()
            time.sleep(0.01)  # what is interrupted asks nobody

    id_ = woken(store)
    with running(make_jobs(store), long):
        assert going.wait(30)
        settle(store, [Item(id_, Cancel(), Policy(TYPE))])
        eventually(in_state(store, id_, "cancelled"), 10, "the cancel to be obeyed")
    assert read(store, id_).retries == 0


def test_ten_thousand_reports_are_few_writes(
    store: Store, make_jobs: MakeJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = []
    renew = store.renew

    def counted(renewals: Any, **options: Any) -> Any:
        written.extend(one.progress for one in renewals if one.progress is not None)
        return renew(renewals, **options)

    monkeypatch.setattr(store, "renew", counted)

    @handler(TYPE)
    def busy(payload: Any, run: Run) -> None:
        for number in range(10_000):
            run.progress(number // 100, "on the way")
            if number % 100 == 0:
                time.sleep(0.02)

    id_ = woken(store)
    with running(make_jobs(store), busy):
        eventually(in_state(store, id_, "completed"), what="the end")
    assert len(written) <= 4
    assert [percent for percent, _ in written] == sorted(percent for percent, _ in written)
    assert read(store, id_).progress_percent == 99


def test_a_retry_that_the_store_refuses_at_that_instant_is_not_lost(
    store: Store, make_jobs: MakeJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    swap, refusals = store.swap, [StoreUnavailable("away in this test")] * 2
    seen = []

    def unsteady(changes: Any, **options: Any) -> Any:
        if changes and refusals:
            seen.append(read(store, changes[0].id))
            raise refusals.pop()
        return swap(changes, **options)

    monkeypatch.setattr(store, "swap", unsteady)

    @handler(TYPE, backoff_first=0.001)
    def fails_once(payload: Any, run: Run) -> None:
        if run.attempt == 1:
            raise ValueError

    id_ = woken(store)
    with running(make_jobs(store), fails_once):
        eventually(in_state(store, id_, "completed"), what="the second attempt")
    assert [(one.state, one.attempt) for one in seen] == [("processing", 1)] * 2  # leased, until its retry is written
    assert read(store, id_).attempt == 2
    assert [entry.kind for entry in store.history(id_)] == ["recovered", "attempt_failed"]


# --- on one store: what is the same whatever lies below


@pytest.fixture
def sqlite(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    from store.open import open_store
    from tests.contract.acts import publish

    made = open_store(f"sqlite:///{tmp_path}/jobs.db")
    made.migrate()
    publish(made, TYPE)
    yield made
    made.close()


def test_coroutines_run(sqlite: Store, make_jobs: MakeJobs) -> None:
    @handler(TYPE)
    async def later_on(payload: Any, run: Run) -> Done:
        await asyncio.sleep(0.01)
        return Done("slept")

    id_ = woken(sqlite)
    with running(make_jobs(sqlite), later_on):
        eventually(in_state(sqlite, id_, "completed"), what="the coroutine")
    assert read(sqlite, id_).result == '"slept"'


def test_a_job_longer_than_its_lease_is_run_once_beside_an_idle_loop(sqlite: Store, make_jobs: MakeJobs) -> None:
    runs = []

    @handler(TYPE)
    def long(payload: Any, run: Run) -> None:
        runs.append(run.attempt)
        time.sleep(3.2)  # says nothing: only the heartbeat keeps it

    id_ = woken(sqlite)
    with running(make_jobs(sqlite, JOBS_LEASE_SECONDS=1), long):
        eventually(lambda: runs, what="the run")
        with running(make_jobs(sqlite, JOBS_LEASE_SECONDS=1), long):
            eventually(in_state(sqlite, id_, "completed"), what="the end of the run")
    assert runs == [1]


def test_a_claim_whose_answer_was_lost_is_run_once(
    sqlite: Store, make_jobs: MakeJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim, lost = sqlite.claim, []

    def forgetful(claims: Any, **options: Any) -> Any:
        answers = claim(claims, **options)
        if not lost and any(answer.job is not None for answer in answers):
            lost.append(answers)
            raise StoreUnavailable("the answer was lost")
        return answers

    monkeypatch.setattr(sqlite, "claim", forgetful)
    runs = []

    @handler(TYPE)
    def once(payload: Any, run: Run) -> None:
        runs.append(run.attempt)

    id_ = woken(sqlite)
    with running(make_jobs(sqlite), once):
        eventually(in_state(sqlite, id_, "completed"), what="the run")
    assert (runs, len(lost)) == ([1], 1)


def test_a_claim_in_doubt_at_a_stop_goes_back_unpunished(
    sqlite: Store, make_jobs: MakeJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim, stop = sqlite.claim, threading.Event()

    def lost(claims: Any, **options: Any) -> Any:
        answers = claim(claims, **options)
        if not stop.is_set() and any(answer.job is not None for answer in answers):
            stop.set()
            raise StoreUnavailable("the answer was lost")
        return answers

    monkeypatch.setattr(sqlite, "claim", lost)

    @handler(TYPE)
    def never(payload: Any, run: Run) -> None:
        raise AssertionError

    id_ = woken(sqlite)
    make_jobs(sqlite).run(never, stop=stop)
    there = read(sqlite, id_)
    assert (there.state, there.attempt, there.retries) == ("queued", 1, 0)


def test_a_store_that_goes_away_is_waited_for(
    sqlite: Store, make_jobs: MakeJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    due, away = sqlite.due, threading.Event()

    def gone(**options: Any) -> Any:
        if not away.is_set():
            raise StoreUnavailable("away in this test")
        return due(**options)

    monkeypatch.setattr(sqlite, "due", gone)

    @handler(TYPE)
    def done(payload: Any, run: Run) -> None:
        return None

    id_ = woken(sqlite)
    with running(make_jobs(sqlite), done):
        away.set()
        eventually(in_state(sqlite, id_, "completed"), what="the run after the outage")


def test_an_idle_loop_asks_seldom(sqlite: Store, make_jobs: MakeJobs, monkeypatch: pytest.MonkeyPatch) -> None:
    due, looks = sqlite.due, []

    def counted(**options: Any) -> Any:
        looks.append(time.monotonic())
        return due(**options)

    monkeypatch.setattr(sqlite, "due", counted)

    @handler(TYPE)
    def done(payload: Any, run: Run) -> None:
        return None

    with running(make_jobs(sqlite), done):
        eventually(lambda: len(looks) >= 4, what="four looks")
    assert looks[3] - looks[1] > 1.5  # two looks, a second each, where nothing happens


def test_a_short_job_that_waits_behind_a_long_one_is_left_to_others(sqlite: Store, make_jobs: MakeJobs) -> None:
    going, finish = threading.Event(), threading.Event()

    @handler(TYPE)
    def sometimes_long(payload: Any, run: Run) -> None:
        if payload.n == 0:
            going.set()
            assert finish.wait(60)

    quick = [woken(sqlite, key=f"q{number}", payload='{"n":1}') for number in range(40)]
    with running(make_jobs(sqlite), sometimes_long, concurrency=1):
        eventually(lambda: all(read(sqlite, id_).state == "completed" for id_ in quick), what="the short jobs")
        with sqlite.transaction() as tx:  # so that they are claimed together
            tx.wake([wake("long", payload='{"n":0}', priority=1), wake("short", payload='{"n":1}', priority=9)])
        assert going.wait(30)
        eventually(in_state(sqlite, wake("short").id, "queued"), what="the short one to be given back")
        finish.set()
        eventually(in_state(sqlite, wake("short").id, "completed"), what="the short one")
    assert read(sqlite, wake("short").id).retries == 0


@pytest.mark.parametrize(
    ("handlers", "options"),
    [([], {}), (["twice"], {}), (["one"], {"concurrency": 0}), (["one"], {"queues": "default"})],
    ids=str,
)
def test_what_can_not_be_run_is_refused(
    sqlite: Store, make_jobs: MakeJobs, handlers: list[str], options: dict[str, Any]
) -> None:
    @handler(TYPE)
    def done(payload: Any, run: Run) -> None:
        return None

    given = [done] * (2 if handlers == ["twice"] else len(handlers))
    with pytest.raises(UsageError):
        make_jobs(sqlite).run(*given, **options)


def test_a_database_that_was_never_migrated_is_refused(tmp_path: Path, make_jobs: MakeJobs) -> None:
    from store.open import open_store

    @handler(TYPE)
    def done(payload: Any, run: Run) -> None:
        return None

    empty = open_store(f"sqlite:///{tmp_path}/empty.db")
    with pytest.raises((Refused, StoreUnavailable)):
        make_jobs(empty).acquire()
    empty.close()


PROGRAM = """
from dramaturg import Again, Jobs, handler

@handler("test.job")
def work(payload, run):
    print("running", flush=True)
    run.sleep(60)

Jobs().run(work)
print("ended", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_program_in_good_order(sqlite: Store, tmp_path: Path, number: signal.Signals) -> None:
    id_ = woken(sqlite)
    (tmp_path / "program.py").write_text(PROGRAM)
    settings = {"JOBS_DB_URL": f"sqlite:///{tmp_path}/jobs.db", "JOBS_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, "program.py"],
        cwd=tmp_path,
        env=os.environ | settings | {"JOBS_SHUTDOWN_WAIT_FOR_LEASES_SEC": "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as program:
        assert program.stdout is not None
        lines = iter(program.stdout.readline, "")
        assert any("running" in line for line in lines)
        program.send_signal(number)
        assert any("ended" in line for line in lines)
        assert program.wait(60) == 0
    there = read(sqlite, id_)
    assert (there.state, there.retries) == ("queued", 0)


def test_a_run_may_ask_for_itself_again(sqlite: Store, make_jobs: MakeJobs) -> None:
    @handler(TYPE)
    def pages(payload: Any, run: Run) -> Again | Done:
        page = run.checkpoint or 0
        return Done(page) if page == 5 else Again(checkpoint=page + 1)

    id_ = woken(sqlite)
    with running(make_jobs(sqlite), pages):
        eventually(in_state(sqlite, id_, "completed"), what="the last page")
    assert read(sqlite, id_).result == "5"
