"""The contract of the hot verbs once more, with a pooler in transaction mode between store and database."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from store.contract import Store
from tests.contract import test_claim, test_renew, test_terms
from tests.contract.adapters import Postgres

globals().update(
    (name, test)
    for module in (test_claim, test_renew, test_terms)
    for name, test in vars(module).items()
    if name.startswith("test_") or name == "held"
)


@pytest.fixture
def adapter(pooled_url: str) -> Iterator[Postgres]:
    """A migrated database, reached through the pooler."""
    adapter = Postgres(pooled_url)
    yield adapter
    adapter.close()


@pytest.fixture
def store(adapter: Postgres) -> Store:
    return adapter.open()


@pytest.fixture
def other(adapter: Postgres) -> Store:
    return adapter.open()
