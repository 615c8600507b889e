from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from middleware.health import Health
from tests.cli.conftest import Command


@pytest.fixture
def worker(home: Path) -> Iterator[Health]:
    """The signs of life of a worker that works; this process stands for it."""
    signs = Health(home, "someone:1")
    for loop in ("store", "consumer default", "scheduler"):
        signs.sign(loop)
    signs.write()
    yield signs
    signs.remove()


def test_all_that_works_is_healthy(
    dramaturg: Command, worker: Health, valkey_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOBS_VALKEY_URL", valkey_url)
    done = dramaturg("health", "--json")
    assert (done.code, done.json["healthy"], done.json["reasons"]) == (0, True, [])
    assert [one["worker"] for one in done.json["workers"]] == ["someone:1"]
    assert "healthy" in dramaturg("health").out


def test_each_reason_is_told(dramaturg: Command, home: Path) -> None:
    (home / "jobs.db").unlink()
    done = dramaturg("health", "--json")
    assert done.code == 1
    assert done.json["healthy"] is False
    assert len(done.json["reasons"]) == 3
    for word in ("dramaturg migrate", "Valkey", "no worker"):
        assert word in done.err


def test_a_valkey_that_does_not_answer_is_told_without_its_password(
    dramaturg: Command, worker: Health, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOBS_VALKEY_URL", "redis://:hunter2@127.0.0.1:1")
    done = dramaturg("health", "--json")
    assert done.code == 1
    assert done.json["valkey"] is False
    assert "hunter2" not in done.out + done.err
