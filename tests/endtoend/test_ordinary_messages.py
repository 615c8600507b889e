"""Ordinary Dramatiq actors on our broker, in a real worker process."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.endtoend.house import House, eventually


def send(house: House, code: str) -> None:
    """Run a sender as a program of its own."""
    program = f"from tests.endtoend.jobs import *\n{code}"
    subprocess.run([sys.executable, "-c", program], check=True, env=house.environment, timeout=60)


def test_ordinary_actors_run_delayed_and_at_once(house: House) -> None:
    house.worker()
    send(house, "ordinary.send('now'); ordinary.send_with_options(args=('later',), delay=300)")
    house.wait_lines(1, "ordinary", "now")
    house.wait_lines(1, "ordinary", "later")
    eventually(lambda: house.leases.sizes("default") == (0, 0, 0, 0), what="nothing to be left")


def test_a_failing_message_is_retried_and_then_a_dead_letter(house: House) -> None:
    house.worker()
    send(house, "ordinary_retried.send('x'); ordinary_failing.send('y')")
    house.wait_lines(3, "ordinary_retried", "x")
    eventually(lambda: house.leases.sizes("default").dead == 2, what="two dead letters")
    letters = [json.loads(letter.envelope) for letter in house.leases.dead_letters("default")]
    assert {letter["actor_name"] for letter in letters} == {"ordinary_retried", "ordinary_failing"}
    assert len(house.lines("ordinary_failing", "y")) == 1
    assert "hunter2" not in house.logs()


def test_jobs_and_messages_share_a_queue(house: House) -> None:
    house.worker()
    send(house, "ordinary.send('m'); keyed.send(thing='k', value=3)")
    house.wait_lines(1, "ordinary", "m")
    house.wait_lines(1, "keyed", "k", 3)
