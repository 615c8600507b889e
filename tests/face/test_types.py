"""What a type checker sees of the one module that users import, from outside of the checkout."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

GOOD = """
from datetime import datetime
from typing import Any

from dramaturg import Again, Done, InlineJobs, Jobs, Lease, Outcome, Payload, Run, handler, job, make_run

class Invoice(Payload):
    invoice_id: int

@job("invoice.send", payload=Invoice, key="{invoice_id}", max_retries=3)
def send_invoice(invoice: Invoice, run: Run) -> Outcome | None:
    return Again(hours=24) if invoice.invoice_id else Done()

@job("invoice.later", payload=Invoice)
async def later(invoice: Invoice, run: Run) -> None:
    await run.pause(1)

state: str = send_invoice.send(invoice_id=7).state

@handler("invoice.plain", payload=Invoice, max_retries=3)
def plain(invoice: Invoice, run: Run) -> Done:
    return Done(invoice.invoice_id)

@handler("invoice.later")
async def later_on(payload: Any, run: Run) -> None:
    await run.pause(1)

def loop(jobs: Jobs) -> None:
    lease: Lease | None = jobs.acquire(types=["invoice.plain"])
    if lease is not None and jobs.renew(lease).held:
        jobs.complete(lease, {"sent": True})
    jobs.run(send_invoice, plain, later_on, concurrency=2)

def kit(now: datetime) -> None:
    with InlineJobs(now=now, handlers=[plain]) as jobs:
        state: str | None = jobs.run_due()[0].state
        assert jobs.woken(send_invoice, invoice_id=7) and state == "completed"
    assert make_run(attempt=2).reported is None
"""

BAD = {
    "a payload of the wrong type": 'send_invoice.send(invoice_id="x")',
    "a payload that lacks a field": "send_invoice.send()",
    "an unknown field": "send_invoice.send(invoice_id=1, other=2)",
    "an unknown option": '@job("a", max_retrys=3)\ndef f(p: Payload, run: Run) -> None: ...',
    "an option of the wrong type": '@job("a", max_retries="three")\ndef f(p: Payload, run: Run) -> None: ...',
    "an outcome that is none": '@job("a", payload=Invoice)\ndef f(p: Invoice, run: Run) -> str: return ""',
    "a handler of a loop without options that are": '@handler("a", max_retrys=3)\ndef g(p: Any, run: Run) -> None: ...',
    "a loop of what is no handler": "Jobs().run(print)",
    "a handler without a run": '@job("a", payload=Invoice)\ndef f(p: Invoice) -> None: ...',
}


def mypy(folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    (folder / "mine.py").write_text(code)
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(folder / "cache"), "mine.py"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=110, check=False)


def test_payload_outcome_and_options_are_typed(tmp_path: Path) -> None:
    seen = mypy(tmp_path, GOOD)
    assert seen.returncode == 0, seen.stdout
    missed = [name for name, line in BAD.items() if mypy(tmp_path, f"{GOOD}\n{line}\n").returncode != 1]
    assert missed == []


def test_the_stub_says_what_the_module_is(tmp_path: Path) -> None:
    allowed = tmp_path / "allowed"
    allowed.write_text("dramaturg.job\n")  # its overloads are narrower than its body, and tested above
    compared = subprocess.run(
        [sys.executable, "-m", "mypy.stubtest", "dramaturg", "--allowlist", str(allowed)],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert compared.returncode == 0, compared.stdout + compared.stderr


@pytest.mark.parametrize("room", ["store", "middleware", "scheduler", "actors", "ops"])
def test_every_room_is_marked_as_typed(room: str) -> None:
    assert (Path(__file__).resolve().parents[2] / room / "py.typed").exists()
