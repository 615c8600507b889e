"""What the pages about testing and about own loops show does what they say."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.docs.test_shown_commands import blocks, environment, run
from tests.endtoend.house import eventually

WAKE = "dramaturg wake invoice.send --payload '{\"invoice_id\": %d}' --key %d"


def rows(folder: Path) -> list[dict[str, object]]:
    found = json.loads(run("dramaturg list --json", folder))
    assert isinstance(found, list)
    return found


def wakes(folder: Path, number: int) -> bool:
    """Whether the command line takes the wake: it refuses a type that nobody published."""
    command = WAKE % (number, number)
    done = subprocess.run(
        command, shell=True, cwd=folder, env=environment(folder), capture_output=True, timeout=60, check=False
    )
    return done.returncode == 0


def test_the_tests_that_are_shown_pass(tmp_path: Path) -> None:
    program, tests = blocks("docs/how-to/test-your-jobs.md")
    (tmp_path / "invoices.py").write_text(program)
    (tmp_path / "test_invoices.py").write_text(tests)
    said = run(f"{sys.executable} -m pytest -q -p no:cacheprovider -p no:valkey test_invoices.py", tmp_path)
    assert "3 passed" in said
    assert not (tmp_path / ".dramaturg").exists()  # the program's own database was left alone


def test_the_loop_that_is_shown_runs_jobs_until_it_is_told_to_stop(tmp_path: Path) -> None:
    (tmp_path / "loop.py").write_text(blocks("docs/how-to/your-own-loop.md")[0])
    run("dramaturg migrate", tmp_path)
    loop = subprocess.Popen([sys.executable, "loop.py"], cwd=tmp_path, env=environment(tmp_path))
    try:
        eventually(lambda: wakes(tmp_path, 7), what="the loop to publish its type")
        eventually(lambda: rows(tmp_path)[0]["state"] == "completed", what="the invoice to be sent")
        assert rows(tmp_path)[0]["result"] == {"sent": 7}
    finally:
        os.kill(loop.pid, signal.SIGTERM)
        assert loop.wait(60) == 0


def test_the_steps_that_are_shown_take_what_is_due(tmp_path: Path) -> None:
    program = blocks("docs/how-to/your-own-loop.md")[1]
    (tmp_path / "steps.py").write_text(program)
    run("dramaturg migrate", tmp_path)
    url = f"JOBS_DB_URL=sqlite:///{tmp_path}/.dramaturg/jobs.db"
    assert run(f"{url} python steps.py", tmp_path) == ""  # publishes the type, and finds nothing
    for number in (7, 8):
        run(WAKE % (number, number), tmp_path)
    said = run(f"{url} python steps.py", tmp_path)
    assert said.count("sending") == said.count("applied") == 2
    assert {row["state"] for row in rows(tmp_path)} == {"completed"}
