"""What a job costs stays within the committed budget, in counts that are the same on any machine: statements, round
trips, rows and bytes. Speed as such is measured by ``make bench``."""

from __future__ import annotations

from store.valkey.leases import Leases
from tests.bench import steps
from tests.bench.budget import judge
from tests.bench.conftest import Metered
from tests.bench.meters import ValkeyMeter


def test_a_batch_costs_its_store_no_more_than_its_budget(metered: Metered) -> None:
    judge(metered.name, steps.of_store(metered.store, metered.meter))


def test_a_batch_costs_valkey_no_more_than_its_budget(leases: Leases, valkey_meter: ValkeyMeter) -> None:
    judge("valkey", steps.of_leases(leases, valkey_meter))
