"""What the scripts should do, said once more in plain Python: the judge of test_model.py. No clock, no server.

A moment is LONG_AGO, or so many hours away; what is LONG_AGO happens at the next claim.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from store.valkey.entries import Ack, Burial, Claimed, Delay, Offer, Offered, Release, Renewal

LONG_AGO = 0


@dataclass
class Flight:
    token: str
    score: int
    until: int


@dataclass
class Model:
    ready: dict[str, int] = field(default_factory=dict)
    flight: dict[str, Flight] = field(default_factory=dict)
    delayed: dict[str, tuple[int, int]] = field(default_factory=dict)  # member -> (due, score)
    again: dict[str, int] = field(default_factory=dict)
    letters: dict[str, bytes] = field(default_factory=dict)
    lost: dict[str, int] = field(default_factory=dict)
    dead: dict[str, bytes] = field(default_factory=dict)
    bell: bool = False

    def offer(self, offers: list[Offer], watermark: int, force: bool) -> Offered:
        new = known = dropped = 0
        known_before = {offer.member for offer in offers if offer.member in self.delayed}
        for member, score, envelope in offers:
            if member in self.flight:
                known += 1
                self._lower(self.again, member, int(score))
            elif member in self.ready:
                known += 1
                self._lower(self.ready, member, int(score))
            elif not envelope and member in known_before:
                known += 1
                continue
            elif not envelope and len(self.ready) >= watermark and not force:
                dropped += 1
                continue
            else:
                new += 1
                self.ready[member] = int(score)
            if envelope:
                self.letters[member] = envelope
        self.bell |= bool(self.ready)
        return Offered(new, known, dropped, len(self.ready))

    def delay(self, delays: list[Delay], hours: int) -> None:
        first = self._soonest()
        for member, _, score, envelope in delays:
            due = min(hours, self.delayed[member][0]) if member in self.delayed else hours
            self.delayed[member] = (due, int(score))
            self.letters[member] = envelope
        self._ring_if_sooner(first)

    def claim(self, tokens: list[str], short: int, full: int) -> list[Claimed]:
        holders = {flight.token: member for member, flight in self.flight.items()}
        taken = [(holders[token], token) for token in tokens if token in holders]
        for member in [one for one, flight in self.flight.items() if flight.until == LONG_AGO]:
            if member not in [one for one, _ in taken]:
                if member in self.letters:
                    self.lost[member] = self.lost.get(member, 0) + 1
                self._back(member, self.flight.pop(member).score)
        for member in [one for one, (due, _) in self.delayed.items() if due == LONG_AGO]:
            _, score = self.delayed.pop(member)
            self._lower(self.again if member in self.flight else self.ready, member, score)
        for token in [one for one in tokens if one not in holders]:
            if self.ready:
                member = min(self.ready, key=lambda one: (self.ready[one], one.encode()))
                self.flight[member] = Flight(token, self.ready.pop(member), LONG_AGO)
                taken.append((member, token))
        for member, _ in taken:
            flight = self.flight[member]
            flight.until = max(flight.until, full if member in self.letters else short)
        self.bell = bool(self.ready)
        return [Claimed(one, token, self.letters.get(one, b""), self.lost.get(one, 0)) for one, token in taken]

    def renew(self, renewal: Renewal, hours: int) -> bool:
        if not self._holds(renewal.member, renewal.token):
            return False
        self.flight[renewal.member].until = max(self.flight[renewal.member].until, hours)
        return True

    def ack(self, ack: Ack) -> bool:
        if not self._holds(ack.member, ack.token):
            return False
        score = self.flight.pop(ack.member).score
        if ack.again:
            self._back(ack.member, int(ack.score or score))
        elif ack.member in self.again:
            self._back(ack.member, self.again[ack.member])
        self.bell |= ack.member in self.ready
        self._forget_if_gone(ack.member)
        return True

    def release(self, release: Release, hours: int) -> bool:
        if not self._holds(release.member, release.token):
            return False
        first = self._soonest()
        score = self.flight.pop(release.member).score
        marked = release.member in self.again
        better = min(score, self.again.pop(release.member, score))
        if release.delay_ms:
            due = min(hours, self.delayed[release.member][0]) if release.member in self.delayed else hours
            self.delayed[release.member] = (due, better)
        if not release.delay_ms or (marked and release.member in self.letters):
            self._back(release.member, better)
            self.bell = True
        self._ring_if_sooner(first)
        return True

    def bury(self, burial: Burial) -> bool:
        if not self._holds(burial.member, burial.token):
            return False
        if burial.member in self.letters:
            self.dead[burial.member] = self.letters[burial.member]
        del self.flight[burial.member]
        if burial.member in self.again:
            self._back(burial.member, self.again[burial.member])
            self.bell = True
        self._forget_if_gone(burial.member)
        return True

    def flush(self) -> int:
        dropped = len(self.ready) + len(self.delayed)
        self.ready, self.delayed, self.again, self.bell = {}, {}, {}, False
        self.letters = {member: letter for member, letter in self.letters.items() if member in self.flight}
        self.lost = {member: count for member, count in self.lost.items() if member in self.flight}
        return dropped

    def _holds(self, member: str, token: str) -> bool:
        return member in self.flight and self.flight[member].token == token

    def _lower(self, into: dict[str, int], member: str, score: int) -> None:
        into[member] = min(score, into.get(member, score))

    def _back(self, member: str, score: int) -> None:
        self._lower(self.ready, member, min(score, self.again.pop(member, score)))

    def _forget_if_gone(self, member: str) -> None:
        if member not in self.ready and member not in self.delayed:
            self.letters.pop(member, None)
            self.lost.pop(member, None)

    def _soonest(self) -> int | None:
        return min((due for due, _ in self.delayed.values()), default=None)

    def _ring_if_sooner(self, first: int | None) -> None:
        soonest = self._soonest()
        self.bell |= soonest is not None and (first is None or soonest < first)
