"""Changing the key: what other keys sealed is sealed anew, a bounded batch at a time, while jobs run.

A row is written only as it was read (by its revision), so a run, a wake or an operator that was faster wins and the row
is read again; a finish that comes after it reads the row again too. What can't be opened is counted and left as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from store import archive
from store.boundary import place_of
from store.contract import ARCHIVE_START, Archived, Change, Store
from store.errors import PayloadSealed, Refused, UsageError
from store.filters import Filter
from store.job import Job
from store.sealing import FIELDS, Sealing, is_sealed, key_id
from store.transitions import Answer, Decision, Write

#: Rows of one committed batch: three columns of a megabyte each may stand in one.
BATCH: Final = 50

#: What the archive can be narrowed by.
ARCHIVE_FILTERS: Final = ("domain", "queue", "job_type", "key")

#: How often a row that keeps changing is tried again.
ROUNDS: Final = 5


class Rotated(NamedTuple):
    """What was done, or (dry run) would be. Columns are counted, but for ``jobs`` and ``unsettled``, which are rows."""

    jobs: int  # rows that were looked at
    resealed: int  # sealed with another key before, or in the clear where that is to be sealed
    current: int  # sealed with the key of today already
    clear: int  # in the clear, and left so
    unopened: int  # no key of ours opens them: left as they are
    unsettled: int  # rows that others held, or that kept changing
    last_id: str | None  # where the next call goes on; None: the end was reached


class _Row(NamedTuple):
    set: dict[str, Any]
    current: int
    clear: int
    unopened: int


def rotate(
    store: Store,
    sealing: Sealing,
    filter: Filter,
    *,
    limit: int = 1000,
    dry_run: bool = False,
    seal_clear: bool = False,
    now: datetime | None = None,
    told: Callable[[Job], None] | None = None,
) -> Rotated:
    """Look at ``limit`` rows that match, by id beyond ``filter.after_id``, and seal what other keys sealed with the key
    of today; ``seal_clear``: also what stands in the clear in domains that are sealed. ``told``: of each row with
    something that could not be opened. Raises UsageError without a key."""
    _check_key(sealing)
    jobs = resealed = current = clear = unopened = unsettled = 0
    page, ended = filter, False
    while jobs < limit and not ended:
        wanted = min(BATCH, limit - jobs)
        rows = store.find(page, order="id", limit=wanted, now=now)
        ended = len(rows) < wanted
        jobs += len(rows)
        left = {row.id: row for row in rows}
        for _ in range(1 if dry_run else ROUNDS):
            looked = {id_: _looked_at(row, _texts(row), sealing, seal_clear) for id_, row in left.items()}
            open_ = [] if dry_run else [left[id_] for id_, found in looked.items() if found.set]
            refused = _write(store, [(row, looked[row.id].set) for row in open_], now)
            for id_, found in looked.items():
                if id_ not in refused:
                    resealed += len(found.set)
                    current, clear, unopened = current + found.current, clear + found.clear, unopened + found.unopened
                    if found.unopened and told is not None:
                        told(left[id_])
            again = store.read(sorted(refused)) if refused else []
            left = {row.id: row for row in again if row is not None}
            if not left:
                break
        else:
            unsettled += 0 if dry_run else len(left)
        if rows:
            page = page._replace(after_id=rows[-1].id)
    return Rotated(jobs, resealed, current, clear, unopened, unsettled, None if ended else page.after_id)


def rotate_archive(
    store: Store,
    sealing: Sealing,
    filter: Filter,
    *,
    after: tuple[str, int] = ARCHIVE_START,
    limit: int = 1000,
    dry_run: bool = False,
    seal_clear: bool = False,
    told: Callable[[Archived], None] | None = None,
) -> Rotated:
    """``rotate`` for pruned jobs that are kept, gzips included: reads ``limit`` of them from behind ``after`` on, and
    counts those that match; ``last_id`` is ``id:generation``. Nothing but a rotation ever changes what is kept, so
    nobody can be faster. Raises UsageError without a key, and for a filter on what the archive does not know."""
    _check_key(sealing)
    wanted = {name: value for name, value in filter._asdict().items() if value is not None}
    if set(wanted) - set(ARCHIVE_FILTERS):
        raise UsageError("archived jobs are chosen by domain, queue, type and key, and by nothing else")
    jobs = resealed = current = clear = unopened = read = 0
    ended = False
    while read < limit and not ended:
        size = min(BATCH, limit - read)
        page = store.archive_page(after, limit=size)
        ended, read = len(page) < size, read + len(page)
        written = []
        for kept in page:
            after = (kept.id, kept.generation)
            if any(getattr(kept, name) != value for name, value in wanted.items()):
                continue
            found = _looked_at(kept, archive.texts(kept), sealing, seal_clear)
            jobs, resealed = jobs + 1, resealed + len(found.set)
            current, clear, unopened = current + found.current, clear + found.clear, unopened + found.unopened
            if found.set:
                written.append(archive.with_texts(kept, found.set))
            if found.unopened and told is not None:
                told(kept)
        if written and not dry_run:
            with store.transaction() as tx:
                tx.archive(written)
    return Rotated(jobs, resealed, current, clear, unopened, 0, None if ended else f"{after[0]}:{after[1]}")


def _check_key(sealing: Sealing) -> None:
    if sealing.current is None:
        raise UsageError("there is no key to seal with: set JOBS_CRYPTO_KEY or JOBS_CRYPTO_KEY_FILE")


def _texts(row: Job) -> dict[str, str]:
    return {field: text for field in FIELDS if (text := getattr(row, field)) is not None}


def _looked_at(row: Job | Archived, texts: Mapping[str, str], sealing: Sealing, seal_clear: bool) -> _Row:
    anew: dict[str, Any] = {}
    current = clear = unopened = 0
    for where, text in texts.items():
        place = place_of(row, archive.field_of(where))
        sealed = is_sealed(text)
        if not sealed and not (seal_clear and sealing.wants(row.domain)):
            clear += 1
            continue
        try:
            opened = sealing.open(text, place)
        except PayloadSealed:
            unopened += 1
            continue
        if sealed and key_id(text) == sealing.current:
            current += 1
        else:
            anew[where] = sealing.seal(opened, place)
    return _Row(anew, current, clear, unopened)


def _write(store: Store, rows: list[tuple[Job, dict[str, Any]]], now: datetime | None) -> set[str]:
    """The ids of those that were not written."""
    if not rows:
        return set()
    changes = [
        Change(row.id, row.revision, Decision(Answer.APPLIED, row.state, Write(anew))) for row, anew in rows
    ]  # fmt: skip
    try:
        done = store.swap(changes, now=now)
    except Refused:  # one that the database refuses by itself must not keep the others
        if len(rows) > 1:
            return set().union(*(_write(store, [row], now) for row in rows))
        done = [False]
    return {change.id for change, written in zip(changes, done, strict=True) if not written}
