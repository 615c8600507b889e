"""What the leases are asked with, and what they answer.

A member is the name under which something waits: ``j:<job id>`` for a job, ``m:<message id>`` for an ordinary message.
A token says who holds it: a string that the claimer made and nobody else has, such as a uuid. Scores come from
``scores.py``. An envelope is the message itself; jobs have none (b""), their row is the truth.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple


class Offer(NamedTuple):
    """Wants ``member`` to be claimed. An envelope replaces one that is kept under the same member."""

    member: str
    score: str
    envelope: bytes = b""


class Offered(NamedTuple):
    """How many offers were new in the ready set, were known already (ready, or in flight: then marked), were dropped
    because the ready set is full; and how many are ready now."""

    new: int
    known: int
    dropped: int
    ready: int


class Delay(NamedTuple):
    """Wants a message to be ready after ``delay_ms``, at the place ``score``."""

    member: str
    delay_ms: int
    score: str
    envelope: bytes


class Claimed(NamedTuple):
    """``lost`` counts the earlier leases of a message that ran out; of a job its row counts them, here it is 0.

    A message whose envelope is b"" has lost it to a server that evicts keys: ack it.
    """

    member: str
    token: str
    envelope: bytes
    lost: int


class Claims(NamedTuple):
    """``next_ms``: how long until something next is due or runs out, None if nothing will; ``ready``: what is left."""

    taken: list[Claimed]
    next_ms: int | None
    ready: int


class Renewal(NamedTuple):
    """Wants the lease to last ``ms`` from now, if that is longer than it has."""

    member: str
    token: str
    ms: int


class Ack(NamedTuple):
    """Ends the lease. With ``again``, or if it was offered meanwhile, the member is ready at once: at the place
    ``score`` or, if that is "", at the place where it was claimed."""

    member: str
    token: str
    again: bool = False
    score: str = ""


class Release(NamedTuple):
    """Gives the member back, ready at once or after ``delay_ms``. Offers don't cut a job's delay short: keep it
    small."""

    member: str
    token: str
    delay_ms: int = 0


class Burial(NamedTuple):
    """Moves a message to the dead letters."""

    member: str
    token: str


class Sizes(NamedTuple):
    """How many members of a queue are where."""

    ready: int
    delayed: int
    in_flight: int
    dead: int


class DeadLetter(NamedTuple):
    """``buried_at`` is by Valkey's clock."""

    member: str
    buried_at: datetime
    envelope: bytes
