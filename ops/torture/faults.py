"""The faults. Each one begins, lasts and is mended before its function returns."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable

from ops.torture.world import LEASE, WORKERS, World

Fault = Callable[[World, random.Random], None]


def worker_killed(world: World, choose: random.Random) -> None:
    """kill -9, and another one in its place."""
    victim = world.workers.pop(choose.randrange(len(world.workers)))
    world.kill(victim)
    world.worker()


def worker_frozen(world: World, choose: random.Random) -> None:
    """Stopped for longer than its lease, then it goes on as if nothing had happened."""
    victim = choose.choice(world.workers)
    os.killpg(victim.pid, signal.SIGSTOP)
    time.sleep(LEASE * 1.7)
    os.killpg(victim.pid, signal.SIGCONT)


def worker_restarted(world: World, choose: random.Random) -> None:
    """SIGTERM, as a deploy does it."""
    victim = world.workers.pop(choose.randrange(len(world.workers)))
    victim.terminate()
    try:
        victim.wait(15)
    finally:
        if victim.poll() is None:
            world.kill(victim)
    world.worker()


def fleet_stopped(world: World, choose: random.Random) -> None:
    """Every worker killed at once; for a while there is none."""
    while world.workers:
        world.kill(world.workers.pop())
    time.sleep(1)
    for _ in range(WORKERS):
        world.worker()


def valkey_killed(world: World, choose: random.Random) -> None:
    """kill -9: everything that it held is gone."""
    world.valkey.kill()
    time.sleep(choose.random())
    world.valkey.start()


def valkey_flushed(world: World, choose: random.Random) -> None:
    """FLUSHALL."""
    world.command("FLUSHALL")


def scripts_flushed(world: World, choose: random.Random) -> None:
    """SCRIPT FLUSH."""
    world.command("SCRIPT FLUSH")


def valkey_demoted(world: World, choose: random.Random) -> None:
    """A read-only replica of nobody, and then a primary again."""
    world.command("REPLICAOF 127.0.0.1 1")
    time.sleep(1 + choose.random())
    world.command("REPLICAOF NO ONE")


def store_killed(world: World, choose: random.Random) -> None:
    """kill -9 of the database's server."""
    assert world.database is not None
    world.database.kill()
    time.sleep(choose.random())
    world.database.start()


def _cut(name: str) -> Fault:
    return lambda world, choose: world.proxies[name].cut()


def _replies_lost(name: str) -> Fault:
    def lose(world: World, choose: random.Random) -> None:
        world.proxies[name].losing = True
        time.sleep(0.5)
        world.proxies[name].losing = False

    return lose


def _delayed(name: str) -> Fault:
    def delay(world: World, choose: random.Random) -> None:
        world.proxies[name].delay = 0.3
        time.sleep(1.5)
        world.proxies[name].delay = 0.0

    return delay


def faults_of(world: World) -> dict[str, Fault]:
    """Every fault that this world can suffer, by name."""
    found: dict[str, Fault] = {
        one.__name__: one
        for one in (worker_killed, worker_frozen, worker_restarted, fleet_stopped, valkey_killed, valkey_flushed)
    }
    found |= {"scripts_flushed": scripts_flushed, "valkey_demoted": valkey_demoted}
    if world.database is not None:
        found["store_killed"] = store_killed
    for name in world.proxies:
        found |= {
            f"{name}_cut": _cut(name),
            f"{name}_replies_lost": _replies_lost(name),
            f"{name}_delayed": _delayed(name),
        }
    return found
