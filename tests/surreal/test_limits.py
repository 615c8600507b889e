"""Limits as SurrealQL meets them."""

from __future__ import annotations

import pytest

from store.errors import QuotaExceeded
from store.limits import Quota, set_quota
from store.surreal.store import SurrealStore
from tests.contract.rows import TYPE, wake


@pytest.fixture
def limited(surreal_url: str) -> SurrealStore:
    store = SurrealStore(surreal_url)
    store.migrate()
    set_quota(store, Quota("default", None, max_queued=1))
    return store


def test_a_wake_by_surrealql_is_counted_and_refused_with_its_transaction(limited: SurrealStore) -> None:
    call = "fn::wake($type, {n: 1}, {key: $key})"
    with limited.transaction() as tx:
        tx.execute(call, {"type": TYPE, "key": "a"})
    with pytest.raises(QuotaExceeded, match="1 jobs that wait for domain default"), limited.transaction() as tx:
        tx.execute(call, {"type": TYPE, "key": "b"})
    assert [job is not None for job in limited.read([wake("a").id, wake("b").id])] == [True, False]
    limited.close()
