"""An engine ends with its owner, however the owner ends, and not before its owner wants it to."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from store.engines import keeper
from store.engines import valkey as valkey_module
from store.engines.postgres import Postgres
from store.engines.sockets import Answer, ping
from store.engines.valkey import Valkey
from tests.engines.owners import becomes_true, is_gone, lives, owner, parent_of
from tests.engines_fixtures import FAST

KINDS = pytest.mark.parametrize("kind", ["valkey", "postgres"])
HomeFor = Callable[[str], Path]


@pytest.mark.parametrize(("kind", "manner"), [("valkey", "plain"), ("valkey", "threaded"), ("postgres", "plain")])
def test_an_engine_ends_when_its_owner_is_killed(kind: str, manner: str, home_for: HomeFor) -> None:
    with owner(kind, home_for(kind), manner) as program:
        engine = program.hear()["engine"]
        assert lives(engine)
        keeper_of_it = parent_of(engine)
        program.kill()
        assert is_gone(engine)
        assert is_gone(keeper_of_it)


@KINDS
def test_a_forked_child_neither_stops_the_engine_nor_keeps_it_alive(kind: str, home_for: HomeFor) -> None:
    with owner(kind, home_for(kind), "forked") as program:
        facts = program.hear()
        try:
            assert facts["running"]
            assert lives(facts["engine"])
            program.kill()
            assert is_gone(facts["engine"])
            assert lives(facts["child"])
        finally:
            os.kill(facts["child"], signal.SIGKILL)
        assert is_gone(facts["child"])


@KINDS
def test_an_engine_ends_when_its_owner_leaves_without_a_word(kind: str, home_for: HomeFor) -> None:
    with owner(kind, home_for(kind), "plain") as program:
        engine = program.hear()["engine"]
        program.end_input()
        assert program.process.wait(30) == 0
        assert is_gone(engine)


def test_an_engine_ends_when_its_owner_becomes_another_program(fresh_home: Path) -> None:
    with owner("valkey", fresh_home, "replaced") as program:
        engine = program.hear()["engine"]
        program.go_on()
        assert is_gone(engine)
        assert program.process.poll() is None


@KINDS
def test_an_engine_ends_when_its_keeper_is_killed(kind: str, home_for: HomeFor) -> None:
    with owner(kind, home_for(kind), "plain") as program:
        engine = program.hear()["engine"]
        os.kill(parent_of(engine), signal.SIGKILL)
        assert is_gone(engine)


@KINDS
def test_doubled_signals_to_the_terminal_s_group_leave_the_engine_to_its_owner(kind: str, home_for: HomeFor) -> None:
    with owner(kind, home_for(kind), "patient") as program:
        engine = program.hear()["engine"]
        for number in (signal.SIGINT, signal.SIGINT, signal.SIGTERM, signal.SIGTERM):
            os.killpg(program.process.pid, number)
            assert program.hear() == {"heard": number}
        assert lives(engine)
        program.end_input()
        assert program.hear() == {"stopped": True}
        assert not lives(engine)


def test_a_keeper_told_three_times_ends_its_engine_once_and_in_order(postgres_home: Path) -> None:
    with Postgres(postgres_home, settings=FAST) as postgres:
        engine, its_keeper = postgres.pid, parent_of(postgres.pid)
        connection = psycopg.connect(postgres.url)
        connection.execute("SELECT 1")  # an open transaction: a fast shutdown must not wait for it
        for _ in range(3):
            os.kill(its_keeper, signal.SIGTERM)
        assert is_gone(engine)
        connection.close()
        assert becomes_true(lambda: not postgres.running)
        log = postgres.log.read_text()
    assert log.count("received fast shutdown request") == 1
    assert "immediate shutdown" not in log
    assert "database system is shut down" in log


def test_a_killed_owner_s_postgres_shuts_down_in_order_too(postgres_home: Path) -> None:
    with owner("postgres", postgres_home, "plain") as program:
        engine = program.hear()["engine"]
        program.kill()
        assert is_gone(engine)
    assert "database system is shut down" in (postgres_home / "postgres.log").read_text()


def test_signals_that_are_blocked_where_it_is_started_end_it_all_the_same(fresh_home: Path) -> None:
    """Dramatiq's main process blocks them around the start of its workers, and a mask outlives exec."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
    try:
        valkey = Valkey(fresh_home).start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    valkey.stop()
    assert not lives(valkey.pid)
    assert "User requested shutdown" in valkey.log.read_text()


def test_an_engine_that_ends_by_itself_is_seen(fresh_home: Path) -> None:
    with Valkey(fresh_home) as valkey:
        os.kill(valkey.pid, signal.SIGKILL)
        assert becomes_true(lambda: not valkey.running)
        valkey.start()
        assert valkey.running
        assert ping(valkey.socket) is Answer.ALIVE


def test_a_frozen_engine_is_stopped_all_the_same(fresh_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(valkey_module, "FAREWELL", [(int(signal.SIGTERM), 0.2), (int(signal.SIGKILL), 5.0)])
    with Valkey(fresh_home) as valkey:
        os.kill(valkey.pid, signal.SIGSTOP)
        valkey.stop()
        assert not lives(valkey.pid)


def order_for(home: Path, owner_pid: int) -> bytes:
    order: keeper.Order = {
        "owner": owner_pid,
        "lock": str(home / "lock"),
        "lock_wait": 0.0,
        "log": str(home / "log"),
        "account": None,
        "env": {},
        "preparation": None,
        "pid_files": [],
        "cwd": str(home),
        "argv": ["/bin/sh", "-c", "echo started"],
        "text": "",
        "farewell": [(int(signal.SIGKILL), 5.0)],
        "orphan_signal": int(signal.SIGKILL),
    }
    return json.dumps(order).encode() + b"\n"


def run_keeper(text: bytes) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-I", "-S", keeper.__file__]
    return subprocess.run(command, input=text, capture_output=True, timeout=30, check=False)


def test_a_keeper_whose_owner_went_before_it_looked_starts_nothing(fresh_home: Path) -> None:
    not_its_parent = os.getppid()
    run = run_keeper(order_for(fresh_home, not_its_parent))
    assert (run.returncode, run.stdout, list(fresh_home.iterdir())) == (1, b"", [])


def test_a_keeper_whose_order_breaks_off_starts_nothing(fresh_home: Path) -> None:
    run = run_keeper(order_for(fresh_home, os.getpid())[:-2])
    assert (run.returncode, run.stdout, list(fresh_home.iterdir())) == (1, b"", [])
