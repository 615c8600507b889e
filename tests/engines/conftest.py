from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from store.engines.postgres import Postgres
from tests.engines.owners import becomes_true
from tests.engines_fixtures import FAST, processes_in, reachable_home


@pytest.fixture(scope="session")
def made_home() -> Iterator[Path]:
    """A home whose Postgres was made and stopped: making one for each test would take most of the time."""
    with reachable_home() as home:
        with Postgres(home / "made", settings=FAST):
            pass
        yield home / "made"


@pytest.fixture
def postgres_home(made_home: Path) -> Iterator[Path]:
    """A home with a Postgres that nobody runs: stopped or killed by whoever had it before."""
    yield made_home
    assert becomes_true(lambda: not processes_in(made_home)), "a Postgres was left running"


@pytest.fixture
def home_for(request: pytest.FixtureRequest, fresh_home: Path) -> Callable[[str], Path]:
    def home(kind: str) -> Path:
        if kind == "postgres":
            found: Path = request.getfixturevalue("postgres_home")
            return found
        return fresh_home / "home"

    return home
