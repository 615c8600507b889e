"""Pruned rows that are kept, and history that was left behind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from store import clock
from store.archive import gzip64, ungzip64
from store.contract import Archived
from store.surreal.requests import Step

_COLUMNS: Final = (
    "record::id(id)[0], record::id(id)[1], domain, queue, job_type, key, job, payload_gzip, result_gzip, archived_at"
)


def write(kept: Sequence[Archived]) -> Step:
    """As ``Tx.archive``."""
    values = {
        f"a{place}": row._asdict()
        | {
            "payload_gzip": gzip64(row.payload_gzip),
            "result_gzip": gzip64(row.result_gzip),
            "archived_at": None if row.archived_at is None else clock.micros(row.archived_at),
        }
        for place, row in enumerate(kept)
    }
    written = "; ".join(
        f"UPSERT type::record('dramaturg_archive', [${name}.id, ${name}.generation]) SET domain = ${name}.domain, "
        f"queue = ${name}.queue, job_type = ${name}.job_type, key = ${name}.key, job = ${name}.job, "
        f"payload_gzip = ${name}.payload_gzip, result_gzip = ${name}.result_gzip, "
        f"archived_at = ${name}.archived_at ?? $now RETURN NONE"
        for name in values
    )
    return Step(f"{{ {written}; true }}", values)


def read(job_id: str) -> Step:
    """As ``Store.archived``."""
    kept = "dramaturg_archive:[$a0, 0]..=[$a0, 9223372036854775807]"
    return Step(f"(SELECT VALUE [{_COLUMNS}] FROM (SELECT * FROM {kept} ORDER BY id DESC LIMIT 100))", {"a0": job_id})


def page(after: tuple[str, int], limit: int) -> Step:
    """As ``Store.archive_page``: a range is read in the order of its ids."""
    kept = f"dramaturg_archive:[$a0, $a1].. LIMIT {max(limit, 0)}"
    text = f"(SELECT VALUE [{_COLUMNS}] FROM (SELECT * FROM {kept}))"
    return Step(text, {"a0": after[0], "a1": after[1] + 1})


def archived(rows: Any) -> list[Archived]:
    """What the step answers."""
    return [Archived._make((*row[:7], ungzip64(row[7]), ungzip64(row[8]), clock.from_micros(row[9]))) for row in rows]


def orphans(remove: bool, limit: int) -> Step:
    """As ``Store.orphans``."""
    lost = f"""(SELECT VALUE id FROM dramaturg_history
  WHERE !record::exists(type::record('dramaturg_job', record::id(id)[0])) LIMIT {max(limit, 0)})"""
    removal = "DELETE $lost RETURN NONE;" if remove else ""
    return Step(f"{{ LET $lost = {lost}; {removal} array::len($lost) }}", {})
