"""The demo: each thing that the job system promises, done once on real processes and told in plain lines."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from actors.proposals.model import Proposal
from ops.up.children import Child
from ops.up.demo_jobs import slow
from ops.up.house import House
from ops.up.screen import Screen
from ops.up.seen import comparison, told
from ops.up.stopping import Stop, StopAsked
from ops.up.tracked import Tracked
from store import clock
from store.contract import Store
from store.errors import Refused, StoreUnavailable
from store.job import Job, State

#: Seconds that the demo may take, and that its slow job does.
TIME = 120.0
SLOW = 5.0

_LOOK = 0.2

T = TypeVar("T")


class Demo:
    """Plays it. Raises Refused where something does not show itself in time, and StopAsked."""

    def __init__(
        self, store: Store, tracked: Tracked, house: House, workers: Sequence[Child], screen: Screen, stop: Stop
    ):
        self._store, self._tracked, self._house, self._workers = store, tracked, house, workers
        self._screen, self._stop = screen, stop
        self._began = clock.elapsed()

    def play(self) -> None:
        """From the first comparison to the last line."""
        self._track()
        self._push()
        self._crash()
        self._screen.say(f"all of it was shown in {clock.elapsed() - self._began:.0f} s")

    def _track(self) -> None:
        self._screen.say("1. tracking: three proposals are open, and proposal.repository compares their branches")

        def compared() -> list[Proposal] | None:
            found = self._tracked.all()
            return found if all(proposal.compared for proposal in found) else None

        for proposal in self._until(compared, "the proposals to be compared"):
            self._screen.say(f"   {proposal.head} -> {proposal.base}: {comparison(proposal)}")

    def _push(self) -> None:
        branch = self._tracked.branches.ahead
        before, began = self._proposal(branch), clock.elapsed()
        commit = self._tracked.push(branch)
        self._screen.say(f"2. a push: commit {commit[:10]} is on {branch} now, and nobody is told")

        def noticed() -> Proposal | None:
            now = self._proposal(branch)
            return now if now.compared and now.compared.head_commit == commit else None

        after = self._until(noticed, "the push to be noticed")
        self._screen.say(
            f"   noticed after {clock.elapsed() - began:.1f} s: {comparison(before)}, then {comparison(after)}"
        )

    def _crash(self) -> None:
        woken = slow.send(seconds=SLOW)
        self._screen.say(
            f"3. a crash: demo.slow takes {SLOW:.0f} s, and its worker is killed in the middle (job {woken.id})"
        )

        def in_the_middle() -> Job | None:
            job = self._job(woken.id)
            return job if job.state == State.PROCESSING and (job.progress_percent or 0) > 0 else None

        running = self._until(in_the_middle, "the slow job to run")
        killed = self._worker_of(running)
        os.kill(killed, signal.SIGKILL)
        self._screen.say(
            f"   attempt {running.attempt} was at {running.progress_percent} % in process {killed}: kill -9"
        )

        def lost() -> Job | None:
            job = self._job(woken.id)
            return job if job.state != State.PROCESSING or job.attempt > running.attempt else None

        self._until(lost, "the lost lease to be noticed")
        self._screen.say("   its lease ran out, and the job is due again")

        def finished() -> Job | None:
            job = self._job(woken.id)
            return job if job.state == State.COMPLETED else None

        done = self._until(finished, "another worker to finish the job")
        if done.attempt <= running.attempt or done.worker == running.worker:
            raise Refused(f"demo: job {done.id} was not finished by another worker than the one that was killed")
        self._screen.say(f"   attempt {done.attempt} was done by {done.worker}; the job's history, oldest first:")
        for line in reversed(self._store.history(done.id)):
            self._screen.say(f"     {told(line)}")

    def _until(self, look: Callable[[], T | None], what: str) -> T:
        """The first answer of ``look``, while everything is looked after."""
        while True:
            if self._stop.wait(_LOOK) or self._screen.lost:
                raise StopAsked
            self._house.tend()
            try:
                if (seen := look()) is not None:
                    return seen
            except StoreUnavailable as error:
                self._screen.say(str(error))
            if clock.elapsed() - self._began > TIME:
                raise Refused(f"demo: waited for {what}, and {TIME:.0f} s are over: see {self._workers[0].log.parent}")

    def _proposal(self, head: str) -> Proposal:
        return next(proposal for proposal in self._tracked.all() if proposal.head == head)

    def _job(self, id_: str) -> Job:
        job = self._store.read([id_])[0]
        if job is None:
            raise Refused(f"demo: job {id_} is gone")
        return job

    def _worker_of(self, job: Job) -> int:
        """The process that runs it; never one that we did not start."""
        pid = int((job.worker or "").rpartition(":")[2] or 0)
        if pid and _parent_of(pid) in {child.pid for child in self._workers} - {None}:
            return pid
        raise Refused(f"demo: job {job.id} runs in a worker that this demo did not start ({job.worker})")


def _parent_of(pid: int) -> int | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return None
    return int(stat.rpartition(")")[2].split()[1])
