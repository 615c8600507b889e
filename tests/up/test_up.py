"""``up`` and its demo as real processes on a real repository."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engines_fixtures import processes_in
from tests.up.programs import ROOT, Program, becomes, descendants, environment, lives, up

COMPARED = (
    r"dramaturg/ahead -> dramaturg/base: 1 ahead, 0 behind, 1 file changed, no conflict",
    r"dramaturg/behind -> dramaturg/base: 0 ahead, 1 behind, 0 files changed, no conflict",
    r"dramaturg/conflict -> dramaturg/base: 1 ahead, 1 behind, 1 file changed, 1 conflict",
)


def listed(home: Path, *words: str) -> list[dict[str, object]]:
    done = subprocess.run(
        [sys.executable, "-m", "ops.cli.main", *words, "--json"],
        cwd=ROOT,
        env=environment(home),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    found: list[dict[str, object]] = json.loads(done.stdout)
    return found


def worker_of(program: Program, home: Path) -> int:
    """The main process of the worker that runs by now; returns when it is ready."""
    log = home / "logs" / "worker-1.log"
    assert becomes(lambda: "ready for action" in log.read_text()), log.read_text()
    found = re.findall(r"worker-1 (?:runs as|was started again \()\s?process (\d+)", program.said)
    return int(found[-1])


def test_up_tracks_a_repository_and_ends_without_leaving_anything(repository: Path, fresh_home: Path) -> None:
    home = fresh_home / "home"
    with up(home, standing_in=repository) as program:
        program.says(*COMPARED, "worker-1 runs", "periodiq runs")
        assert any(lives(pid) for pid in program.started)
        assert processes_in(home)
        for _ in range(2):  # as a terminal and a supervisor that both mean it
            program.signal(signal.SIGINT)
            program.signal(signal.SIGTERM)
        assert program.ends() == 0, program.said
        assert not any(map(lives, program.started))
    first = listed(home, "proposals", "list")
    assert len(first) == 3

    # The same home again: what is there is used.
    with up(home, "--repo", str(repository)) as again:
        again.says(*COMPARED, "periodiq runs")
        with up(home, "--repo", str(repository)) as third:
            assert third.ends() == 1
            assert "another `dramaturg up`" in third.said
        # A worker whose main process is killed takes the processes that it forked along, and is started again.
        main = worker_of(again, home)
        forked = descendants(main)
        again.started |= forked
        os.kill(main, signal.SIGKILL)
        again.says("worker-1 ended by itself", "worker-1 was started again")
        assert becomes(lambda: not any(map(lives, forked)))
        # Not even kill -9 of the whole leaves anything behind.
        again.started |= descendants(worker_of(again, home))
        again.signal(signal.SIGKILL)
        again.ends()
        assert again.leaves_nothing()
    assert [proposal["id"] for proposal in listed(home, "proposals", "list")] == [proposal["id"] for proposal in first]
    assert processes_in(home) == []


def test_the_demo_shows_everything_and_ends_by_itself(repository: Path, fresh_home: Path) -> None:
    home = fresh_home / "home"
    with up(home, "--demo", "--repo", str(repository)) as program:
        code = program.ends(150)
        assert code == 0, program.said
        program.says(
            *COMPARED,
            r"noticed after .* 2 ahead, 0 behind, 2 files changed",
            r"attempt 1 was at \d+ % .* kill -9",
            r"attempt 2 was done by",
            r"attempt 1 attempt failed worker_lost",
            r"attempt 2 recovered",
            r"ended by itself",
            r"nothing is left running",
        )
        assert program.leaves_nothing(0)
    assert [path.name for path in home.iterdir() if path.is_dir()] == ["demo"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_demo_that_is_stopped_has_not_gone_well(repository: Path, fresh_home: Path, number: signal.Signals) -> None:
    with up(fresh_home / "home", "--demo", "--repo", str(repository)) as program:
        program.says("worker-1 runs")
        program.signal(number)
        assert program.ends() == 1, program.said
        assert program.said.count("stopped before everything was shown") == 1
        assert program.leaves_nothing(0)
