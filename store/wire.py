"""Batches as one JSON parameter: how wakes and changes reach a statement, alike for the stores that read JSON.

One parameter for a whole batch keeps the Python side cheap (one encoding, no array for each column), and a change only
names the columns that it sets. JSON columns are embedded as they are (``orjson.Fragment``), never parsed on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any, Protocol, TypeVar

import orjson

from store.contract import Change
from store.events import Wake
from store.job import JSON_COLUMNS

#: How a store spells a moment inside JSON.
Spell = Callable[[datetime], Any]


class Named(Protocol):
    """Anything about one row."""

    @property
    def id(self) -> str:
        """The row's."""
        ...


Item = TypeVar("Item", bound=Named)


def rounds(items: Sequence[Item]) -> Iterator[list[tuple[int, Item]]]:
    """Split into batches in which no id comes twice, keeping the order of each id; with the places in ``items``.

    A statement can't touch one row twice.
    """
    waiting = list(enumerate(items))
    if len({item.id for item in items}) == len(items):
        if waiting:
            yield waiting
        return
    while waiting:
        seen: set[str] = set()
        now: list[tuple[int, Item]] = []
        rest: list[tuple[int, Item]] = []
        for item in waiting:
            (rest if item[1].id in seen else now).append(item)
            seen.add(item[1].id)
        yield now
        waiting = rest


def wakes_json(wakes: Sequence[Wake], spell: Spell) -> str:
    """An array of objects with the fields of Wake, ordered by id; ``payload`` is embedded as JSON. What says
    nothing is left out (None, no delay, not once): a server takes longer to read it than to know it."""
    rows = []
    for wake in sorted(wakes):
        row: dict[str, Any] = {
            name: value
            for name, value in zip(Wake._fields, wake, strict=True)
            if value is not None and value is not False
        }
        if not wake.delay:
            del row["delay"]
        row["payload"] = orjson.Fragment(wake.payload)
        if wake.run_at is not None:
            row["run_at"] = spell(wake.run_at)
        rows.append(row)
    return orjson.dumps(rows).decode()


def changes_json(changes: Sequence[Change], spell: Spell) -> str:
    """An array, ordered by id, of ``{"id", "revision", "lapsed", "delete", "set", "stamps", "run_in", "run_at",
    "earliest"}`` for the changes that write; keys that say nothing are left out.

    ``set`` holds column values (JSON columns embedded, no moments but ``null``), ``stamps`` names of columns that take
    the statement's now, ``run_in`` seconds, ``run_at`` a spelled moment.
    """
    rows = []
    for id_, revision, decision in sorted(changes, key=_id):
        write = decision.write
        if write is None:
            continue
        row: dict[str, Any] = {"id": id_, "revision": revision}
        if write.delete:
            row["delete"] = True
        else:
            row["set"] = {
                name: orjson.Fragment(value) if name in JSON_COLUMNS and value is not None else value
                for name, value in write.set.items()
            }
            if write.stamps:
                row["stamps"] = write.stamps
            if write.run_in is not None:
                row["run_in"] = write.run_in
            elif write.run_at is not None:
                row["run_at"] = spell(write.run_at)
            row["earliest"] = write.earliest
        if write.lapsed:
            row["lapsed"] = True
        rows.append(row)
    return orjson.dumps(rows).decode()


def _id(change: Change) -> str:
    return change.id
