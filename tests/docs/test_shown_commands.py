"""What the documents show is run: the README's first job, the tutorial, every code block and every command."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.endtoend.house import eventually

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
PROGRAMS = Path(sys.executable).parent


def blocks(page: str) -> list[str]:
    """The Python blocks of a page."""
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.S)


def commands(page: str) -> list[str]:
    """The indented command lines of a page, without comments."""
    lines = re.findall(r"^    ((?:dramaturg|dramatiq|python|periodiq) .*)$", (ROOT / page).read_text(), re.M)
    return [line.split("  #")[0].strip() for line in lines]


def environment(folder: Path) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("JOBS_", "WORKER_"))}
    return clean | {"PATH": f"{PROGRAMS}:{clean['PATH']}", "PYTHONPATH": f"{ROOT}:{folder}", "JOBS_LEASE_SECONDS": "5"}


def run(command: str, folder: Path) -> str:
    done = subprocess.run(
        command,
        shell=True,
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout


@contextmanager
def running(command: str, folder: Path) -> Iterator[Path]:
    """A worker, stopped at the end; yields its log."""
    log = folder / "worker.log"
    with log.open("wb") as out:
        worker = subprocess.Popen(
            command.split(), cwd=folder, env=environment(folder), stdout=out, stderr=out, start_new_session=True
        )
    try:
        eventually(lambda: "ready for action" in log.read_text() or worker.poll() is not None, what="the worker")
        yield log
    finally:
        os.kill(worker.pid, signal.SIGTERM)
        assert worker.wait(60) == 0


def test_the_readmes_first_job_runs_as_shown(tmp_path: Path) -> None:
    (tmp_path / "invoices.py").write_text(blocks("README.md")[0])
    assert len(blocks("README.md")[0].strip().splitlines()) <= 11
    migrate, worker, send, list_ = commands("README.md")
    run(migrate, tmp_path)
    with running(worker, tmp_path) as log:
        run(send, tmp_path)
        eventually(lambda: "sending 7" in log.read_text(), what="the invoice to be sent")

        def scheduled() -> bool:
            [row] = json.loads(run("dramaturg list --json", tmp_path))
            return bool(row["attempt"] == 1 and row["lease_id"] is None)

        eventually(scheduled, what="the next run to be scheduled")
        assert "invoice.send" in run(list_, tmp_path)


def test_the_tutorial_runs_as_shown(tmp_path: Path) -> None:
    (tmp_path / "reports.py").write_text(blocks("docs/tutorial/first-job.md")[0])
    migrate, send, worker, list_, stats = commands("docs/tutorial/first-job.md")
    run(migrate, tmp_path)
    assert run(send, tmp_path).strip() == "queued"
    with running(worker, tmp_path):

        def completed() -> bool:
            [row] = json.loads(run("dramaturg list --json", tmp_path))
            return bool(row["state"] == "completed" and row["result"] == {"lines": 3})

        eventually(completed, what="the report to be made")
        assert "report.make" in run(list_, tmp_path)
        assert "report.make" in run(stats, tmp_path)


@pytest.mark.parametrize(
    "page", ["docs/how-to/ordinary-actors.md", "docs/how-to/recurring-jobs.md", "docs/reference/jobs.md"]
)
def test_the_code_of_a_page_does_what_it_says(page: str, tmp_path: Path) -> None:
    for number, block in enumerate(blocks(page)):
        (tmp_path / f"shown{number}.py").write_text(block)
        run(f"python -c 'import shown{number}'", tmp_path)


def test_an_ended_job_is_freed_as_the_states_page_shows(tmp_path: Path) -> None:
    (tmp_path / "invoices.py").write_text(blocks("README.md")[0])
    migrate, _, send, _ = commands("README.md")
    run(migrate, tmp_path)
    run(send, tmp_path)
    [row] = json.loads(run("dramaturg list --json", tmp_path))
    run(f"dramaturg cancel {row['id']}", tmp_path)
    [requeue] = commands("docs/reference/states.md")
    assert run(requeue, tmp_path).startswith("1 job requeued")
    run(f"dramaturg cancel {row['id']}", tmp_path)
    [block] = blocks("docs/reference/states.md")
    shown, times = re.subn(r'ids=\["[0-9a-f-]+"\]', f'ids=["{row["id"]}"]', block)
    assert times == 1
    (tmp_path / "freeing.py").write_text(shown)
    assert "affected=1" in run("python freeing.py", tmp_path)
    [row] = json.loads(run("dramaturg list --json", tmp_path))
    assert row["state"] == "queued"


def test_the_commands_of_the_clean_up_page_do_what_they_say(tmp_path: Path) -> None:
    run("dramaturg migrate", tmp_path)
    dry, retention_dry, retention, ttl, integrity, requeue = commands("docs/how-to/clean-up.md")
    assert run(dry, tmp_path).startswith("0 jobs would be deleted")
    assert run(retention_dry, tmp_path).startswith("0 jobs would be deleted")
    assert run(retention, tmp_path).startswith("0 jobs deleted")
    assert run(ttl, tmp_path).startswith("0 jobs would be cancelled")
    assert "documents_unreadable  0" in run(integrity, tmp_path)
    assert run(requeue, tmp_path).startswith("0 jobs would be requeued")


def test_the_commands_of_the_limits_page_run_as_shown(tmp_path: Path) -> None:
    run("dramaturg migrate", tmp_path)
    shown = commands("docs/how-to/queues-and-limits.md")
    answers = {command: run(command, tmp_path) for command in shown}
    assert len(answers) == 9
    assert "paused" in answers["dramaturg queue status reports"]
    assert "drained: nothing runs" in answers["dramaturg queue drain reports --wait 5m"]
    assert "office" in answers["dramaturg quota list"]


def test_the_commands_of_the_encryption_page_do_what_they_say(tmp_path: Path) -> None:
    (tmp_path / "invoices.py").write_text(blocks("README.md")[0])
    migrate, _, send, _ = commands("README.md")
    dry, live, kept, clear = commands("docs/how-to/encrypt-payloads.md")
    [make] = re.findall(r"^    (openssl .*)$", (ROOT / "docs/how-to/encrypt-payloads.md").read_text(), re.M)
    run(make, tmp_path)
    run(migrate, tmp_path)
    run(send, tmp_path)
    sealing = f"export JOBS_ENCRYPT=true JOBS_CRYPTO_KEY_FILE={tmp_path}/jobs.key;"
    [row] = json.loads(run("dramaturg list --json", tmp_path))
    assert row["payload"] == {"invoice_id": 7}
    assert "1 job looked at, nothing was changed" in run(f"{sealing} {dry}", tmp_path)
    assert "1 job looked at" in run(f"{sealing} {live}", tmp_path)
    assert "0 jobs looked at" in run(f"{sealing} {kept}", tmp_path)
    assert "nothing was changed" in run(f"{sealing} {clear}", tmp_path)
    run(f"{sealing} {clear.replace(' --dry-run', '')}", tmp_path)
    shown = run(f"dramaturg show {row['id']} --json", tmp_path)
    assert json.loads(shown)["payload"].keys() == {"_encrypted"}
    opened = run(f"{sealing} dramaturg show {row['id']} --json --reveal", tmp_path)
    assert json.loads(opened)["payload"] == {"invoice_id": 7}


def first_line(command: str, folder: Path) -> str:
    """What a command that goes on without an end tells first; it is interrupted then."""
    with subprocess.Popen(
        command.split(), cwd=folder, env=environment(folder), stdout=subprocess.PIPE, text=True
    ) as follower:
        assert follower.stdout is not None
        line = follower.stdout.readline()
        os.kill(follower.pid, signal.SIGINT)
        assert follower.wait(30) == 130
    return line


def test_events_are_followed_as_the_page_shows(tmp_path: Path) -> None:
    (tmp_path / "invoices.py").write_text(blocks("README.md")[0])
    migrate, _, send, _ = commands("README.md")
    on, follow, consume, consumers, prune, failures = commands("docs/how-to/follow-events.md")
    run(migrate, tmp_path)
    run(on, tmp_path)
    run(send, tmp_path)
    assert "job.created" in first_line(follow.replace("newest", "oldest"), tmp_path)
    assert json.loads(first_line(consume, tmp_path))["name"] == "job.created"
    assert "mailer" in run(consumers, tmp_path)
    assert "0 events removed" in run(prune, tmp_path)
    assert run(failures, tmp_path) == ""


def test_the_options_that_the_jobs_page_tells_are_those_of_a_job_with_their_defaults() -> None:
    from middleware.job import JobOptions
    from store.policy import Policy

    declaring = (ROOT / "docs/reference/jobs.md").read_text().split("## Waking")[0]
    lines = re.findall(r"^\| (`[^|]+) \| ([^|]+) \|", declaring, re.M)
    shown: dict[str, str] = {}
    for names, default in lines:
        found = re.findall(r"`(\w+)`", names)
        parts = default.split(", ") if len(found) > 1 else [default]
        shown |= dict(zip(found, parts, strict=True))
    assert set(shown) - {"payload", "key"} == set(JobOptions.__annotations__)
    policy = Policy("a.type")
    for name in set(shown) - {"payload", "key", "periodic"}:
        value = getattr(policy, name)
        told = shown[name].split(":")[0].strip("`")
        assert told == (f"{value:g}" if isinstance(value, float) else str(value)), name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_command_that_a_page_names_exists(page: Path, tmp_path: Path) -> None:
    for name in sorted(set(re.findall(r"`dramaturg ([a-z]+)|^    dramaturg ([a-z]+)", page.read_text(), re.M))):
        assert run(f"dramaturg {name[0] or name[1]} --help", tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_to_a_file_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_setting_is_documented_and_every_documented_setting_exists() -> None:
    from actors.access.settings import AccessSettings
    from actors.proposals.settings import ProposalSettings
    from middleware.credentials import CredentialSettings
    from middleware.settings import WorkerSettings
    from scheduler.settings import SweepSettings
    from store.boundary import SECTIONS
    from store.limit_settings import LimitSettings
    from store.settings import StoreSettings

    known = {
        str(field.validation_alias)
        for section in (
            StoreSettings,
            WorkerSettings,
            LimitSettings,
            SweepSettings,
            ProposalSettings,
            AccessSettings,
            CredentialSettings,
            *SECTIONS,
        )
        for field in section.model_fields.values()
        if not str(field.validation_alias).endswith("*")  # those of domains: shown beside the one for all
    }
    page = (ROOT / "docs/reference/settings.md").read_text()
    shown = {
        name for row in re.findall(r"^\| ((?:`[A-Z_]+`(?:, )?)+) \|", page, re.M) for name in re.findall(r"\w+", row)
    }
    assert shown == known
