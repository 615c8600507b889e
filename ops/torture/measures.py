"""What may not grow, measured from outside."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import psycopg
import redis

from ops.torture.world import World, family
from store.engines.postgres import Postgres

_SIZES = """
SELECT coalesce(sum(pg_table_size(c.oid)), 0)::float8, coalesce(sum(pg_indexes_size(c.oid)), 0)::float8
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'dramaturg' AND c.relkind = 'r'
"""
_SESSIONS = "SELECT count(*)::float8 FROM pg_stat_activity WHERE backend_type = 'client backend'"


class Sample(NamedTuple):
    """The first three are those of the worker that is never restarted; bytes and counts."""

    memory: float
    open_files: float
    sockets: float
    valkey_clients: float
    valkey_keys: float
    valkey_memory: float
    store_sessions: float  # 0 where the store has none that could be counted
    table_bytes: float  # of the whole database where its parts can't be told apart
    index_bytes: float


def sample(world: World) -> Sample:
    """One moment."""
    assert world.valkey is not None
    oldest = list(family(world.workers[0].popen.pid))
    links = [_target(link) for pid in oldest for link in Path(f"/proc/{pid}/fd").iterdir()]
    with redis.Redis.from_url(world.valkey.url) as client:
        facts = client.info()
        keys = client.dbsize()
    return Sample(
        sum(_resident(pid) for pid in oldest),
        len(links),
        sum(link.startswith("socket:") for link in links),
        float(facts["connected_clients"]),
        float(keys),
        float(facts["used_memory"]),
        *_store(world),
    )


def _resident(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return float(pages * os.sysconf("SC_PAGE_SIZE"))


def _target(link: Path) -> str:
    try:
        return os.readlink(link)
    except FileNotFoundError:
        return ""  # closed meanwhile


def _store(world: World) -> tuple[float, float, float]:
    if isinstance(world.database, Postgres):
        with psycopg.connect(world.database.admin_url, autocommit=True) as connection:
            sessions = connection.execute(_SESSIONS).fetchone()
            sizes = connection.execute(_SIZES).fetchone()
            assert sessions
            assert sizes
            return sessions[0], sizes[0], sizes[1]
    within = world.home / "surreal" if world.database is not None else world.home
    files = within.rglob("*") if world.database is not None else within.glob("jobs.db*")
    return 0.0, float(sum(path.stat().st_size for path in files if path.is_file())), 0.0
