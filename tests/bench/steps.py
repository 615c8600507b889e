"""One batch of jobs from its wake to its finish, a step at a time, as the worker and the shift say it to a store."""

from __future__ import annotations

from collections import Counter

from store.contract import Change, Renewal, Store
from store.events import Finish, Kind
from store.identity import new_id, new_lease_id
from store.job import Job
from store.policy import Policy
from store.transitions import decide
from store.valkey import entries
from store.valkey.leases import Leases
from tests.bench.meters import Meter, Work
from tests.contract.rows import TYPE, claim, wake

BATCH = 100

#: Repetitions; the lowest of each count is what the step costs. Whatever else an engine does at times is not.
TIMES = 3

#: Offers are taken, however many others are ready.
WATERMARK = 100_000

POLICY = Policy(TYPE)

Spent = dict[str, Counter[str]]


def least(meter: Meter, *steps: tuple[str, Work]) -> Spent:
    """What each of ``steps`` costs at least, done one after the other, several times over."""
    spent: Spent = {}
    for _ in range(TIMES):
        for name, work in steps:
            counts = meter.spent(work)
            before = spent.get(name, counts)
            spent[name] = Counter({what: min(counts[what], before[what]) for what in counts})
    return spent


def finishes(jobs: list[Job], kind: Kind = Kind.DONE) -> list[Change]:
    """The same end of each of these runs."""
    return [
        Change(job.id, job.revision, decide(job, Finish(job.lease_id or "", job.attempt, job.generation, kind), POLICY))
        for job in jobs
    ]


def of_store(store: Store, meter: Meter) -> Spent:
    """The steps of a batch, and a wake by itself, in counts."""
    jobs: list[Job] = []
    ids: list[str] = []

    def woken() -> None:
        ids[:] = [new_id() for _ in range(BATCH)]
        store.wake([wake(None, id=id_) for id_ in ids], notify=False)

    def due() -> None:
        assert len(store.due(limit=BATCH)) == BATCH

    def claimed() -> None:
        jobs[:] = [answer.job for answer in store.claim([claim(id_) for id_ in ids]) if answer.job]
        assert len(jobs) == BATCH

    def renewed() -> None:
        assert all(answer.held for answer in store.renew([renewal(job) for job in jobs]))

    def finished() -> None:
        assert all(store.swap(finishes(jobs)))

    single = [new_id() for _ in range(TIMES + 1)]

    def woken_alone() -> None:
        store.wake([wake(None, id=single.pop(), delay=3600.0)], notify=False)

    ways: list[tuple[str, Work]] = [
        ("wake", woken_alone),
        ("wake 100", woken),
        ("due 100", due),
        ("claim 100", claimed),
        ("renew 100", renewed),
        ("finish 100", finished),
    ]
    for _, step in ways:  # once before it counts, for what only the first time costs
        step()
    return least(meter, *ways)


def renewal(job: Job) -> Renewal:
    """A sign of life with nothing to tell."""
    return Renewal(job.id, job.lease_id or "", job.attempt, 60.0)


def of_leases(leases: Leases, meter: Meter) -> Spent:
    """The same batch in Valkey."""
    taken: list[entries.Claimed] = []

    def offered() -> None:
        offers = [entries.Offer(f"j:{new_id()}", "501764504000000") for _ in range(BATCH)]
        assert leases.offer("default", offers, watermark=WATERMARK).new == BATCH

    def claimed() -> None:
        taken[:] = leases.claim("default", [new_lease_id() for _ in range(BATCH)], full_ms=60_000).taken
        assert len(taken) == BATCH

    def renewed() -> None:
        assert all(leases.renew("default", [entries.Renewal(*one[:2], 60_000) for one in taken], row_claimed=True))

    def acked() -> None:
        assert all(leases.ack("default", [entries.Ack(*one[:2]) for one in taken]))

    ways = (("offer 100", offered), ("claim 100", claimed), ("renew 100", renewed), ("ack 100", acked))
    for _, step in ways:  # once before it counts: the server learns the scripts
        step()
    return least(meter, *ways)
