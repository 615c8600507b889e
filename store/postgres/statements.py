"""Statements of this folder: those that are long or have something to explain stand in files of their own."""

from __future__ import annotations

from pathlib import Path

from store.postgres.values import JOB

_FOLDER = Path(__file__).parent / "statements"


def statement(name: str) -> str:
    """The text of a file, with ``{job}`` for a job's columns and without comments: psycopg remembers how it read a
    statement of up to 4,096 characters, and reads a longer one anew each time."""
    lines = (_FOLDER / f"{name}.sql").read_text(encoding="utf-8").splitlines()
    code = " ".join(line.strip() for line in lines if not line.lstrip().startswith("--"))
    return code.replace("{job}", JOB)
