"""A server that goes and comes back, one that lets nobody in, and processes that fork."""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

import pytest
from surrealdb.data.cbor import decode, encode
from websockets import Subprotocol
from websockets.sync.client import connect

from store.engines.surreal import Surreal
from store.errors import DramaturgError, Refused, StoreUnavailable, UsageError
from store.surreal.address import parse
from store.surreal.store import SurrealStore
from tests.contract.acts import read
from tests.contract.rows import wake


def test_a_store_goes_on_by_itself_once_its_killed_server_is_back(lone: SurrealStore, server: Surreal) -> None:
    lone.wake([wake("before")])
    server.kill()
    with pytest.raises(StoreUnavailable):
        lone.read([wake("before").id])
    with pytest.raises(StoreUnavailable):
        lone.wake([wake("meanwhile")])
    server.start()

    assert read(lone, wake("before").id).state == "queued"
    assert lone.wake([wake("after")])[0].created
    assert [due.id for due in lone.due()]


def test_nothing_that_was_answered_is_lost_by_a_kill_in_the_middle_of_writes(
    lone: SurrealStore, server: Surreal
) -> None:
    told: list[list[str]] = [[], [], []]
    some = threading.Event()

    def write(mine: list[str], number: int) -> None:
        with suppress(StoreUnavailable):
            for turn in range(100_000):
                mine += [woken.id for woken in lone.wake([wake(f"{number}-{turn}-{part}") for part in range(5)])]
                if len(mine) > 200:
                    some.set()

    threads = [threading.Thread(target=write, args=(mine, number)) for number, mine in enumerate(told)]
    for thread in threads:
        thread.start()
    assert some.wait(60)
    server.kill()
    for thread in threads:
        thread.join(30)
    server.start()

    ids = [id_ for mine in told for id_ in mine]
    assert len(ids) > 200
    assert all(lone.read(ids))
    # Whatever was under way is there as a whole or not at all.
    for number, mine in enumerate(told):
        turn = len(mine) // 5
        assert len({job is None for job in lone.read([wake(f"{number}-{turn}-{part}").id for part in range(5)])}) == 1


def test_a_signal_of_changes_outlives_its_server(lone: SurrealStore, server: Surreal) -> None:
    signal = lone.changes()
    try:
        server.kill()
        with pytest.raises(StoreUnavailable):
            signal.wait(1)
        server.start()
        lone.wake([wake()])
        assert signal.wait(20)
    finally:
        signal.close()


@pytest.mark.parametrize("how", ["another password", "another user"])
def test_who_is_not_let_in_is_told_so_without_the_password(migrated_surreal_url: str, how: str) -> None:
    parts = urlsplit(migrated_surreal_url)
    user = "nobody" if how == "another user" else parts.username
    word = "hidden-word" if how == "another password" else parts.password
    store = SurrealStore(f"ws://{user}:{word}@{parts.hostname}:{parts.port}{parts.path}")
    with pytest.raises(Refused) as refused:
        store.ping()
    store.close()

    assert "hidden-word" not in str(refused.value)
    assert str(parts.password) not in str(refused.value)


@pytest.mark.parametrize(
    "url",
    [
        "ws://127.0.0.1:8000",
        "ws://u:hidden-word@127.0.0.1:8000/only",
        "ws://127.0.0.1:8000/a/b",
        "ws://u:hidden-word@:8000/a/b",
        "ws://u:hidden-word@h:port/a/b",
        "ws://u:hidden-word@h:8000/a/b?level=table",
        "http://u:hidden-word@h:8000/a/b",
    ],
)
def test_a_url_that_is_none_is_refused_without_being_repeated(url: str) -> None:
    with pytest.raises(UsageError) as refused:
        SurrealStore(url)
    assert "hidden-word" not in str(refused.value)


def test_an_address_has_all_that_a_url_says() -> None:
    address = parse("wss://al%40ice:s%2Fw@db.example/n%20s/d?level=database")
    assert (address.server, address.namespace, address.database) == ("wss://db.example:443", "n s", "d")
    assert address.credentials == {"username": "al@ice", "password": "s/w", "namespace": "n s", "database": "d"}
    assert "s/w" not in repr(address)


def test_a_forked_child_has_connections_of_its_own(store: SurrealStore) -> None:
    store.wake([wake("parent")])
    pid = os.fork()
    if pid == 0:
        code = 1
        with suppress(DramaturgError):
            code = 0 if store.wake([wake("child")])[0].created else 2
        os._exit(code)

    assert os.waitpid(pid, 0)[1] == 0
    assert all(store.read([wake("parent").id, wake("child").id]))


@contextmanager
def raw(url: str) -> Iterator[object]:
    """A connection that has not signed in."""
    parts = urlsplit(url)
    with connect(f"ws://{parts.hostname}:{parts.port}/rpc", subprotocols=[Subprotocol("cbor")]) as socket:

        def ask(**request: object) -> dict[str, object]:
            socket.send(encode(request))
            answer: dict[str, object] = decode(socket.recv(10))  # type: ignore[arg-type]
            return answer

        yield ask


def test_nobody_reads_without_signing_in(store: SurrealStore, migrated_surreal_url: str) -> None:
    store.wake([wake()])
    parts = urlsplit(migrated_surreal_url)
    _, namespace, database = parts.path.split("/")
    with raw(migrated_surreal_url) as ask:
        ask(id="1", method="use", params=[namespace, database])  # type: ignore[operator]
        answer = ask(id="2", method="query", params=["SELECT * FROM dramaturg_job", {}])  # type: ignore[operator]
    assert "error" in answer or all(row["status"] == "ERR" or not row["result"] for row in answer["result"])


def test_a_client_takes_no_other_clients_session(migrated_surreal_url: str) -> None:
    with raw(migrated_surreal_url) as ask:
        for request in (
            {"id": "1", "method": "sessions", "params": []},
            {"id": "1", "method": "attach", "params": []},
            {
                "id": "1",
                "method": "query",
                "params": ["RETURN 1", {}],
                "session": str(uuid.uuid4()),
            },
            {"nonsense": True},
        ):
            assert "error" in ask(**request)  # type: ignore[operator]
