"""Leases: who may try which job, decided in Valkey and by Valkey's clock.

Losing all of this loses no job: rows that are due are offered again. Ordinary messages live here alone. A lease here
says who may try; whether a run counts, the row says. A claim that is not acked, renewed or released comes back by
itself: recovering is part of claiming, so somebody who claims now and then is all that it needs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from store.errors import UsageError
from store.valkey import replies, scripts
from store.valkey.client import Client
from store.valkey.entries import (
    Ack,
    Burial,
    Claims,
    DeadLetter,
    Delay,
    Offer,
    Offered,
    Release,
    Renewal,
    Sizes,
)
from store.valkey.keys import BELL, PREFIX, keys_of
from store.valkey.link import Word

#: Entries that one script call works on; a longer batch becomes several calls.
BATCH = 500
#: How many leases and delays one claim puts back at most.
SWEEP = 100
#: A claim of a job lasts this long; the claim of its row, which follows at once, renews it to its full length.
SHORT_MS = 10_000
#: Dead letters are kept for this long, and this many of a queue.
KEEP_MS = 7 * 24 * 3600 * 1000
KEEP_MOST = 10_000

_LONGEST_MS = 100 * 365 * 24 * 3600 * 1000

_T = TypeVar("_T")


class Leases:
    """The queues of one Valkey. Every method may raise ValkeyUnavailable, and may then be repeated as it was:
    entries that were done before are answered as known, held or not held, and nothing is done twice.

    Entries of one batch are worked on in their order. Bad arguments raise UsageError before anything is sent.
    """

    def __init__(self, client: Client, prefix: str = PREFIX) -> None:
        self._client = client
        self._prefix = prefix

    def offer(self, queue: str, offers: Sequence[Offer], *, watermark: int, force: bool = False) -> Offered:
        """Makes members ready to be claimed. One that is ready stays as it is, but takes a better (lower) score; one in
        flight is marked, and is ready as soon as its holder acks it: its lease isn't extended.

        While ``watermark`` or more are ready, new jobs are dropped (their rows are the truth) unless ``force``;
        messages never are.
        """
        total = Offered(0, 0, 0, 0)
        for batch in _batches(offers):
            arguments: list[Word] = [watermark, int(force)]
            for offer in batch:
                arguments += (_member(offer.member), _score(offer.score), offer.envelope)
            part = Offered(*replies.counts("offer", self._client.run(scripts.OFFER, self._keys(queue), arguments), 4))
            total = Offered(total.new + part.new, total.known + part.known, total.dropped + part.dropped, part.ready)
        return total

    def delay(self, queue: str, delays: Sequence[Delay]) -> None:
        """Makes messages ready later. A message that is delayed already keeps the sooner of its two moments; one that
        is ready or in flight stays so and is wanted once more then."""
        for batch in _batches(delays):
            arguments: list[Word] = []
            for entry in batch:
                if not entry.envelope:
                    raise UsageError("only messages can be delayed, and one of these has no envelope")
                arguments += (_member(entry.member), _ms(entry.delay_ms), _score(entry.score), entry.envelope)
            replies.count("delay", self._client.run(scripts.DELAY, self._keys(queue), arguments))

    def claim(
        self, queue: str, tokens: Sequence[str], *, full_ms: int, short_ms: int = SHORT_MS, limit: int = SWEEP
    ) -> Claims:
        """Takes the first of the ready, one for each token: a job for ``short_ms``, a message for ``full_ms``.

        Before that, up to ``limit`` leases that ran out and as many messages that became due are made ready. The same
        call again, because its answer was lost, gets the same answer for every token that still holds something.
        """
        if not 0 < len(tokens) <= BATCH or len(set(tokens)) != len(tokens) or not all(tokens):
            raise UsageError(f"a claim takes 1 to {BATCH} tokens, each of them once and none of them empty")
        if not 0 < limit <= BATCH:
            raise UsageError(f"a claim recovers 1 to {BATCH} leases, not {limit}")
        arguments: list[Word] = [_ms(short_ms), _ms(full_ms), limit, *tokens]
        return replies.claims(self._client.run(scripts.CLAIM, self._keys(queue), arguments), tokens)

    def renew(self, queue: str, renewals: Sequence[Renewal], *, row_claimed: bool = False) -> list[bool]:
        """Makes leases last longer, never shorter. True for each that its token holds, even if it had run out and
        nobody had taken it; False tells only that Valkey has forgotten, or that somebody else tries: ask the row.

        ``row_claimed`` says that the rows were claimed just now: offers from before that are being served, and are
        forgotten. A wake that came in between is known to the row, whose finish says so in its ack."""
        arguments = [(_member(entry.member), entry.token, _ms(entry.ms)) for entry in renewals]
        return self._guarded(scripts.RENEW, queue, arguments, (int(row_claimed),))

    def ack(self, queue: str, acks: Sequence[Ack]) -> list[bool]:
        """Ends leases; what is not wanted again is gone. True for each that its token held; others change nothing."""
        arguments = [
            (_member(entry.member), entry.token, int(entry.again), _score(entry.score) if entry.score else "")
            for entry in acks
        ]
        return self._guarded(scripts.ACK, queue, arguments)

    def release(self, queue: str, releases: Sequence[Release]) -> list[bool]:
        """Gives members back unharmed. True for each that its token held; others change nothing."""
        arguments = [(_member(entry.member), entry.token, _ms(entry.delay_ms)) for entry in releases]
        return self._guarded(scripts.RELEASE, queue, arguments)

    def bury(
        self, queue: str, burials: Sequence[Burial], *, keep_ms: int = KEEP_MS, keep_most: int = KEEP_MOST
    ) -> list[bool]:
        """Moves messages to the dead letters, of which the oldest go when there are more than ``keep_most`` or when
        they are older than ``keep_ms``. A job, having no envelope, is acked. True for each that its token held."""
        if keep_ms <= 0 or keep_most <= 0:
            raise UsageError("dead letters are kept for some time and in some number, both above 0")
        arguments = [(_member(entry.member), entry.token) for entry in burials]
        return self._guarded(scripts.BURY, queue, arguments, (_ms(keep_ms), keep_most))

    def flush(self, queue: str) -> int:
        """Drops all that is ready or delayed, and answers how many that were. What is in flight goes on."""
        return replies.count("flush", self._client.run(scripts.FLUSH, self._keys(queue), ()))

    def pause(self, queue: str) -> bool:
        """From here on nothing of the queue is claimed, jobs and messages alike; what is in flight goes on, and offers
        are taken. True if it was not paused before. Lost with Valkey: the scheduler says it again."""
        return replies.count("pause", self._client.run(scripts.PAUSE, self._keys(queue), ())) == 1

    def resume(self, queue: str) -> bool:
        """Claims go on; rings where something is ready. True if it was paused."""
        return replies.count("resume", self._client.run(scripts.RESUME, self._keys(queue), ())) == 1

    def sizes(self, queue: str) -> Sizes:
        """How many are where, at one moment."""
        return Sizes(*replies.counts("sizes", self._client.run(scripts.SIZES, self._keys(queue), ()), 4))

    def dead_letters(self, queue: str, limit: int = 100) -> list[DeadLetter]:
        """The newest dead letters, newest first, at most ``limit`` (up to 500)."""
        if not 0 < limit <= BATCH:
            raise UsageError(f"1 to {BATCH} dead letters can be read at once, not {limit}")
        return replies.dead_letters(self._client.run(scripts.LETTERS, self._keys(queue), (limit,)))

    def block(self, queue: str, seconds: float) -> bool:
        """Waits until the queue's bell rings (True) or the time is over (False); at most ``LONGEST_WAIT_SECONDS``.

        Claim afterwards in either case: a bell can be lost with the process that heard it, and leases run out silently.
        The wait should not be longer than the ``next_ms`` of the last claim.
        """
        return self._client.wait(self._keys(queue)[BELL], seconds)

    def _keys(self, queue: str) -> tuple[bytes, ...]:
        return keys_of(queue, self._prefix)

    def _guarded(
        self,
        script: scripts.Script,
        queue: str,
        entries: Sequence[tuple[Word, ...]],
        before: tuple[Word, ...] = (),
    ) -> list[bool]:
        held: list[bool] = []
        for batch in _batches(entries):
            arguments = [*before, *(value for entry in batch for value in entry)]
            reply = self._client.run(script, self._keys(queue), arguments)
            held += replies.answers(script.name, reply, len(batch))
        return held


def _batches(entries: Sequence[_T]) -> Iterator[Sequence[_T]]:
    for start in range(0, len(entries), BATCH):
        yield entries[start : start + BATCH]


def _member(member: str) -> str:
    if not member:
        raise UsageError("a member needs a name")
    return member


def _score(score: str) -> str:
    if not (score.isascii() and score.isdigit() and len(score) <= 16):
        raise UsageError("a score is up to 16 digits, without sign or exponent: use job_score or message_score")
    return score


def _ms(ms: int) -> int:
    if not 0 <= ms <= _LONGEST_MS:
        raise UsageError(f"a time of {ms} ms is below 0 or above a hundred years")
    return ms
