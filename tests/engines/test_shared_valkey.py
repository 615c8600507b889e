"""Several processes of one machine share one Valkey, and it may end at any moment."""

from __future__ import annotations

import gc
import os
import signal
import warnings
from contextlib import ExitStack
from pathlib import Path

import pytest
import redis

from store.engines.valkey import shared_valkey
from store.errors import EngineFailed
from tests.engines.owners import becomes_true, is_gone, owner


def server_pid(url: str) -> int:
    with redis.Redis.from_url(url) as client:
        return int(client.info("server")["process_id"])


def test_processes_that_start_at_once_get_one_server_with_one_owner(fresh_home: Path) -> None:
    with ExitStack() as stack:
        programs = [stack.enter_context(owner("valkey", fresh_home, "shared")) for _ in range(4)]
        for program in programs:
            assert program.hear() == {"ready": True}
        for program in programs:
            program.go_on()
        heard = [program.hear() for program in programs]
        assert [facts["owner"] for facts in heard].count(True) == 1
        assert len({facts["url"] for facts in heard}) == 1
        pid = server_pid(heard[0]["url"])

        for program, facts in zip(programs, heard, strict=True):
            if not facts["owner"]:
                program.go_on()
                assert program.hear() == {"ended": True}
        assert server_pid(heard[0]["url"]) == pid, "only its owner may end it"

        first = next(program for program, facts in zip(programs, heard, strict=True) if facts["owner"])
        first.go_on()
        assert first.hear() == {"ended": True}
        assert is_gone(pid)


def test_when_its_owner_was_killed_the_next_to_call_owns_another_at_the_same_url(fresh_home: Path) -> None:
    with owner("valkey", fresh_home, "shared") as program:
        assert program.hear() == {"ready": True}
        program.go_on()
        facts = program.hear()
        found = shared_valkey(fresh_home)
        assert (found.engine, found.url) == (None, facts["url"])
        old = server_pid(found.url)
        program.kill()
        assert is_gone(old)
        mine = shared_valkey(fresh_home)
        try:
            assert mine.engine is not None
            assert mine.url == facts["url"]
            assert server_pid(mine.url) == mine.engine.pid != old
        finally:
            mine.end()


def test_calling_while_the_old_one_is_still_ending_works(fresh_home: Path) -> None:
    first = shared_valkey(fresh_home)
    assert first.engine is not None
    os.kill(first.engine.pid, signal.SIGKILL)
    second = shared_valkey(fresh_home)
    try:
        assert second.engine is not None
        assert server_pid(second.url) == second.engine.pid
    finally:
        second.end()


def test_whoever_keeps_the_url_only_keeps_the_server(fresh_home: Path) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        url = shared_valkey(fresh_home).url
        gc.collect()
    assert caught == []
    pid = server_pid(url)
    os.kill(pid, signal.SIGTERM)
    assert is_gone(pid)


def test_the_same_process_may_ask_again(fresh_home: Path) -> None:
    first = shared_valkey(fresh_home)
    again = shared_valkey(fresh_home)
    again.end()
    assert server_pid(first.url) == (first.engine.pid if first.engine else None)
    first.end()
    first.end()
    assert first.engine is not None
    assert not first.engine.running


def test_one_that_does_not_answer_is_an_error_in_bounded_time(fresh_home: Path) -> None:
    first = shared_valkey(fresh_home)
    assert first.engine is not None
    os.kill(first.engine.pid, signal.SIGSTOP)
    with pytest.raises(EngineFailed, match="does not answer"):
        shared_valkey(fresh_home, wait=0.2)
    os.kill(first.engine.pid, signal.SIGCONT)
    first.end()
    assert becomes_true(lambda: first.engine is not None and not first.engine.running)
