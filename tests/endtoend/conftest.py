from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.endtoend.house import House


@pytest.fixture(params=["sqlite", "postgres", "surreal"])
def make_house(request: pytest.FixtureRequest, tmp_path: Path, valkey_url: str) -> Iterator[Callable[..., House]]:
    """Makes the test's system, on each store."""
    made: list[House] = []
    sqlite = request.param == "sqlite"
    url = f"sqlite:///{tmp_path}/jobs.db" if sqlite else request.getfixturevalue(f"{request.param}_url")

    def make(**settings: str) -> House:
        made.append(House(tmp_path, url, valkey_url, **settings))
        return made[-1]

    yield make
    for house in made:
        house.close()


@pytest.fixture
def house(make_house: Callable[..., House]) -> House:
    return make_house()
