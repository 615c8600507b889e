"""Each store with its meter, over an empty database in which the tests' job type is published."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from store.contract import Store
from store.open import open_store
from store.valkey.address import parse
from store.valkey.client import Client
from store.valkey.leases import Leases
from tests.bench.meters import Meter, PostgresMeter, SqliteMeter, SurrealMeter, ValkeyMeter
from tests.contract.acts import publish
from tests.contract.rows import TYPE


class Metered(NamedTuple):
    """A store and what counts its costs."""

    name: str
    url: str
    store: Store
    meter: Meter


@pytest.fixture(params=["sqlite", "postgres", "surreal"])
def metered(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Metered]:
    name = request.param
    url = f"sqlite:///{tmp_path}/jobs.db"
    if name != "sqlite":
        url = request.getfixturevalue("postgres_url" if name == "postgres" else "migrated_surreal_url")
    store = open_store(url)
    meters = {
        "sqlite": lambda: SqliteMeter(monkeypatch, store),
        "postgres": lambda: PostgresMeter(monkeypatch, store, url),
        "surreal": lambda: SurrealMeter(monkeypatch, store),
    }
    meter: Meter = meters[name]()
    store.migrate()
    publish(store, TYPE)
    yield Metered(name, url, store, meter)
    store.close()


@pytest.fixture
def valkey_meter(valkey_url: str) -> Iterator[ValkeyMeter]:
    meter = ValkeyMeter(valkey_url)
    yield meter
    meter.close()


@pytest.fixture
def leases(valkey_url: str) -> Iterator[Leases]:
    client = Client(parse(valkey_url))
    client.ping()
    yield Leases(client)
    client.close()
