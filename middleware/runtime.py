"""What one process works with: the store, the leases, what is in hand. Built without connecting to anything."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterable
from functools import cached_property

from middleware import logs
from middleware.completion import Completion
from middleware.health import Health
from middleware.holding import InHand
from middleware.ringing import LAST_SECONDS, Hint, Ringing
from middleware.settings import WorkerSettings
from middleware.slots import Slots
from store import clock
from store.boundary import Boundary, guarded, load_boundary
from store.contract import ANY_VERSION, Document, Store
from store.engines.valkey import SharedValkey, shared_valkey
from store.errors import EngineFailed, Refused, StoreUnavailable, ValkeyUnavailable
from store.following import switch_events
from store.limit_settings import LimitSettings
from store.migrations import Subject
from store.open import open_in_scope
from store.policy import Policy
from store.settings import StoreSettings, load
from store.valkey.address import parse
from store.valkey.client import Client
from store.valkey.entries import Offer
from store.valkey.keys import prefix_of
from store.valkey.leases import Leases
from store.valkey.scores import job_score

#: Ready entries of a queue beyond which no more jobs are offered: ten million due rows don't move into memory.
WATERMARK = 2_000


class Runtime:
    """Shared by all parts of a process; everything in it is made at its first use, and anew in a forked child."""

    def __init__(self, settings: StoreSettings, worker: WorkerSettings) -> None:
        self.settings = settings
        self.worker = worker
        self.stopping = threading.Event()
        self.slots = Slots(worker.concurrency)
        self.in_hand = InHand()
        self.policies: dict[str, Policy] = {}  # of the types that this process knows
        self.subjects: list[Subject] = []  # who has tables of their own in the store
        self._checked = False
        self._published: set[str] = set()
        self._events_wanted = settings.events_outbox
        self._limited = False  # the limits of this process' settings were published
        self._running: dict[int, float] = {}  # by thread: since when, on clock.elapsed
        self._checking = threading.Lock()
        self._engine: SharedValkey | None = None
        self._lock = threading.Lock()

    @cached_property
    def boundary(self) -> Boundary:
        """What goes into rows and comes out of them. Raises SettingsInvalid."""
        return load_boundary()

    @cached_property
    def store(self) -> Store:
        """The truth."""
        return guarded(open_in_scope(self.settings), self.boundary)

    @cached_property
    def name(self) -> str:
        """This process, for people: ownership is the lease, never the name."""
        return f"{socket.gethostname()[:200]}:{os.getpid()}"

    @cached_property
    def completion(self) -> Completion:
        """Where finishes go."""
        return Completion(self)

    @cached_property
    def health(self) -> Health:
        """Signs of life of this process' loops."""
        return Health(self.settings.home.absolute(), self.name)

    @property
    def leases(self) -> Leases:
        """The queues in Valkey. Without JOBS_VALKEY_URL an embedded one is shared by all processes of JOBS_HOME.

        Raises ValkeyUnavailable.
        """
        with self._lock:
            if (leases := self.__dict__.get("_leases")) is None:
                leases = self.__dict__["_leases"] = Leases(
                    Client(parse(self._valkey_url())), prefix_of(self.settings.scope)
                )
        assert isinstance(leases, Leases)
        return leases

    def _valkey_url(self) -> str:
        if self.settings.valkey_url is not None:
            return self.settings.valkey_url.get_secret_value()
        try:
            shared = shared_valkey(self.settings.home.absolute())
        except EngineFailed as error:
            raise ValkeyUnavailable(str(error)) from None
        if shared.engine is not None:
            self._engine = shared  # ours to end, whatever happens in between
        return shared.url

    def revive_valkey(self) -> None:
        """The process that owned the embedded Valkey may have ended: see that there is one again."""
        if self.settings.valkey_url is None:
            with self._lock:
                self.__dict__.pop("_leases", None)

    @cached_property
    def ringing(self) -> Ringing:
        """Rings for rows that are due, beside whoever woke them."""
        return Ringing(self.ring)

    def ring_soon(self, hints: Iterable[Hint]) -> None:
        """``ring``, beside whoever asks for it."""
        self.ringing.put(hints)

    def ring(self, hints: Iterable[Hint]) -> None:
        """Offer rows that are due, here and now: a hint that is never needed, so a failure is only logged."""
        queues: dict[str, list[Offer]] = {}
        moment = clock.micros(clock.wall()) // 1000
        for hint in hints:
            queues.setdefault(hint.queue, []).append(Offer(f"j:{hint.id}", job_score(hint.priority, moment)))
        try:
            for queue, batch in queues.items():
                self.leases.offer(queue, batch, watermark=WATERMARK)
        except ValkeyUnavailable as error:
            logs.trouble("valkey_error", error)
            self.revive_valkey()

    def boot(self) -> None:
        """A worker begins in this process, perhaps after another one that has ended."""
        self.stopping.clear()
        self.slots.open()
        self.in_hand = InHand()
        self.__dict__.pop("completion", None)
        self._checked = False
        self._published = set()
        self._limited = False
        self._running.clear()

    def may_work(self) -> bool:
        """Whether the store's schema is one that this program may work with; asked until the store has answered."""
        with self._checking:
            if not self._checked:
                try:
                    self.store.check_schema(self.subjects)
                    self._checked = True
                except StoreUnavailable as error:
                    logs.trouble("queue_unavailable", error)
                except Refused as error:
                    logs.trouble("schema_refused", error)
            return self._checked

    def publish(self) -> None:
        """Publish the policies of this process' types: once each, and again where they have gone from the store. What
        another version of this program has published since is left alone. The settings' limits once. Raises
        StoreUnavailable."""
        if not self.may_work():
            return
        if not self._limited:
            load(LimitSettings).publish(self.store)
            self._limited = True
        there = {document.key: document.body for document in self.store.list("policy")}
        for policy in list(self.policies.values()):
            body = policy.document()
            fresh = policy.job_type not in self._published and there.get(policy.job_type) != body
            if fresh or policy.job_type not in there:
                self.store.put(Document("policy", policy.job_type, ANY_VERSION, body))
            self._published.add(policy.job_type)
        self._switch_events()

    def _switch_events(self) -> None:
        """Lifecycle events as JOBS_EVENTS_OUTBOX says, where it says anything: once, and no reason not to work."""
        wanted, self._events_wanted = self._events_wanted, None
        if wanted is not None:
            try:
                switch_events(self.store, on=wanted)
            except (Refused, StoreUnavailable) as error:
                logs.trouble("events_not_switched", error)

    @property
    def published(self) -> bool:
        """Whether all types that this process knows were published."""
        return self._published >= self.policies.keys()

    def run_began(self) -> None:
        """This thread begins to work on a delivery."""
        self._running[threading.get_ident()] = clock.elapsed()

    def run_ended(self) -> None:
        """This thread is done with it; how long it took says how much to take in hand."""
        began = self._running.pop(threading.get_ident(), None)
        if began is not None:
            self.slots.learn(clock.elapsed() - began)

    def running_longer_than(self, seconds: float, moment: float) -> int:
        """Threads that have been at one delivery for longer than that."""
        return sum(1 for began in list(self._running.values()) if moment - began > seconds)

    def close(self) -> None:
        """Let go of everything."""
        if "ringing" in self.__dict__:
            self.ringing.close(LAST_SECONDS)
        if "store" in self.__dict__:
            self.store.close()
        with self._lock:
            self.__dict__.pop("_leases", None)
            if self._engine is not None:
                self._engine.end()
                self._engine = None
