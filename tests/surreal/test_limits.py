"""Limits as SurrealQL meets them."""

from __future__ import annotations

import pytest

from store.limits import Quota, set_quota
from store.surreal.errors import Thrown
from store.surreal.store import SurrealStore
from tests.contract.rows import wake
from tests.surreal.test_wake_function import call


def test_a_wake_by_surrealql_is_counted_and_refused_with_its_transaction(store: SurrealStore) -> None:
    set_quota(store, Quota("default", None, max_queued=1))
    call(store, "BEGIN; fn::wake('test.job', {}, {key: 'a'}); COMMIT")
    with pytest.raises(Thrown) as raised:
        call(store, "BEGIN; CREATE orders:1; fn::wake('test.job', {}, {key: 'b'}); COMMIT")
    assert "1 jobs that wait for domain default is reached" in raised.value.word
    assert [job is not None for job in store.read([wake("a").id, wake("b").id])] == [True, False]
