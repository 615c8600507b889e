"""Which repository is it really: an identity that a repository made anew under an old name does not share.

A repository that we cloned or adopted carries its identity in a file of its git directory, made once and never
changed. It is a file and not a line of git's config because a new file can be put in place atomically (two processes
that adopt at once agree), because a user's own config can't leak into it, and because a config file that is someone
else's stays as it is.

A repository that we may only read has an identity made from facts that stay the same while it is fetched, committed
to, packed and configured: the inode of its git directory, and inode and modification time of the files that git puts
there when it is created and nobody touches afterwards. Adopting pins just this identity, so that adopting changes
nothing for those who knew the repository before.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from contextlib import suppress
from pathlib import Path

from actors.proposals.errors import RepositoryUnreadable

PIN = "dramaturg-incarnation"
_SHAPE = re.compile(r"[0-9a-f]{32}")
_MADE_AT_CREATION = ("description", "info/exclude")


def read(git_dir: Path) -> str:
    """The identity, 32 hex digits: the pinned one, else the one that the facts give.

    Raises RepositoryUnreadable when the pinned one is damaged, and OSError as it comes."""
    try:
        pinned = (git_dir / PIN).read_text(encoding="ascii", errors="replace").strip()
    except FileNotFoundError:
        return _derived(git_dir)
    if not _SHAPE.fullmatch(pinned):
        raise RepositoryUnreadable(f"{git_dir / PIN} does not hold an identity: delete the file, and adopt anew")
    return pinned


def pin(git_dir: Path, identity: str) -> str:
    """Writes the identity unless there is one, and answers the one that holds. Raises OSError as it comes."""
    with tempfile.NamedTemporaryFile("w", dir=git_dir, prefix=PIN + ".", encoding="ascii") as draft:
        os.fchmod(draft.fileno(), 0o644)
        draft.write(identity + "\n")
        draft.flush()
        with suppress(FileExistsError):  # someone was faster: theirs holds
            os.link(draft.name, git_dir / PIN)
    return read(git_dir)


def _derived(git_dir: Path) -> str:
    facts = [f"{git_dir.stat().st_ino}"]
    for name in _MADE_AT_CREATION:
        with suppress(FileNotFoundError):  # a template without it: the other facts have to do
            status = (git_dir / name).stat()
            facts.append(f"{name} {status.st_ino} {status.st_mtime_ns}")
    return hashlib.sha256("\n".join(facts).encode("ascii")).hexdigest()[:32]
