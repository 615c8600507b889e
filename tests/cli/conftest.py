"""A home with a migrated SQLite store for each test, and the command line in this process or in one of its own."""

from __future__ import annotations

import io
import json
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import structlog

from ops.cli.main import main
from store import identity
from store.contract import ANY_VERSION, Document, Store
from store.events import Wake
from store.filters import Filter
from store.open import open_store
from store.policy import Policy

ROOT = Path(__file__).resolve().parents[2]

#: A type that others declare: nothing in ``actors`` knows it.
FOREIGN = "invoice.send"


class Ran(NamedTuple):
    """What became of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output, which must be one JSON value and nothing else."""
        return json.loads(self.out)


Command = Callable[..., Ran]


def environment(home: Path, **settings: str) -> dict[str, str]:
    """This process' environment without any settings of ours, but for these."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("JOBS_", "WORKER_", "PROPOSAL_"))}
    return {**kept, "JOBS_HOME": str(home), "PYTHONPATH": str(ROOT), **settings}


def run_program(home: Path, *words: str, stdin: bytes = b"", **settings: str) -> Ran:
    """``dramaturg`` as a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "ops.cli.main", *words],
        cwd=ROOT,
        env=environment(home, **settings),
        input=stdin,
        capture_output=True,
        timeout=60,
        check=False,
    )
    return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home that ``dramaturg migrate`` has made: copied for each test, which costs a fraction of making one."""
    home = tmp_path_factory.mktemp("migrated") / "home"
    done = run_program(home, "migrate")
    assert done.code == 0, done.err
    return home


@pytest.fixture
def home(migrated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A migrated home with the foreign type published; the environment names it and nothing else."""
    made = tmp_path / "home"
    made.mkdir()
    shutil.copy(migrated / "jobs.db", made / "jobs.db")
    for name in [name for name in os.environ if name.startswith(("JOBS_", "WORKER_", "PROPOSAL_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("JOBS_HOME", str(made))
    return made


@pytest.fixture
def store(home: Path) -> Iterator[Store]:
    opened = open_store(f"sqlite:///{home}/jobs.db")
    opened.put(Document("policy", FOREIGN, ANY_VERSION, Policy(FOREIGN, queue="high", priority=3).document()))
    yield opened
    opened.close()


@pytest.fixture
def dramaturg(store: Store, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Command]:
    """A command in this process; keyword arguments are settings. Not for ``migrate``: it works on the broker's store,
    which is made once a process, of the settings that there were then."""
    handlers = list(logging.getLogger().handlers)

    def run(*words: str, stdin: bytes = b"", **settings: str) -> Ran:
        with monkeypatch.context() as patch:
            for name, value in settings.items():
                patch.setenv(name, value)
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
            capfd.readouterr()
            code = main(words)
        return Ran(code, *capfd.readouterr())

    yield run
    logging.getLogger().handlers[:] = handlers
    structlog.reset_defaults()


@pytest.fixture
def program(store: Store, home: Path) -> Command:
    """A command in a process of its own; keyword arguments are settings."""

    def run(*words: str, stdin: bytes = b"", **settings: str) -> Ran:
        return run_program(home, *words, stdin=stdin, **settings)

    return run


@pytest.fixture
def rows(store: Store) -> Callable[[], list[Any]]:
    """All rows as they are now."""
    return lambda: store.find(Filter(), limit=1000)


def woken(store: Store, key: str | None = "k", *, job_type: str = FOREIGN, **fields: Any) -> str:
    """Wake a job as another program would; answers its id."""
    domain, queue = fields.pop("domain", "default"), fields.pop("queue", "default")
    id_ = identity.job_id(domain, queue, job_type, key)
    payload = fields.pop("payload", "{}")
    store.wake([Wake(id_, domain, queue, job_type, key, payload, **fields)])
    return id_
