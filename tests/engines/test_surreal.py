"""The embedded SurrealDB: started, found again, killed, and ended with its owner."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

from store.engines.surreal import Surreal
from store.errors import EngineFailed, StoreUnavailable
from store.surreal.store import SurrealStore
from tests.contract.rows import wake
from tests.endtoend.house import eventually


def test_it_serves_from_start_to_stop(fresh_home: Path) -> None:
    with Surreal(fresh_home) as server:
        store = SurrealStore(server.url)
        store.migrate()
        assert store.wake([wake()])[0].created
        assert server.running
    assert not server.running
    with pytest.raises(StoreUnavailable):
        store.ping()
    store.close()


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_what_was_committed_is_there_again_under_the_same_url(fresh_home: Path, end: str) -> None:
    first = Surreal(fresh_home)
    url = first.url
    first.start()
    store = SurrealStore(url)
    store.migrate()
    store.wake([wake()])
    getattr(first, end)()
    store.close()

    with Surreal(fresh_home) as second:  # as another process would
        assert second.url == url
        again = SurrealStore(url)
        assert again.read([wake().id])[0] is not None
        again.close()


def test_killed_in_the_middle_of_writes_it_has_all_that_was_acknowledged(fresh_home: Path) -> None:
    server = Surreal(fresh_home)
    url = server.url
    server.start()
    store = SurrealStore(url)
    store.migrate()
    acknowledged: list[list[str]] = [[] for _ in range(4)]

    def write(mine: list[str], name: int) -> None:
        writer = SurrealStore(url, patience=2)
        with suppress(StoreUnavailable):
            for number in count():
                mine += [one.id for one in writer.wake([wake(f"{name}-{number}-{place}") for place in range(3)])]
        writer.close()

    with ThreadPoolExecutor(4) as pool:
        writing = [pool.submit(write, mine, name) for name, mine in enumerate(acknowledged)]
        eventually(lambda: all(len(mine) > 30 for mine in acknowledged), 60, "all of them to be writing")
        server.kill()
        for future in writing:
            future.result(60)
    store.close()

    with Surreal(fresh_home):
        again = SurrealStore(url)
        for mine in acknowledged:
            assert all(again.read(mine))
        again.close()


def test_one_in_memory_forgets(fresh_home: Path) -> None:
    with Surreal(fresh_home, memory=True) as server:
        store = SurrealStore(server.url)
        store.migrate()
        server.restart()
        assert store.migrate() > 0
        store.close()
    assert not server.data.exists()


def test_a_home_has_one(fresh_home: Path) -> None:
    with Surreal(fresh_home):
        with pytest.raises(EngineFailed, match="already"):
            Surreal(fresh_home).start()


def test_its_url_is_for_its_user_alone(fresh_home: Path) -> None:
    with Surreal(fresh_home) as server:
        assert server.url_file.read_text(encoding="utf-8").strip() == server.url
        assert stat.S_IMODE(server.url_file.stat().st_mode) == 0o600
        assert server.password not in Path(f"/proc/{server.pid}/cmdline").read_text(encoding="utf-8")
        assert server.password not in server.log.read_text(encoding="utf-8")


def test_databases_of_one_server_know_nothing_of_each_other(fresh_home: Path) -> None:
    with Surreal(fresh_home) as server:
        one, two = SurrealStore(server.url_of("one")), SurrealStore(server.url_of("two"))
        one.migrate()
        two.migrate()
        one.wake([wake()])
        assert two.read([wake().id]) == [None]
        one.close()
        server.drop_database("one")
        server.drop_database("one")
        assert one.migrate() > 0
        one.close()
        two.close()
