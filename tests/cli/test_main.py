"""What holds of every command: exit codes, the two streams, errors."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ops.cli import jobs
from ops.cli.main import COMMANDS
from store.contract import Store
from tests.cli.conftest import ROOT, Command, environment, run_program, woken

#: What is not needed to word help, and takes longer to load than all the rest.
HEAVY = ("rich", "dramatiq", "pydantic", "structlog", "psycopg", "redis", "pygit2", "sqlite3", "actors", "middleware")


def test_help_loads_nothing_that_takes_time() -> None:
    script = "import sys; from ops.cli.main import main; main(['--help']); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not set(done.stderr.split()) & set(HEAVY)
    assert all(name in done.stdout for name in COMMANDS)


#: Commands that have commands, each of which takes --json.
GROUPS = {
    "proposals": "list",
    "sweep": "ttl",
    "archive": "meta",
    "queue": "list",
    "quota": "list",
    "sla": "list",
    "crypto": "rotate",
}


@pytest.mark.parametrize(("group", "name"), GROUPS.items())
def test_a_command_of_a_group_has_help_and_json(dramaturg: Command, group: str, name: str) -> None:
    assert "--json" in dramaturg(group, name, "--help").out


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_and_json(dramaturg: Command, name: str) -> None:
    shown = dramaturg(name, "--help")
    assert shown.code == 0
    assert "--json" in shown.out or name in GROUPS


@pytest.mark.parametrize(
    "words", [(), ("nosuch",), ("list", "--nosuch"), ("show",), ("list", "--limit", "0"), ("list", "x")]
)
def test_wrong_usage_is_told_on_standard_error_with_code_2(dramaturg: Command, words: tuple[str, ...]) -> None:
    done = dramaturg(*words)
    assert done.code == 2
    assert done.out == ""
    assert "dramaturg" in done.err


def test_with_json_an_error_is_one_object_on_standard_output(dramaturg: Command) -> None:
    refused = dramaturg("show", "0190f3c2-7d1e-8a6b-9c3d-2f4e5a6b7c8d", "--json")
    assert refused.code == 1
    assert refused.json["error"]["code"] == "not_found"
    assert refused.json["error"]["message"] in refused.err
    usage = dramaturg("list", "--limit", "many", "--json")
    assert usage.code == 2
    assert usage.json["error"]["code"] == "usage"


def test_an_unexpected_error_shows_its_class_and_place_only(
    dramaturg: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> Any:
        raise ValueError("hunter2")

    monkeypatch.setattr(jobs, "opened", broken)
    done = dramaturg("stats", "--json")
    assert done.code == 1
    assert "hunter2" not in done.out + done.err
    assert "Traceback" not in done.err
    assert "ValueError" in done.err
    assert "test_main.py" in done.err
    assert done.json["error"]["code"] == "unexpected"


def test_all_that_is_wrong_with_the_settings_is_told_at_once(dramaturg: Command) -> None:
    done = dramaturg(
        "wake", "a.b", JOBS_DB_URL="mysql://secret@x", JOBS_VALKEY_URL="ftp://secret", WORKER_CONCURRENCY="99"
    )
    assert done.code == 2
    for name in ("JOBS_DB_URL", "JOBS_VALKEY_URL", "WORKER_CONCURRENCY"):
        assert name in done.err
    assert "secret" not in done.err


@pytest.mark.parametrize("words", [("list",), ("stats",), ("cancel", "--owner", "x"), ("wake", "a.b")])
def test_a_store_that_is_not_migrated_asks_for_migrate(
    dramaturg: Command, tmp_path: Path, words: tuple[str, ...]
) -> None:
    other = tmp_path / "other"
    done = dramaturg(*words, JOBS_HOME=str(other))
    assert done.code == 1
    assert "dramaturg migrate" in done.err
    assert not other.exists(), "looking must not make anything"


def test_a_home_that_can_not_be_made_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run_program(tmp_path / "file" / "home", "migrate", "--json")
    assert done.code == 1
    assert str(tmp_path / "file") in done.err
    assert done.json["error"]["code"] == "store_unavailable"


@pytest.mark.parametrize("words", [("list",), ("wake", "a.b"), ("health",)])
def test_a_home_that_can_not_be_there_is_no_surprise(
    dramaturg: Command, tmp_path: Path, words: tuple[str, ...]
) -> None:
    (tmp_path / "file").write_text("")
    done = dramaturg(*words, JOBS_HOME=str(tmp_path / "file" / "home"))
    assert done.code == 1
    assert "unexpected" not in done.err


@pytest.mark.parametrize("words", [("stats",), ("list",), ("wake", "a.b"), ("health",)])
def test_a_database_that_does_not_answer_is_a_clear_error(dramaturg: Command, words: tuple[str, ...]) -> None:
    done = dramaturg(*words, "--json", JOBS_DB_URL="postgresql://someone:hunter2@127.0.0.1:1/jobs")
    assert done.code == 1
    assert "hunter2" not in done.out + done.err
    assert "unexpected" not in done.err
    assert done.json.get("healthy") is False or done.json["error"]["code"] == "store_unavailable"


def test_a_reader_that_leaves_early_is_no_traceback(store: Store, home: Path) -> None:
    for number in range(300):
        woken(store, f"key-{number}", payload=f'{{"text":"{"x" * 400}"}}')
    reader, writer = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-m", "ops.cli.main", "list", "--json", "--limit", "300"],
        cwd=ROOT,
        env=environment(home),
        stdout=writer,
        stderr=subprocess.PIPE,
    )
    os.close(writer)
    os.close(reader)
    _, err = process.communicate(timeout=30)
    assert b"Traceback" not in err
    assert b"Exception ignored" not in err


def test_commands_that_look_need_no_valkey(dramaturg: Command, home: Path) -> None:
    for words in (("list",), ("stats",), ("cancel", "--owner", "nobody")):
        done = dramaturg(*words, JOBS_VALKEY_URL="redis://127.0.0.1:1")
        assert done.code == 0, done.err
    assert sorted(path.name for path in home.iterdir() if "valkey" in path.name) == []


@pytest.mark.parametrize("words", ["list --json", "list", "list --nosuch --json", "--help"])
@pytest.mark.parametrize("place", [">/dev/full", ">&-"])
@pytest.mark.parametrize("rows", [0, 100])
def test_output_that_can_not_be_written_is_one_line(
    store: Store, home: Path, words: str, place: str, rows: int
) -> None:
    for number in range(rows):
        woken(store, f"key-{number}", payload=f'{{"text":"{"x" * 400}"}}')
    done = subprocess.run(
        ["sh", "-c", f'exec "$0" -m ops.cli.main {words} {place}', sys.executable],
        cwd=ROOT,
        env=environment(home),
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    lines = [line for line in done.stderr.splitlines() if "standard output" in line]
    assert len(lines) == 1
    if "--nosuch" not in words:
        assert done.stderr.splitlines() == lines
    assert "Traceback" not in done.stderr
