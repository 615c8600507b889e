"""The Lua scripts, as text and as the name under which a server remembers them."""

from __future__ import annotations

import hashlib
from importlib import resources
from typing import NamedTuple


class Script(NamedTuple):
    """``name`` is the verb that people read in errors; ``sha`` is what EVALSHA wants."""

    name: str
    text: str
    sha: str

    @classmethod
    def load(cls, name: str) -> Script:
        """Reads ``lua/<name>.lua`` and puts what all scripts share between its first line, the shebang, and the rest.

        The shebang makes a server refuse the whole script where it may not write (a replica, no memory left), instead
        of failing half way through, and refuse keys of another slot.
        """
        folder = resources.files(__package__) / "lua"
        shebang, body = (folder / f"{name}.lua").read_text("utf-8").split("\n", 1)
        text = "\n".join((shebang, (folder / "prelude.lua").read_text("utf-8"), body))
        return cls(name, text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


OFFER, DELAY, CLAIM, RENEW, ACK, RELEASE, BURY, FLUSH, SIZES, LETTERS, PAUSE, RESUME = map(
    Script.load,
    ("offer", "delay", "claim", "renew", "ack", "release", "bury", "flush", "sizes", "letters", "pause", "resume"),
)
