"""Programs that ``up`` runs: started again when they die, and ended with their owner."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ops.up.children import LONGEST_PAUSE, Child, pause_before, stop_all
from tests.up.programs import becomes, lives

SCRIPT = "import signal, time; signal.signal(signal.SIGTERM, {}); print('up', flush=True); time.sleep(600)"
PATIENT = SCRIPT.format("lambda *_: exit(0)")
DEAF = SCRIPT.format("signal.SIG_IGN")


def child(home: Path, script: str = PATIENT, patience: float = 10.0) -> Child:
    (home / "logs").mkdir(exist_ok=True)
    return Child("worker-1", [sys.executable, "-c", script], home, {**os.environ}, patience)


def started(home: Path, script: str = PATIENT, patience: float = 10.0) -> Child:
    made = child(home, script, patience)
    assert made.start()
    assert becomes(lambda: "up" in made.log.read_text())
    return made


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Child]:
    made = started(tmp_path)
    yield made
    made.stop()


def pid_of(child: Child) -> int:
    assert child.pid is not None
    return child.pid


def test_a_child_that_dies_is_started_again_after_a_pause(running: Child) -> None:
    first = pid_of(running)
    os.kill(first, signal.SIGKILL)
    told: list[str] = []
    assert becomes(lambda: told.append(running.tend() or "") or running.pid not in (None, first))
    told = [line for line in told if line]
    assert "ended by itself" in told[0]
    assert "started again" in told[1]


def test_a_child_that_lives_is_left_alone(running: Child) -> None:
    assert running.tend() is None


def test_short_lives_make_the_pause_longer_up_to_a_bound() -> None:
    pauses = [pause_before(deaths) for deaths in range(1, 100)]
    assert pauses == sorted(pauses)
    assert pauses[0] <= 1.0
    assert pauses[-1] == LONGEST_PAUSE


def test_a_name_is_taken_while_its_program_lives(running: Child, tmp_path: Path) -> None:
    assert not child(tmp_path).start()
    running.stop()
    again = child(tmp_path)
    assert again.start()
    again.stop()


def test_stopping_ends_the_program_and_stopping_again_does_nothing(running: Child) -> None:
    pid = pid_of(running)
    assert stop_all([running]) == []
    assert not lives(pid)
    assert running.pid is None
    assert stop_all([running]) == []


def test_a_program_that_does_not_listen_is_killed_after_its_time(tmp_path: Path) -> None:
    deaf = started(tmp_path, DEAF, patience=0.2)
    pid = pid_of(deaf)
    assert stop_all([deaf]) == []
    assert not lives(pid)


def test_stopping_nothing_is_nothing(tmp_path: Path) -> None:
    assert stop_all([]) == []
    assert stop_all([child(tmp_path)]) == []
