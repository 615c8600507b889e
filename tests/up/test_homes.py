from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path

import pytest

from ops.up.homes import emptied, held
from ops.up.stopping import Stop, StopAsked
from store.errors import Refused


def test_a_home_is_held_by_one_at_a_time(tmp_path: Path) -> None:
    lock = tmp_path / "up.lock"
    with held(lock):
        with pytest.raises(Refused, match="another `dramaturg up`"):
            with held(lock):
                pass
    with held(lock):
        pass


def test_a_lock_that_can_not_be_made_is_told(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="JOBS_HOME"):
        with held(tmp_path / "missing" / "up.lock"):
            pass


def test_a_home_is_emptied(tmp_path: Path) -> None:
    home = tmp_path / "demo"
    assert emptied(home, Stop()) == home
    (home / "logs").mkdir()
    (home / "logs" / "worker-1.lock").touch()
    (home / "jobs.db").write_text("old")
    assert list(emptied(home, Stop()).iterdir()) == []


def test_what_is_not_a_directory_of_ours_is_left_alone(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious").touch()
    (tmp_path / "demo").symlink_to(elsewhere)
    (tmp_path / "file").write_text("precious")
    for name in ("demo", "file"):
        with pytest.raises(Refused):
            emptied(tmp_path / name, Stop())
    assert (elsewhere / "precious").exists()


def test_emptying_waits_for_what_still_runs_and_can_be_stopped_meanwhile(tmp_path: Path) -> None:
    home = tmp_path / "demo"
    (home / "logs").mkdir(parents=True)
    lock = os.open(home / "logs" / "worker-1.lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    stop = Stop()
    later = threading.Timer(0.3, lambda: setattr(stop, "asked", True))
    later.start()
    with pytest.raises(StopAsked):
        emptied(home, stop)
    later.join()
    assert home.exists()
    release = threading.Timer(0.3, os.close, [lock])
    release.start()
    assert list(emptied(home, Stop()).iterdir()) == []
    release.join()
