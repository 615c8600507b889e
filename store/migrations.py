"""Numbered schema files: what there is, what is missing, and when a program is too old for a database.

A folder holds ``NNN_name.sql`` (or ``.surql``) files, applied in the order of their numbers, each in one transaction
with the row that records it. A file whose first line reads ``-- breaking`` may not be worked with by a program that
doesn't know it; any other unknown migration is harmless to older programs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from store.errors import Refused, SchemaTooNew

_FILE = re.compile(r"(\d{3})_([a-z0-9_]+)\.(?:sql|surql)")
_BREAKING = "-- breaking"


class Subject(NamedTuple):
    """Somebody with tables of their own: files in ``folder/<dialect>/``; ``name`` is recorded with each."""

    name: str
    folder: Path


class Migration(NamedTuple):
    """One file."""

    subject: str
    number: int
    name: str
    breaking: bool
    statements: str


class Applied(NamedTuple):
    """One recorded migration."""

    subject: str
    number: int
    breaking: bool


def load(subject: str, folder: Path) -> list[Migration]:
    """The migrations of a folder in order; gaps and doubled numbers are a mistake of ours and raise ValueError."""
    found = []
    for path in sorted(folder.iterdir()):
        if match := _FILE.fullmatch(path.name):
            text = path.read_text(encoding="utf-8")
            breaking = text.splitlines()[0].strip() == _BREAKING if text else False
            found.append(Migration(subject, int(match[1]), match[2], breaking, text))
    if [migration.number for migration in found] != list(range(1, len(found) + 1)):
        raise ValueError(f"{folder} does not number its migrations 001, 002, 003 ...")
    return found


def missing(known: Sequence[Migration], applied: Iterable[Applied]) -> list[Migration]:
    """What is still to be applied, in order. Raises SchemaTooNew."""
    done = {(record.subject, record.number): record for record in applied}
    ours = {(migration.subject, migration.number) for migration in known}
    subjects = {migration.subject for migration in known}
    for (subject, number), record in done.items():
        if subject in subjects and (subject, number) not in ours and record.breaking:
            raise SchemaTooNew(
                f"the database has migration {number} of {subject}, which programs that don't know it may not work "
                "with: install the newer version of dramaturg here, or point it at another database"
            )
    return [migration for migration in known if (migration.subject, migration.number) not in done]


def refuse_missing(known: Sequence[Migration], applied: Iterable[Applied]) -> None:
    """Raise Refused where something is still to be applied, and SchemaTooNew as ``missing`` does."""
    if lacking := missing(known, applied):
        names = ", ".join(f"{migration.subject} {migration.number:03d}" for migration in lacking)
        raise Refused(f"the database lacks migrations ({names}): run `dramaturg migrate`")
