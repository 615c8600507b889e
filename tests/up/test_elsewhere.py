"""What to type in another terminal."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from ops.up.elsewhere import elsewhere, program
from ops.up.engines import Engines


def test_each_setting_is_a_line_of_its_own(tmp_path: Path) -> None:
    home = tmp_path / "a b"
    assert elsewhere(Engines(home, "sqlite")) == [f"export JOBS_HOME={shlex.quote(str(home))}", f"{program()} list"]


def test_servers_of_somebody_else_are_spoken_of_and_not_repeated(tmp_path: Path) -> None:
    engines = Engines(
        tmp_path, "postgres", db_url="postgresql://u:hunter2@h/jobs", valkey_url="redis://:hunter2@127.0.0.1:1"
    )
    said = "\n".join(elsewhere(engines))
    assert "hunter2" not in said
    assert "JOBS_DB_URL" in said
    assert "JOBS_VALKEY_URL" in said


def test_the_program_is_named_so_that_a_shell_finds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert Path(shlex.split(program())[0]).is_file()
    (tmp_path / "dramaturg").touch(0o755)
    assert program() == "dramaturg"
