"""The testing kit: jobs run inline on a real store at a frozen moment, and behave as in a worker."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dramatiq
import pytest

from middleware import broker as broker_module
from middleware import build, frozen, runtime
from middleware.broker import Broker
from middleware.build import build_broker
from middleware.handlers import handler
from middleware.inline import InlineJobs
from middleware.interrupts import Cancelled, LeaseLost
from middleware.job import JobActor, Payload, declare
from middleware.jobs import Jobs
from middleware.run import Run
from middleware.settings import WorkerSettings
from middleware.unit_run import make_run
from store.contract import ANY_VERSION, Document
from store.errors import NotFound, PayloadInvalid, Refused, UsageError
from store.open import open_store
from store.outcome import Again, Done, Fail, Park, Retry
from store.policy import Policy
from store.settings import Section, StoreSettings
from store.transitions import Answer
from tests.contract.adapters import Adapter
from tests.contract.rows import row

NOW = datetime(2026, 3, 1, 9, 0, tzinfo=UTC)
ROOT = Path(__file__).resolve().parents[2]


class Invoice(Payload):
    """What the jobs here are about."""

    invoice_id: int
    amount: int = 0


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A program's broker, whose own database and Valkey are nowhere."""
    made = build_broker(
        StoreSettings.model_validate(
            {"JOBS_HOME": tmp_path, "JOBS_DB_URL": "sqlite:////nowhere/jobs.db", "JOBS_VALKEY_URL": "unix:///nowhere"}
        ),
        WorkerSettings(),
    )
    yield made
    made.close()


@pytest.fixture(params=["sqlite", "postgres", "surreal"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty database of each kind."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/kit.db"
    elif request.param == "surreal":
        yield request.getfixturevalue("migrated_surreal_url")
    else:
        server, spares = request.getfixturevalue("postgres_server"), request.getfixturevalue("spares")
        name = spares.take(migrated=False)
        yield server.url_of(name)
        spares.give_back(name, migrated=False)


def job(broker: Broker, function: Any, name: str = "invoice.send", **options: Any) -> JobActor[Any, Invoice]:
    """Declare a job as ``@job`` does, with the invoice's number for a key."""
    return declare(broker, function, name, Invoice, "{invoice_id}", options)


# --- on every store


def test_a_send_goes_to_the_kits_store_at_the_frozen_moment_and_is_run(broker: Broker, url: str) -> None:
    seen = []

    def send(invoice: Invoice, run: Run) -> Done:
        seen.append((invoice.invoice_id, run.attempt, run.due_at))
        return Done({"sent": invoice.invoice_id})

    send_invoice = job(broker, send)
    with InlineJobs(now=NOW, url=url, broker=broker) as jobs:
        woken = send_invoice.send(invoice_id=7)
        assert (woken.created, woken.due, woken.run_at) == (True, True, NOW)
        [ran] = jobs.run_due()
        assert (ran.state, ran.outcome, ran.error) == ("completed", Done({"sent": 7}), None)
        there = jobs.job(woken.id)
        assert (there.created_at, there.started_at, there.finished_at) == (NOW, NOW, NOW)
        assert jobs.run_due() == []
    assert seen == [(7, 1, NOW)]


def test_failures_back_off_by_the_kits_clock_until_there_are_no_retries(broker: Broker, url: str) -> None:
    def send(invoice: Invoice, run: Run) -> None:
        raise ConnectionError("hunter2")

    send_invoice = job(broker, send, max_retries=2, backoff_first=60.0, backoff_jitter=0.0)
    with InlineJobs(now=NOW, url=url, broker=broker) as jobs:
        id_ = send_invoice.send(invoice_id=7).id
        [first] = jobs.run_due()
        assert isinstance(first.error, ConnectionError)
        assert jobs.job(id_).run_at == NOW + timedelta(seconds=60)
        jobs.travel(seconds=59)
        assert jobs.run_due() == []
        jobs.travel(seconds=1)
        assert [ran.state for ran in jobs.run_due()] == ["queued"]
        assert [ran.state for ran in jobs.drain()] == ["failed"]
        assert jobs.now == NOW + timedelta(seconds=60 + 120)
        assert "hunter2" not in repr((jobs.job(id_), jobs.history(id_)))
        assert [entry.at for entry in jobs.history(id_)] == [NOW + timedelta(seconds=s) for s in (180, 60, 0)]


def test_a_runs_own_transaction_commits_its_wakes_with_its_end_or_not_at_all(broker: Broker, url: str) -> None:
    def pay(invoice: Invoice, run: Run) -> None:
        with run.transaction(Done("paid")) as tx:
            send_invoice.wake(tx, invoice_id=invoice.invoice_id)
            if run.attempt == 1:
                raise ValueError

    send_invoice = job(broker, lambda invoice, run: None)
    pay_invoice = job(broker, pay, "invoice.pay")
    with InlineJobs(now=NOW, url=url, broker=broker) as jobs:
        id_ = pay_invoice.send(invoice_id=7).id
        jobs.run_due()
        assert (jobs.job(id_).state, jobs.woken(send_invoice)) == ("queued", [])
        jobs.drain()
        assert (jobs.job(id_).state, jobs.job(id_).result) == ("completed", '"paid"')
        [sent] = jobs.woken(send_invoice, invoice_id=7)
        assert sent.state == "completed"
        assert sent.created_at < NOW + timedelta(hours=1)


# --- outcomes, cancels, wakes: as in a worker


@pytest.mark.parametrize(
    ("outcome", "state", "again"),
    [
        (None, "completed", None),
        (Again(hours=24), "queued", timedelta(hours=24)),
        (Again(at=NOW + timedelta(days=3)), "queued", timedelta(days=3)),
        (Retry("busy"), "queued", timedelta(seconds=5)),
        (Park(), "queued", None),
        (Fail("broken"), "failed", None),
    ],
    ids=repr,
)
def test_an_outcome_leaves_the_row_where_it_says(
    broker: Broker, outcome: Any, state: str, again: timedelta | None
) -> None:
    send_invoice = job(broker, lambda invoice, run: outcome, backoff_jitter=0.0)
    with InlineJobs(now=NOW, broker=broker) as jobs:
        id_ = send_invoice.send(invoice_id=7).id
        [ran] = jobs.run_due()
        assert ran.state == state
        assert jobs._next_moment() == (None if again is None else NOW + again)
        assert jobs.job(id_).attempt == 1


def test_what_is_sent_for_later_waits_for_the_clock(broker: Broker) -> None:
    send_invoice = job(broker, lambda invoice, run: None)
    with InlineJobs(now=NOW, broker=broker) as jobs:
        send_invoice.send_with_options(kwargs={"invoice_id": 1}, delay=timedelta(hours=2))
        send_invoice.send_with_options(kwargs={"invoice_id": 2}, run_at=NOW + timedelta(hours=1))
        assert jobs.run_due() == []
        assert [ran.job and ran.job.payload for ran in jobs.drain()] == [
            '{"invoice_id":2,"amount":0}',
            '{"invoice_id":1,"amount":0}',
        ]
        assert jobs.now == NOW + timedelta(hours=2)


def test_urgent_jobs_run_first(broker: Broker) -> None:
    order = []
    send_invoice = job(broker, lambda invoice, run: order.append(invoice.invoice_id))
    with InlineJobs(now=NOW, broker=broker) as jobs:
        for number, priority in enumerate([5, 9, 1, 5]):
            send_invoice.send_with_options(kwargs={"invoice_id": number}, priority=priority)
            jobs.travel(seconds=1)
        jobs.run_due()
    assert order == [2, 0, 3, 1]


def test_a_checkpoint_is_handed_on_and_a_wake_is_told(broker: Broker) -> None:
    seen = []

    def pages(invoice: Invoice, run: Run) -> Any:
        seen.append((run.checkpoint, run.woken, invoice.amount))
        if len(seen) == 1:
            send_invoice.send(invoice_id=7, amount=5)  # a wake in mid-run
        return Again(seconds=60, checkpoint=len(seen)) if len(seen) < 3 else Done()

    send_invoice = job(broker, pages)
    with InlineJobs(now=NOW, broker=broker) as jobs:
        send_invoice.send(invoice_id=7)
        assert len(jobs.run_due()) == 2  # the wake's run does not wait for the minute
        assert [ran.state for ran in jobs.drain()] == ["completed"]
    assert seen == [(None, False, 0), (1, True, 5), (2, False, 5)]


def test_a_cancel_in_mid_run_is_seen_by_the_next_check(broker: Broker) -> None:
    def send(invoice: Invoice, run: Run) -> None:
        run.check()
        assert jobs.cancel(run.id) is Answer.APPLIED
        run.check()

    send_invoice = job(broker, send)
    with InlineJobs(now=NOW, broker=broker) as jobs:
        send_invoice.send(invoice_id=7)
        [ran] = jobs.run_due()
        assert (ran.state, type(ran.error)) == ("cancelled", Cancelled)
        assert jobs.cancel(ran.id) is Answer.REFUSED


def test_a_type_that_is_interrupted_is_interrupted_here_too(broker: Broker) -> None:
    def send(invoice: Invoice, run: Run) -> None:
        jobs.cancel(run.id)
        for _ in range(1000):
            inspect.currentframe()

    send_invoice = job(broker, send, interrupt=True)
    with InlineJobs(now=NOW, broker=broker) as jobs:
        send_invoice.send(invoice_id=7)
        assert [ran.state for ran in jobs.run_due()] == ["cancelled"]


def test_a_handlers_sleep_moves_the_clock_and_takes_no_time(broker: Broker) -> None:
    async def pause(invoice: Invoice, run: Run) -> Done:
        await run.pause(3600)
        return Done()

    def sleep(invoice: Invoice, run: Run) -> Done:
        run.sleep(3600)
        return Done()

    for number, function in enumerate((sleep, pause), 1):
        job(broker, function, f"test.{number}")
    with InlineJobs(now=NOW, broker=broker) as jobs:
        for number in (1, 2):
            broker.actors[f"test.{number}"].send(invoice_id=number)
            [ran] = jobs.run_due()
            assert ran.job is not None
            assert ran.job.finished_at == NOW + timedelta(hours=number)
    make_run().sleep(3600)


def test_a_queued_job_that_is_cancelled_does_not_run(broker: Broker) -> None:
    send_invoice = job(broker, lambda invoice, run: None)
    with InlineJobs(now=NOW, broker=broker) as jobs:
        jobs.cancel(send_invoice.send(invoice_id=7).id)
        assert jobs.run_due() == []


def test_a_run_that_lost_its_row_changes_nothing(broker: Broker) -> None:
    def slow(invoice: Invoice, run: Run) -> Done:
        if run.attempt == 1:
            jobs.travel(hours=2)  # far beyond its lease, which nobody renewed
            assert [ran.outcome for ran in jobs.drain(1)] == [Done("second")]
            return Done("first")
        return Done("second")

    send_invoice = job(broker, slow, backoff_first=0.001)
    with InlineJobs(now=NOW, broker=broker) as jobs:
        id_ = send_invoice.send(invoice_id=7).id
        jobs.run_due()
        assert (jobs.job(id_).result, jobs.job(id_).attempt) == ('"second"', 2)


def test_a_job_that_fails_alike_is_held_where_its_type_asks_for_it(broker: Broker) -> None:
    send_invoice = job(broker, lambda invoice, run: Retry("busy"), quarantine_after=3)
    with InlineJobs(now=NOW, broker=broker) as jobs:
        id_ = send_invoice.send(invoice_id=7).id
        assert [ran.state for ran in jobs.drain()] == ["queued", "queued", "quarantined"]
        assert jobs.job(id_).held_at == jobs.now


def nested(levels: int) -> list[Any]:
    """So many lists, one in the other."""
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


UNSPEAKABLE: dict[str, Any] = {
    "NaN": float("nan"),
    "infinity": {"good": 1, "bad": float("-inf")},
    "10,000 nested lists": nested(10_000),
    "65 nested lists": nested(65),
    "too big": "x" * 1_100_000,
    "half a character": "\ud800",
    "a zero": "a\x00b",
    "a number beyond 64 bits": 2**70,
}


@pytest.mark.parametrize("name", UNSPEAKABLE)
@pytest.mark.parametrize("place", ["result", "checkpoint", "transaction"])
def test_what_a_handler_may_not_answer_is_a_coded_failure(broker: Broker, place: str, name: str) -> None:
    value = UNSPEAKABLE[name]

    def answer(invoice: Invoice, run: Run) -> Any:
        if place == "transaction":
            with run.transaction(Done(value)):
                raise AssertionError
        return Done(value) if place == "result" else Again(checkpoint=value)

    send_invoice = job(broker, answer)
    with InlineJobs(now=NOW, broker=broker) as jobs:
        id_ = send_invoice.send(invoice_id=7).id
        assert [ran.state for ran in jobs.run_due()] == ["queued"]
        there = jobs.job(id_)
        assert (there.failure_code, there.retries, there.result, there.checkpoint) == ("payload_invalid", 1, None, None)


class Loose(Payload):
    """A payload whose schema lets anything through."""

    value: Any


@pytest.mark.parametrize("name", UNSPEAKABLE)
def test_what_a_payload_may_not_hold_is_refused_where_it_is_sent(broker: Broker, name: str) -> None:
    loose = declare(broker, lambda payload, run: None, "loose.job", Loose, None, {})
    with InlineJobs(now=NOW, broker=broker) as jobs:
        with pytest.raises(PayloadInvalid) as refused:
            loose.send(value=UNSPEAKABLE[name])
        with pytest.raises(PayloadInvalid), jobs.store.transaction() as tx:
            loose.wake(tx, value=UNSPEAKABLE[name])
        assert len(str(refused.value)) < 200
        assert jobs.woken(loose) == []


def test_a_type_that_keeps_nothing_leaves_nothing(broker: Broker) -> None:
    send_invoice = job(broker, lambda invoice, run: None, keep_finished=False)
    with InlineJobs(now=NOW, broker=broker) as jobs:
        id_ = send_invoice.send(invoice_id=7).id
        assert [(ran.state, ran.job) for ran in jobs.run_due()] == [(None, None)]
        assert jobs.woken(send_invoice) == []
        with pytest.raises(NotFound):
            jobs.job(id_)


def test_coroutines_run_and_can_be_called(broker: Broker) -> None:
    async def send(invoice: Invoice, run: Run) -> Done:
        await asyncio.sleep(0)
        run.progress(80, "sent")
        return Done(invoice.invoice_id)

    send_invoice = job(broker, send)
    with InlineJobs(now=NOW, broker=broker) as jobs:
        send_invoice.send(invoice_id=7)
        [ran] = jobs.run_due()
        assert ran.job is not None
        assert (ran.outcome, ran.job.progress_percent) == (Done(7), 80)
        run = make_run()
        assert send_invoice(Invoice(invoice_id=8), run) == Done(8)
        assert run.reported == (80, "sent")


def test_an_own_loop_is_tested_with_the_same_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dramatiq.broker, "global_broker", None)  # put back afterwards

    @handler("invoice.send", payload=Invoice, max_retries=1)
    def send(invoice: Invoice, run: Run) -> None:
        raise ValueError

    with InlineJobs(now=NOW, handlers=[send]) as jobs:
        id_ = jobs.wake("invoice.send", {"invoice_id": 7}, key="7", delay=60).id
        assert jobs.jobs.acquire() is None
        jobs.travel(minutes=1)
        lease = jobs.jobs.acquire(seconds=30)
        assert lease is not None
        assert lease.leased_until == NOW + timedelta(seconds=90)
        jobs.travel(seconds=31)
        assert jobs.jobs.reclaim() == 1
        assert not jobs.jobs.renew(lease).held
        assert jobs.jobs.complete(lease).answer is Answer.STALE
        assert [ran.state for ran in jobs.drain()] == ["failed"]
        assert jobs.job(id_).retries == 2
        with pytest.raises(PayloadInvalid):
            jobs.wake("invoice.send", {})
        with pytest.raises(UsageError):
            jobs.wake("invoice.lost", {})


# --- what the test sees


def test_what_a_handler_raises_can_be_raised_in_the_test_once_its_row_is_settled(broker: Broker) -> None:
    def send(invoice: Invoice, run: Run) -> None:
        raise KeyError("invoice")

    send_invoice = job(broker, send)
    with InlineJobs(now=NOW, broker=broker, reraise=True) as jobs:
        id_ = send_invoice.send(invoice_id=7).id
        with pytest.raises(KeyError, match="invoice"):
            jobs.run_due()
        assert (jobs.job(id_).state, jobs.job(id_).failure_code) == ("queued", "KeyError")


def test_woken_tells_rows_by_their_payload(broker: Broker) -> None:
    send_invoice = job(broker, lambda invoice, run: None)
    with InlineJobs(now=NOW, broker=broker) as jobs:
        for number in (7, 8):
            send_invoice.send(invoice_id=number, amount=3)
        assert len(jobs.woken("invoice.send")) == len(jobs.woken(send_invoice, amount=3)) == 2
        assert len(jobs.woken("invoice.send", invoice_id=7)) == 1
        assert not jobs.woken("invoice.send", invoice_id=9)
        assert not jobs.woken("invoice.send", invoice_id=7, amount=4)
        assert not jobs.woken("invoice.pay")


def test_jobs_without_an_end_end_the_test(broker: Broker) -> None:
    send_invoice = job(broker, lambda invoice, run: Again(seconds=60 * invoice.amount))
    with InlineJobs(now=NOW, broker=broker) as jobs:
        send_invoice.send(invoice_id=7, amount=1)
        with pytest.raises(UsageError, match="20 runs"):
            jobs.drain(20)
        send_invoice.send(invoice_id=8, amount=0)
        with pytest.raises(UsageError, match="20 runs"):
            jobs.run_due(20)


def test_time_goes_forward_only(broker: Broker) -> None:
    with InlineJobs(now=NOW, broker=broker) as jobs:
        assert jobs.travel(days=1) == NOW + timedelta(days=1)
        for moment in (NOW, datetime(2030, 1, 1)):
            with pytest.raises(UsageError):
                jobs.travel_to(moment)
    with pytest.raises(UsageError):
        InlineJobs(now=datetime(2026, 1, 1))


# --- production is out of reach


def test_after_the_block_the_broker_is_as_before(broker: Broker) -> None:
    before = broker.runtime
    with InlineJobs(now=NOW, broker=broker) as jobs:
        assert broker.runtime is jobs.runtime
        declared = job(broker, lambda invoice, run: None)
        declared.send(invoice_id=7)
        assert len(jobs.run_due()) == 1
        with pytest.raises(UsageError, match="one block"), InlineJobs(broker=broker):
            pass
    assert broker.runtime is before
    assert "invoice.send" in before.policies


def test_a_block_that_fails_to_open_leaves_the_broker_alone(broker: Broker) -> None:
    before = broker.runtime
    with pytest.raises(UsageError), InlineJobs(url="mysql://nowhere", broker=broker):
        pass
    assert broker.runtime is before


def test_a_database_with_jobs_or_types_of_others_is_refused(url: str, broker: Broker) -> None:
    store = open_store(url)
    store.migrate()
    store.put(Document("policy", "invoice.send", ANY_VERSION, Policy("invoice.send").document()))
    with pytest.raises(Refused, match="not the testing kit's"), InlineJobs(url=url, broker=broker):
        pass
    store.close()


def test_a_database_of_the_kits_is_taken_again_unless_a_worker_is_there(url: str, broker: Broker) -> None:
    send_invoice = job(broker, lambda invoice, run: None)
    for _ in range(2):
        with InlineJobs(now=NOW, url=url, broker=broker) as jobs:
            send_invoice.send(invoice_id=7)
            assert len(jobs.run_due()) == 1
    store = open_store(url)
    assert store.lead("scheduler.reconcile", "a-worker", 60).held
    with pytest.raises(Refused, match="worker"), InlineJobs(now=NOW, url=url, broker=broker):
        pass
    store.resign("scheduler.reconcile", "a-worker")
    with InlineJobs(now=NOW, url=url, broker=broker):
        pass
    store.close()


def test_a_database_in_which_a_worker_runs_a_job_is_refused(broker: Broker, tmp_path: Path) -> None:
    from tests.contract.adapters import Sqlite

    url = f"sqlite:///{tmp_path}/kit.db"
    with InlineJobs(now=NOW, url=url, broker=broker):
        pass
    adapter: Adapter = Sqlite(url)
    adapter.plant(adapter.open(), [row("processing", leased_until=datetime(2999, 1, 1, tzinfo=UTC))])
    with pytest.raises(Refused, match="runs a job"), InlineJobs(now=NOW, url=url, broker=broker):
        pass
    adapter.close()


def test_nothing_outside_of_the_kit_can_stop_the_clock() -> None:
    for callable_ in (
        broker_module.Broker.__init__, broker_module.Broker.wake, build.build_broker, build.broker,
        runtime.Runtime.__init__, Jobs.__init__, Jobs.acquire, Jobs.run, declare,
    ):  # fmt: skip
        assert "now" not in inspect.signature(callable_).parameters, callable_
    makers = [
        path.name
        for room in ("store", "middleware", "scheduler", "actors", "ops")
        for path in (ROOT / room).rglob("*.py")
        if "FrozenClock" in path.read_text()
    ]
    assert sorted(makers) == ["frozen.py", "inline.py"]
    aliases = [
        str(field.validation_alias) for section in Section.__subclasses__() for field in section.model_fields.values()
    ]
    assert not [alias for alias in aliases if "NOW" in alias or "CLOCK" in alias or "EPOCH" in alias]


def test_ordinary_messages_are_told_where_they_belong(broker: Broker) -> None:
    @dramatiq.actor(broker=broker)
    def greet() -> None:
        """Nothing."""

    with InlineJobs(now=NOW, broker=broker), pytest.raises(UsageError, match="Valkey"):
        greet.send()


def test_a_frozen_store_gives_its_moment_to_every_verb_that_takes_one() -> None:
    for made in (frozen._FrozenStore, frozen._FrozenTx):
        assert {"wake", "swap", "put"} <= made._taking
        for name in made._taking:
            real = SimpleNamespace(**{name: lambda *args, now=None, **options: now})
            verb = getattr(made(real, frozen.FrozenClock(NOW)), name)
            assert verb() == NOW
            assert verb(now=NOW.replace(year=2030)) == NOW.replace(year=2030)


# --- a handler by itself


def test_a_handler_is_tested_by_itself() -> None:
    run = make_run(key="7", attempt=3, checkpoint={"page": 2}, woken=True, owner="ada")
    assert (run.key, run.attempt, run.checkpoint, run.woken, run.owner) == ("7", 3, {"page": 2}, True, "ada")
    run.progress(50, "half")
    run.count("rows", 3)
    assert (run.reported, run.counts, run.stopping) == ((50, "half"), {"rows": 3}, False)
    run.tell(stopped=True)
    assert run.stopping
    run.tell(cancelled=True)
    with pytest.raises(Cancelled):
        run.check()
    lost = make_run()
    lost.tell(lost=True)
    with pytest.raises(LeaseLost):
        lost.sleep(60)
    with pytest.raises(UsageError, match="InlineJobs"), make_run().transaction():
        pass
    with pytest.raises(UsageError):
        make_run(woken=True)
