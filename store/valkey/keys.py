"""The keys of a queue, and the one hash tag that keeps them in one slot of a cluster."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from store.errors import UsageError
from store.identity import name_of_scope

#: In the order in which every script expects them; ``lua/prelude.lua`` says what each holds.
PARTS = (
    "ready",
    "leases",
    "delayed",
    "bell",
    "tokens",
    "held",
    "scores",
    "again",
    "envelopes",
    "lost",
    "dead",
    "graves",
    "paused",
)
BELL = PARTS.index("bell")

PREFIX = "dramaturg"


def prefix_of(scope: Sequence[str] | None) -> str:
    """The prefix of a fleet that works for these domains alone; None and ``*``: for all. Each fleet has keys of its
    own: a worker that took another's job from them could do nothing with it."""
    return PREFIX if scope is None or "*" in scope else f"{PREFIX}.{name_of_scope(scope)}"


# A brace would end the tag early, a percent sign would make the escape ambiguous, the rest is unreadable in a terminal.
_ESCAPED = re.compile(r"[%{}\x00-\x20\x7f-\xa0]")


@lru_cache(maxsize=1024)
def keys_of(queue: str, prefix: str = PREFIX) -> tuple[bytes, ...]:
    """The keys of ``queue``, one for each of ``PARTS``: ``dramaturg:{high}:ready`` and so on.

    Two queues never share a key, and all keys of one queue hash to one slot. What is odd in a name is percent-encoded.
    Raises UsageError for a queue without a name, one that UTF-8 can't write, or a prefix with a brace in it.
    """
    if "{" in prefix or "}" in prefix:
        raise UsageError("the prefix of the Valkey keys has a brace in it, which a cluster would take for a hash tag")
    if not queue:
        raise UsageError("a queue needs a name")
    tag = _ESCAPED.sub(lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), queue)
    try:
        return tuple(f"{prefix}:{{{tag}}}:{part}".encode() for part in PARTS)
    except UnicodeEncodeError:
        raise UsageError("a queue's name has half a surrogate pair in it, which UTF-8 can't write") from None
