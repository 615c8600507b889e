"""The secret boundary of a real worker: what it takes out of its environment, what it refuses to start without, and
what the operating system keeps from it."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from store.engines.postgres import Postgres
from store.engines.valkey import Valkey
from store.events import Wake
from store.identity import new_id
from tests.endtoend.house import ROOT, House, eventually
from tests.middleware.credential_files import issue

MODULE = "tests.endtoend.secretive"


@pytest.fixture(scope="module")
def engines(engine_home: Path) -> Iterator[tuple[str, str]]:
    """URLs with passwords, by TCP: other users of this machine can't enter the sockets' directories."""
    home = engine_home / "by-tcp"
    home.mkdir(mode=0o711)
    with Postgres(home, tcp=True) as postgres, Valkey(home, tcp=True) as valkey:
        yield postgres.tcp_url, valkey.tcp_url


@pytest.fixture
def house(engines: tuple[str, str]) -> Iterator[House]:
    with tempfile.TemporaryDirectory(prefix="dramaturg-test-") as folder:  # which other users may enter
        Path(folder).chmod(0o777)
        made = House(Path(folder), *engines)
        made.ledger.chmod(0o666)
        yield made
        made.close()


def wake(house: House, job_type: str, queue: str = "default") -> str:
    return house.store.wake([Wake(new_id(), "default", queue, job_type, None, "{}")])[0].id


def test_secrets_of_the_environment_reach_neither_handlers_nor_their_children(house: House) -> None:
    path = issue(house.folder / "reader.credential")
    key = base64.b64encode(b"hunter2-hunter2-hunter2-hunter2-").decode()
    house.worker(MODULE, JOBS_CREDENTIAL_FILE_STORAGE_READER=str(path), JOBS_CRYPTO_KEY=key, JOBS_ENCRYPT="true")
    wake(house, "secret.look")
    told = house.wait_lines(4, "look")
    assert {(name, seen) for _, name, seen in told} == {
        ("hunter2", "False"), ("JOBS_DB_URL", "False"), ("JOBS_VALKEY_URL", "False"), ("JOBS_CRYPTO_KEY", "False"),
    }  # fmt: skip
    wake(house, "secret.read")
    house.wait_lines(1, "read", "hunter2")


def test_urls_with_passwords_may_stand_in_files(house: House) -> None:
    path = issue(house.folder / "reader.credential")
    files = {}
    for name in ("JOBS_DB_URL", "JOBS_VALKEY_URL"):
        file = house.folder / name
        file.write_text(house.settings.pop(name) + "\n")
        file.chmod(0o400)
        files[f"{name}_FILE"] = str(file)
    house.worker(MODULE, JOBS_CREDENTIAL_FILE_STORAGE_READER=str(path), **files)
    wake(house, "secret.read")
    house.wait_lines(1, "read", "hunter2")


def test_a_worker_refuses_to_start_without_a_file_for_what_its_types_declare(house: House) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "dramatiq", MODULE, "-p", "1"],
        cwd=ROOT,
        env=house.environment,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode != 0
    assert b"JOBS_CREDENTIAL_FILE_STORAGE_READER" in done.stdout + done.stderr
    assert b"secret.read" in done.stdout + done.stderr


def test_a_type_with_a_queue_a_process_and_a_user_of_its_own_is_kept_apart(house: House) -> None:
    """The recipe of docs/how-to/credentials.md: a file of another user's is out of reach of a worker, and one of its
    own user's is not. Root lays down the power over others' files, as the recipe says for a container; and only root
    can give a file away: for anybody else one that nobody may read stands for it."""
    root = os.geteuid() == 0
    path = issue(house.folder / "ledger.credential")
    if root:
        os.chown(path, 40_001, -1)
    else:
        path.chmod(0)
    powerless = ["setpriv", "--bounding-set=-dac_override,-dac_read_search,-chown,-fowner"] if root else []
    with (house.folder / "worker-0.log").open("wb") as log:
        worker = subprocess.Popen(
            [*powerless, sys.executable, "-m", "dramatiq", MODULE, "-p", "1", "--queues", "ledger", "scheduler"],
            cwd=ROOT,
            env={**house.environment, "TEST_QUEUE": "ledger", "JOBS_CREDENTIAL_FILE_STORAGE_READER": str(path)},
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    house.workers.append(worker)
    id_ = wake(house, "secret.read", "ledger")
    eventually(lambda: house.row(id_).last_error == "given back: credential_missing", 40, "the file to be out of reach")
    assert house.lines("read") == []
    if root:
        os.chown(path, 0, -1)
    else:
        path.chmod(0o400)
    house.wait_lines(1, "read", "hunter2", seconds=40)
