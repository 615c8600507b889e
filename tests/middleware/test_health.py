"""A worker is healthy while its loops do their work, and no longer."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import orjson
import pytest

from middleware.health import FILE_LIMIT, LOOP_LIMIT, Health, judge

GOOD = {"consumer default": 0.5, "store": 2.0, "scheduler": 1.0}


def write(home: Path, *, age: float = 0, pid: int | None = None, loops: dict[str, float] | None = None) -> None:
    folder = home / "health"
    folder.mkdir(exist_ok=True)
    body: dict[str, Any] = {
        "worker": "here:1",
        "pid": pid or os.getpid(),
        "at": time.time() - age,
        "loops": GOOD if loops is None else loops,
    }
    (folder / f"{body['pid']}.json").write_bytes(orjson.dumps(body))


def test_working_loops_are_healthy(tmp_path: Path) -> None:
    write(tmp_path)
    assert judge(tmp_path).healthy


def test_no_worker_is_not_healthy(tmp_path: Path) -> None:
    verdict = judge(tmp_path)
    assert not verdict.healthy
    assert "no worker" in verdict.reasons[0]


@pytest.mark.parametrize("loop", sorted(GOOD))
def test_one_loop_that_hangs_turns_it_red_by_name(tmp_path: Path, loop: str) -> None:
    write(tmp_path, loops=GOOD | {loop: LOOP_LIMIT + 1})
    verdict = judge(tmp_path)
    assert not verdict.healthy
    assert loop in verdict.reasons[0]


@pytest.mark.parametrize(("lacking", "word"), [("store", "store"), ("consumer default", "Valkey")])
def test_a_service_that_was_never_reached_is_told(tmp_path: Path, lacking: str, word: str) -> None:
    write(tmp_path, loops={loop: age for loop, age in GOOD.items() if loop != lacking})
    assert word in judge(tmp_path).reasons[0]


def test_a_process_that_lives_and_is_silent_is_red(tmp_path: Path) -> None:
    write(tmp_path, age=FILE_LIMIT + 1)
    assert "hangs or is frozen" in judge(tmp_path).reasons[0]


def test_a_killed_process_is_forgotten_and_says_nothing_about_the_others(tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    write(tmp_path)
    write(tmp_path, age=FILE_LIMIT + 1, pid=dead.pid)
    assert judge(tmp_path).healthy
    assert not (tmp_path / "health" / f"{dead.pid}.json").exists()


def test_a_file_that_is_no_sign_of_life_is_passed_over(tmp_path: Path) -> None:
    write(tmp_path)
    for number, text in enumerate([b"", b"{", b"[]", b'{"worker": 1}', b'{"loops": 3, "at": "x", "pid": {}}']):
        (tmp_path / "health" / f"bad-{number}.json").write_bytes(text)
    assert judge(tmp_path).healthy


def test_what_a_worker_writes_is_what_is_judged(tmp_path: Path) -> None:
    health = Health(tmp_path, "here:2")
    health.write()
    assert not judge(tmp_path).healthy
    health.sign("consumer default")
    health.sign("store")
    health.write()
    assert judge(tmp_path).healthy
    health.remove()
    assert not judge(tmp_path).healthy
