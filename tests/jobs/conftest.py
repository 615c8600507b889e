"""Every store, as in the contract suite, with workers that want no Valkey over it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from middleware.jobs import Jobs
from middleware.rows_only import RowsOnly
from middleware.settings import WorkerSettings
from store.contract import Store
from store.settings import StoreSettings
from tests.contract.conftest import adapter, other, spares, store

__all__ = ["adapter", "make_jobs", "other", "spares", "store"]

MakeJobs = Callable[..., Jobs]


@pytest.fixture
def make_jobs(tmp_path: Path) -> MakeJobs:
    """Jobs over a store, with settings of a worker's by their variables."""

    def make(store: Store, **settings: float) -> Jobs:
        worker = WorkerSettings.model_validate({"JOBS_LEASE_SECONDS": 60} | settings)
        runtime = RowsOnly(StoreSettings.model_validate({"JOBS_HOME": tmp_path}), worker, store=store)
        return Jobs.over(runtime)

    return make
