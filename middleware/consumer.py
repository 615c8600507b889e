"""From Valkey into a worker's hands: claim a batch there, claim its rows in one statement, hand them over."""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

import dramatiq

from middleware import logs
from middleware.delivery import Delivery, JobDelivery
from middleware.envelopes import message_of
from middleware.holding import Holding
from middleware.settings import SHORT_LEASE
from store import clock
from store.contract import Claimed as RowClaimed
from store.errors import PayloadInvalid, Refused, StoreUnavailable, UsageError, ValkeyUnavailable
from store.events import Claim, GiveBack, Release
from store.identity import is_id, new_lease_id
from store.policy import Policy
from store.valkey import entries
from store.valkey.entries import Ack, Burial, Claimed, Renewal

if TYPE_CHECKING:
    from middleware.broker import Broker

#: How long a claim stays away, in ms, whose row somebody else's open transaction holds.
HELD_MS = 100

#: Seconds that a stop waits for a store that has not said whether a claim was done.
GIVE_UP_SECONDS = 5.0

#: Seconds for which a row stays away whose type this worker doesn't know: a rolling deploy.
UNKNOWN_DELAY = 10.0

#: Tokens of a claim on an idle system, and at most; four times as many each time that all found something.
ASKING_FIRST = 16
ASKING_MOST = 500

#: Rows of unknown types that are remembered, and for how many seconds: their offers go back without a claim of the row.
STRANGE_MOST = 10_000
STRANGE_SECONDS = 60.0

#: Seconds that a shift's message is held without a sign of life: a killed scheduler is missed for no longer.
LANE_LEASE = 15.0

#: Seconds for which a shift's message is renewed: a shift that hangs is left to another worker's.
LANE_MOST = 120.0

#: Seconds after which an idle consumer asks the store for a sign of life, for the health file.
IDLE_PING = 10.0


class Consumer(dramatiq.Consumer):
    """Takes deliveries of one queue. Never raises for a lost connection: it says so once a minute and tries again."""

    def __init__(self, broker: Broker, queue: str, timeout: float, *, own_lane: bool) -> None:
        self._broker = broker
        self._runtime = broker.runtime
        self._queue = queue
        self._timeout = timeout
        self._own_lane = own_lane  # the scheduler's shift takes no job slot
        lease = broker.runtime.worker.lease_seconds
        self._lease = min(lease, LANE_LEASE) if own_lane else lease
        self._tokens: list[str] = []  # of a claim whose answer did not come
        self._rung = False  # the bell was taken and nothing claimed for it yet
        self._buffer: deque[dramatiq.MessageProxy] = deque()
        self._asking = ASKING_FIRST  # tokens of the next claim
        self._owed: list[Renewal] = []
        self._strange: dict[str, tuple[str, float]] = {}  # member -> its type, and until when that is remembered
        self._loop = f"consumer {queue}"
        self._pause = 0.05

    def __next__(self) -> dramatiq.MessageProxy | None:
        """The next delivery, or None if there was none within the timeout."""
        if self._buffer:
            return self._buffer.popleft()
        self._renew_owed()
        runtime = self._runtime
        if runtime.stopping.is_set():
            time.sleep(min(0.1, self._timeout))  # Dramatiq asks until its workers have ended
            return None
        places = 1 if self._own_lane else runtime.slots.take(self._timeout)
        if not places:
            runtime.health.sign(self._loop)  # every slot is busy: the loop lives, renewals speak for the services
            self._pass_the_bell_on()
            return None
        used = 0
        # The reply of a claim may be lost after the claim was done: the same tokens get the same members again.
        self._tokens = self._tokens[:places] or [new_lease_id() for _ in range(min(places, self._asking))]
        try:
            claims = runtime.leases.claim(
                self._queue,
                self._tokens,
                full_ms=_ms(self._lease),
                short_ms=_ms(runtime.worker.short_lease),
            )
            # Hundreds of tokens for the one job of an idle system cost more than the rest of its way.
            full = len(claims.taken) == len(self._tokens)
            self._asking = min(self._asking * 4, ASKING_MOST) if full else ASKING_FIRST
            self._tokens = []
            self._rung = False
            self._buffer.extend(self._deliveries(claims.taken))
            used = len(self._buffer)
            self._pause = 0.05
        except ValkeyUnavailable as error:
            logs.trouble("valkey_error", error)
            runtime.revive_valkey()
            self._wait_out()
            return None
        finally:
            if not self._own_lane:
                runtime.slots.give(places - used)
        runtime.health.sign(self._loop)
        if self._buffer:
            return self._buffer.popleft()
        if not claims.taken:
            self._renew_owed()
            self._wait_for_work(claims.next_ms)
        return None

    def _wait_for_work(self, next_ms: int | None) -> None:
        if self._runtime.health.idle_for("store") > IDLE_PING:
            try:
                self._runtime.store.ping()
                self._runtime.health.sign("store")
            except StoreUnavailable as error:
                logs.trouble("queue_unavailable", error)
        wait = self._timeout if next_ms is None else min(self._timeout, max(next_ms, 1) / 1000)
        try:
            self._rung = self._runtime.leases.block(self._queue, wait)
        except ValkeyUnavailable as error:
            logs.trouble("valkey_error", error)
            self._runtime.revive_valkey()
            self._wait_out()

    def _pass_the_bell_on(self) -> None:
        """We heard it and have no slot: what is taken and given back rings again, for another process."""
        if not self._rung:
            return
        self._rung = False
        try:
            taken = self._runtime.leases.claim(self._queue, [new_lease_id()], full_ms=_ms(SHORT_LEASE)).taken
            self._runtime.leases.release(self._queue, [entries.Release(one.member, one.token) for one in taken])
        except ValkeyUnavailable as error:
            logs.trouble("valkey_error", error)

    def _wait_out(self) -> None:
        self._runtime.stopping.wait(self._pause * (1 + random.random()))
        self._pause = min(self._pause * 2, 2.0)

    # --- rows

    def _deliveries(self, taken: list[Claimed]) -> list[dramatiq.MessageProxy]:
        found: list[dramatiq.MessageProxy] = []
        jobs = []
        for claim in taken:
            if claim.member.startswith("j:"):
                if is_id(claim.member[2:]):
                    jobs.append(claim)
                    continue
                # Not from us: the database would refuse the whole batch, again and again.
                logs.trouble(
                    "member_undecodable", UsageError("a member of a queue in Valkey names no job: it was dropped")
                )
                self._settle(partial(self._runtime.leases.ack, self._queue, [Ack(claim.member, claim.token)]))
            elif (delivery := self._message(claim)) is not None:
                found.append(delivery)
        if jobs and self._strange:
            jobs = self._known(jobs)
        if jobs:
            found.extend(self._rows(jobs))
        return found

    def _known(self, jobs: list[Claimed]) -> list[Claimed]:
        """Without those given back a moment ago because nobody here knows their type: each claim of such a row
        would count an attempt."""
        moment = clock.elapsed()
        strange = []
        for one in jobs:
            job_type, until = self._strange.get(one.member, ("", 0.0))
            if moment < until and job_type not in self._broker.actors:
                strange.append(one)
        if not strange:
            return jobs
        backs = [entries.Release(one.member, one.token, _ms(UNKNOWN_DELAY)) for one in strange]
        self._settle(lambda: self._runtime.leases.release(self._queue, backs))
        return [one for one in jobs if one not in strange]

    def _remember(self, holding: Holding) -> None:
        while len(self._strange) >= STRANGE_MOST:
            del self._strange[next(iter(self._strange))]
        self._strange[holding.member] = (holding.job.job_type, clock.elapsed() + STRANGE_SECONDS)

    def _message(self, claim: Claimed) -> Delivery | None:
        if not claim.envelope:  # a server that evicts keys has lost it
            self._settle(lambda: self._runtime.leases.ack(self._queue, [Ack(claim.member, claim.token)]))
            return None
        try:
            message = message_of(claim.envelope)
            actor = self._broker.actors.get(message.actor_name)
            if actor is not None and "job" in actor.options:  # forged: it would call the handler without a row
                raise PayloadInvalid(f"a message names the job type {actor.actor_name}: jobs come from rows alone")
        except PayloadInvalid as error:
            logs.trouble("message_undecodable", error)
            self._settle(lambda: self._runtime.leases.bury(self._queue, [Burial(claim.member, claim.token)]))
            return None
        message.options.pop("eta", None)  # it is due: Dramatiq's worker would keep it in memory
        most = LANE_MOST if self._own_lane else None
        self._runtime.in_hand.add_message(claim.token, self._queue, claim.member, self._lease, most)
        return Delivery(message, claim.member, claim.token, partial(self._message_over, claim.token))

    def _rows(self, taken: list[Claimed]) -> list[JobDelivery]:
        runtime, seconds = self._runtime, self._runtime.worker.lease_seconds
        claimed = self._claim_rows([Claim(one.member[2:], one.token, runtime.name, seconds) for one in taken])
        if claimed is None:
            backs = [entries.Release(one.member, one.token, HELD_MS) for one in taken]
            self._settle(lambda: runtime.leases.release(self._queue, backs))
            return []
        runtime.health.sign("store")
        drops, backs, kept, found = [], [], [], []
        holdings: list[Holding] = []
        unknown: list[Holding] = []
        again_at, full_ms = clock.elapsed() + runtime.worker.renew_every, _ms(seconds)
        for one, row in zip(taken, claimed, strict=True):
            if row.job is None:
                if row.held:
                    backs.append(entries.Release(one.member, one.token, HELD_MS))
                else:
                    drops.append(Ack(one.member, one.token))  # the row knows when it is due
                continue
            actor = self._broker.actors.get(row.job.job_type)
            policy = None if actor is None else actor.options.get("job")
            holding = Holding(row.job, policy or Policy(row.job.job_type), one.member, again_at)
            holdings.append(holding)
            kept.append(Renewal(one.member, one.token, full_ms))
            if policy is None:
                unknown.append(holding)
            else:
                found.append(JobDelivery(holding, self._queue, self._give))
        runtime.in_hand.add(holdings)
        for holding in unknown:
            back = GiveBack(holding.lease_id, holding.job.attempt, UNKNOWN_DELAY, "type_unknown_here")
            runtime.completion.put(holding, back)
            self._remember(holding)
        try:
            if drops:
                runtime.leases.ack(self._queue, drops)
            if backs:
                runtime.leases.release(self._queue, backs)
        except ValkeyUnavailable as error:
            logs.trouble("valkey_error", error)  # the rows are claimed: losing Valkey ends no run
        self._owed += kept
        return found

    def _renew_owed(self) -> None:
        """The short leases of rows that were handed over just now become full ones: nobody waits for that."""
        owed, self._owed = self._owed, []
        if owed:
            try:
                self._runtime.leases.renew(self._queue, owed, row_claimed=True)
            except ValkeyUnavailable as error:
                logs.trouble("valkey_error", error)  # the rows are claimed: losing Valkey ends no run

    def _claim_rows(self, claims: list[Claim]) -> list[RowClaimed] | None:
        """Claim, and on an error of the database claim again under the same lease ids: the answer may have been lost
        after the claim was done. None: nothing of it is ours, or will be."""
        if not self._runtime.may_work():
            return None
        pause = 0.05
        while True:
            try:
                return self._runtime.store.claim(claims)
            except Refused as error:  # by the database: somebody else may have better luck, and others' work goes on
                logs.trouble("claim_refused", error)
                return None
            except StoreUnavailable as error:
                logs.trouble("queue_unavailable", error)
            if self._runtime.stopping.wait(pause):
                self._give_up(claims)
                return None
            pause = min(pause * 2, 1.0)

    def _give_up(self, claims: list[Claim]) -> None:
        """The worker stops, and the store did not say whether these are ours: what is ours goes back, uncounted."""
        deadline = clock.elapsed() + GIVE_UP_SECONDS
        while clock.elapsed() < deadline:
            try:
                rows = self._runtime.store.read([claim.id for claim in claims])
            except StoreUnavailable:
                time.sleep(0.2)
                continue
            for claim, row in zip(claims, rows, strict=True):
                if row is not None and row.lease_id == claim.lease_id:
                    holding = Holding(row, Policy(row.job_type), f"j:{row.id}", float("inf"))
                    self._runtime.completion.put(holding, Release(claim.lease_id, row.attempt))
            return

    # --- the ways back

    def ack(self, message: dramatiq.MessageProxy) -> None:
        """An ordinary message is done. A job's lease is acked once its finish is durable, by the completion."""
        if isinstance(message, Delivery):
            self._settle(lambda: self._runtime.leases.ack(self._queue, [Ack(message.member, message.token)]))
        self._end(message)

    def nack(self, message: dramatiq.MessageProxy) -> None:
        """An ordinary message becomes a dead letter."""
        if isinstance(message, Delivery):
            self._settle(lambda: self._runtime.leases.bury(self._queue, [Burial(message.member, message.token)]))
        self._end(message)

    def requeue(self, messages: Iterable[dramatiq.MessageProxy]) -> None:
        """Prefetched work goes back: rows unpunished, messages as they were."""
        backs = []
        for message in messages:
            if isinstance(message, JobDelivery):
                holding = message.holding
                self._runtime.completion.put(holding, Release(holding.lease_id, holding.job.attempt))
            elif isinstance(message, Delivery):
                backs.append(entries.Release(message.member, message.token))
            self._end(message)
        if backs:
            self._settle(lambda: self._runtime.leases.release(self._queue, backs))

    def close(self) -> None:
        """Give back what is still in the buffer."""
        self.requeue(list(self._buffer))
        self._buffer.clear()

    @staticmethod
    def _end(message: dramatiq.MessageProxy) -> None:
        if isinstance(message, (Delivery, JobDelivery)):
            message.end()

    def _message_over(self, token: str) -> None:
        self._runtime.in_hand.drop_message(token)
        self._give()

    def _give(self) -> None:
        if not self._own_lane:
            self._runtime.slots.give()

    @staticmethod
    def _settle(call: Callable[[], object]) -> None:
        try:
            call()
        except ValkeyUnavailable as error:
            # The lease runs out and the message is delivered again: at least once, as ever in Dramatiq.
            logs.trouble("valkey_error", error)


def _ms(seconds: float) -> int:
    return max(1, round(seconds * 1000))
