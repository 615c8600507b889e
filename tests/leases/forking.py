"""A program: uses one client before, during and after forks, and says what each process took. Run by test_fork.py.

``python -m tests.leases.forking URL QUEUE CHILDREN CLAIMS`` prints one line a claim: process number, member, token.
"""

from __future__ import annotations

import os
import sys
import threading
import uuid

from store.valkey.client import connect
from store.valkey.entries import Ack
from store.valkey.leases import Leases


def main(url: str, queue: str, children: int, claims: int) -> int:
    client = connect(url)
    leases = Leases(client)
    leases.sizes(queue)
    stop = threading.Event()

    def talk() -> None:
        while not stop.is_set():
            client.ping()

    def wait() -> None:
        while not stop.is_set():
            leases.block(f"{queue} of nobody", 0.02)

    # Forking while other threads are in the middle of talking and waiting is what servers do to their children.
    threads = [threading.Thread(target=work) for work in (talk, wait)]
    for thread in threads:
        thread.start()
    pids = []
    for number in range(children):
        pid = os.fork()
        if pid == 0:
            os._exit(take(leases, queue, number, claims))
        pids.append(pid)
    failed = any(os.waitpid(pid, 0)[1] for pid in pids)
    stop.set()
    for thread in threads:
        thread.join()
    take(leases, queue, children, 1)
    client.close()
    return int(failed)


def take(leases: Leases, queue: str, number: int, claims: int) -> int:
    for _ in range(claims):
        token = str(uuid.uuid4())
        (one,) = leases.claim(queue, [token], full_ms=60_000).taken
        if one.token != token or leases.ack(queue, [Ack(one.member, token)]) != [True]:
            return 1
        os.write(1, f"{number} {one.member} {token}\n".encode())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
