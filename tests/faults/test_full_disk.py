"""While the disk is full a wake is told so, nothing of it stays, and afterwards everything goes on."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from ops.torture.world import family, limit_files
from store.contract import Store
from store.engines.postgres import Postgres
from store.engines.surreal import Surreal
from store.errors import StoreUnavailable
from store.open import open_store
from tests.contract.acts import publish
from tests.contract.rows import TYPE, wake


def _fill(store: Store) -> None:
    """Wake until the store says that it can't; only StoreUnavailable passes."""
    with pytest.raises(StoreUnavailable):
        for number in range(1000):
            store.wake([wake(f"full-{number}")])


@pytest.mark.parametrize("engine", [Postgres, Surreal])
def test_a_server_without_room_is_unavailable_and_serves_again_once_there_is(
    engine: type[Postgres] | type[Surreal], fresh_home: Path
) -> None:
    with engine(fresh_home / "server") as server:
        store = open_store(server.url)
        try:
            store.migrate()
            publish(store, TYPE)
            store.wake([wake("before")])
            limit_files(list(family(server.pid)), "4096")
            _fill(store)
            limit_files(list(family(server.pid)), "unlimited")
            deadline = time.monotonic() + 30
            while True:
                if not server.running:  # it gave up, as one may that can't write any more
                    server.start()
                try:
                    assert not store.wake([wake("before")])[0].created
                    break
                except StoreUnavailable:
                    assert time.monotonic() < deadline
            assert store.wake([wake("after")])[0].created
        finally:
            store.close()


PROGRAM = """
import resource, sys
from store.errors import StoreUnavailable
from store.open import open_store
from tests.contract.acts import publish
from tests.contract.rows import TYPE, wake

store = open_store(sys.argv[1])
store.migrate()
publish(store, TYPE)
store.wake([wake("before")])
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
try:
    for number in range(1000):
        store.wake([wake(f"full-{number}")])
    sys.exit("it never was full")
except StoreUnavailable:
    pass
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
assert not store.wake([wake("before")])[0].created
assert store.wake([wake("after")])[0].created
store.close()
"""


def test_a_file_without_room_is_unavailable_and_serves_again_once_there_is(fresh_home: Path) -> None:
    root = Path(__file__).parents[2]
    program = [sys.executable, "-c", PROGRAM, f"sqlite:///{fresh_home}/jobs.db"]
    done = subprocess.run(program, cwd=root, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
