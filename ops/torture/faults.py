"""The faults. Each one begins, lasts and is mended before its function returns."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable

from ops.torture.ledger import note
from ops.torture.sightings import in_hand, with_shift
from ops.torture.world import LEASE, WORKERS, Process, World, limit_files
from store.errors import StoreUnavailable

Fault = Callable[[World, random.Random], None]

#: How far a wall clock steps, in hours.
STEPS = (-13, -1, 1, 7)
#: Seconds for which the store's disk is full.
FULL = 1.5
#: Bytes beyond which no file grows meanwhile.
SMALL = "4096"


def _replace(world: World, victim: Process) -> None:
    world.workers.remove(victim)
    world.kill(victim)
    world.worker()


def _freeze(victim: Process) -> None:
    os.killpg(victim.popen.pid, signal.SIGSTOP)
    time.sleep(LEASE * 2.2)
    os.killpg(victim.popen.pid, signal.SIGCONT)


def worker_killed(world: World, choose: random.Random) -> None:
    """kill -9, and another one in its place."""
    _replace(world, choose.choice(world.workers))


def worker_frozen(world: World, choose: random.Random) -> None:
    """Stopped in the middle of a run for longer than its lease; then it goes on as if nothing had happened."""
    _freeze(in_hand(world, "deaf") or choose.choice(world.workers))


def worker_restarted(world: World, choose: random.Random) -> None:
    """SIGTERM, as a deploy does it."""
    victim = world.workers.pop(choose.randrange(len(world.workers)))
    world.worker()
    world.stop(victim, 15)


def fleet_killed(world: World, choose: random.Random) -> None:
    """Every worker killed at once; for a while there is none."""
    while world.workers:
        world.kill(world.workers.pop())
    time.sleep(1)
    for _ in range(WORKERS):
        world.worker()


def scheduler_killed(world: World, choose: random.Random) -> None:
    """kill -9 of the workers that have, or wait for, the scheduler's shift."""
    for victim in with_shift(world):
        _replace(world, victim)


def scheduler_frozen(world: World, choose: random.Random) -> None:
    """The worker that began the newest shift is stopped for longer than a lease."""
    _freeze((with_shift(world) or world.workers)[-1])


def clock_stepped(world: World, choose: random.Random) -> None:
    """One worker's wall clock jumps by hours, and stays there. Not on SQLite, whose clock is that of its machine."""
    choose.choice(world.workers).clock.write_text(str(choose.choice(STEPS) * 3600))
    time.sleep(0.5)


def disk_full(world: World, choose: random.Random) -> None:
    """No file of the store's may grow for a while: by a limit on its writers, so that it needs no rights."""
    limit_files(world.writers(), SMALL)
    time.sleep(FULL)
    limit_files(world.writers(), "unlimited")
    if world.database is not None and not _answers(world):  # it gave up, as a server whose log can't grow may
        world.database.kill()
        world.database.start()


def _answers(world: World) -> bool:
    deadline = time.monotonic() + 3
    while time.monotonic() < deadline:
        try:
            world.store.ping()
        except StoreUnavailable:
            time.sleep(0.2)
        else:
            return True
    return False


def valkey_killed(world: World, choose: random.Random) -> None:
    """kill -9: everything that it held is gone."""
    server = world.valkey or choose.choice(world.cluster.nodes)  # type: ignore[union-attr]  # one of the two is there
    server.kill()
    time.sleep(choose.random())
    server.start()


def valkey_restarted(world: World, choose: random.Random) -> None:
    """A clean stop and start: everything that it held is gone, too."""
    (world.valkey or choose.choice(world.cluster.nodes)).restart()  # type: ignore[union-attr]  # one of the two is there


def valkey_flushed(world: World, choose: random.Random) -> None:
    """FLUSHALL."""
    world.command("FLUSHALL")


def scripts_flushed(world: World, choose: random.Random) -> None:
    """SCRIPT FLUSH."""
    world.command("SCRIPT", "FLUSH")


def valkey_demoted(world: World, choose: random.Random) -> None:
    """A read-only replica of nobody, and then a primary again."""
    world.command("REPLICAOF", "127.0.0.1", "1")
    time.sleep(1 + choose.random())
    world.command("REPLICAOF", "NO", "ONE")


def slots_moved(world: World, choose: random.Random) -> None:
    """Every slot of one node that holds keys moves to the next one, key by key."""
    assert world.cluster is not None
    full = [(number, slots) for number in range(len(world.cluster.nodes)) if (slots := world.cluster.slots(number))]
    if full:
        source, slots = choose.choice(full)
        for slot in sorted(slots):
            world.cluster.move(slot, source, (source + 1) % len(world.cluster.nodes), pause=0.05)
            note("slot_moved")


def store_killed(world: World, choose: random.Random) -> None:
    """kill -9 of the database's server."""
    assert world.database is not None
    world.database.kill()
    time.sleep(choose.random())
    world.database.start()


def store_restarted(world: World, choose: random.Random) -> None:
    """A clean stop and start of the database's server."""
    assert world.database is not None
    world.database.restart()


def store_frozen(world: World, choose: random.Random) -> None:
    """The database's processes are stopped for longer than a lease."""
    assert world.database is not None
    frozen = world.writers()
    for pid in frozen:
        _signal(pid, signal.SIGSTOP)
    time.sleep(LEASE * 1.3)
    for pid in frozen:
        _signal(pid, signal.SIGCONT)


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return  # a session that ended meanwhile


def pooler_killed(world: World, choose: random.Random) -> None:
    """kill -9 of pgbouncer."""
    assert world.pooler is not None
    world.pooler.kill()
    world.pooler.start()


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
    found: list[Fault] = [
        worker_killed,
        worker_frozen,
        worker_restarted,
        fleet_killed,
        scheduler_killed,
        scheduler_frozen,
    ]
    found += [disk_full, valkey_killed, valkey_restarted, valkey_flushed, scripts_flushed]
    found += [valkey_demoted] if world.valkey is not None else [slots_moved]
    found += [] if world.database is None else [store_killed, store_restarted, store_frozen, clock_stepped]
    found += [] if world.pooler is None else [pooler_killed]
    named = {one.__name__: one for one in found}
    for name in world.proxies:
        named |= {
            f"{name}_cut": _cut(name),
            f"{name}_replies_lost": _replies_lost(name),
            f"{name}_delayed": _delayed(name),
        }
    return named
