"""A job type that wants a credential, and tells the ledger what its process and a child of it can see."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from dramaturg import Payload, Run, job

QUEUE = os.environ.get("TEST_QUEUE", "default")


def tell(*words: object) -> None:
    with Path(os.environ["LEDGER"]).open("a") as ledger:
        ledger.write(" ".join(map(str, words)) + "\n")


@job("secret.read", payload=Payload, queue=QUEUE, credentials=("storage.reader",))
def read(payload: Payload, run: Run) -> None:
    tell("read", run.credential("storage.reader")["key"], os.geteuid())


@job("secret.look", payload=Payload, queue=QUEUE)
def look(payload: Payload, run: Run) -> None:
    code = "import os, sys; sys.stdout.write(repr(dict(os.environ)))"
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout.decode()
    for secret in ("hunter2", "JOBS_DB_URL", "JOBS_VALKEY_URL", "JOBS_CRYPTO_KEY"):
        tell("look", secret, secret in child or secret in repr(dict(os.environ)))
