"""The no-op job for both systems; ``BENCH_SYSTEM`` says which broker this process builds."""

from __future__ import annotations

import os
from typing import Any

import dramatiq

from ops.bench.counting import count_into
from ops.bench.telling import tell

if "BENCH_ASKED" in os.environ:
    count_into(os.environ["BENCH_ASKED"])

PLAIN = os.environ.get("BENCH_SYSTEM") == "dramatiq"

noop: Any
timed: Any

if PLAIN:
    from dramatiq.brokers.redis import RedisBroker

    dramatiq.set_broker(RedisBroker(url=os.environ["BENCH_VALKEY"]))  # type: ignore[no-untyped-call]

    @dramatiq.actor(actor_name="bench.noop")
    def _noop(id: int) -> None:
        return None

    @dramatiq.actor(actor_name="bench.timed")
    def _timed(id: int) -> None:
        tell(id)

    noop, timed = _noop, _timed
else:
    from dramaturg import Payload, Run, job

    class Numbered(Payload):
        """As the peers' payload: ``{"id": n}``."""

        id: int

    @job("bench.noop", payload=Numbered)
    def _noop_job(numbered: Numbered, run: Run) -> None:
        return None

    @job("bench.timed", payload=Numbered)
    def _timed_job(numbered: Numbered, run: Run) -> None:
        tell(numbered.id)

    noop, timed = _noop_job, _timed_job
