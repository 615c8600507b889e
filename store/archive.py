"""What is kept of a row that is pruned, as pure functions."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

import orjson

from store.clock import PARKED
from store.contract import Archived
from store.job import JSON_COLUMNS, TIME_COLUMNS, Job
from store.sealing import FIELDS

_BETWEEN: Final = re.compile(r"[\s,:]*")

#: What stands before the base64 of a gzip where a store keeps it as text.
PREFIX: Final = "gzip64:"


class Archiving(NamedTuple):
    """How rows are kept: with gzips of payload and result, and then perhaps without their JSON."""

    compress: bool = False
    drop_json: bool = False


def kept(job: Job, how: Archiving) -> Archived:
    """``job`` as it is archived. JSON columns stay as they were spelled; moments are ISO 8601 in UTC."""
    columns: dict[str, object] = job._asdict()
    for name in TIME_COLUMNS:
        moment = getattr(job, name)
        if moment is not None:
            columns[name] = "infinity" if moment == PARKED else moment.isoformat()
    for name in JSON_COLUMNS:
        text = getattr(job, name)
        dropped = how.compress and how.drop_json and name in ("payload", "result")
        columns[name] = None if text is None or dropped else orjson.Fragment(text)
    return Archived(
        job.id,
        job.generation,
        job.domain,
        job.queue,
        job.job_type,
        job.key,
        orjson.dumps(columns).decode(),
        _gzip(job.payload) if how.compress else None,
        _gzip(job.result) if how.compress else None,
    )


def read(archived: Archived) -> dict[str, object]:
    """The columns of an archived row, payload and result included in whichever form they were kept."""
    columns: dict[str, object] = orjson.loads(archived.job)
    for name, packed in (("payload", archived.payload_gzip), ("result", archived.result_gzip)):
        if columns.get(name) is None and packed is not None:
            columns[name] = orjson.loads(gzip.decompress(packed))
    return columns


def parts(archived: Archived) -> dict[str, bool]:
    """Which parts of payload and result are there, as JSON and compressed."""
    columns = orjson.loads(archived.job)
    return {
        "payload_json": columns.get("payload") is not None,
        "result_json": columns.get("result") is not None,
        "payload_compressed": archived.payload_gzip is not None,
        "result_compressed": archived.result_gzip is not None,
    }


def texts(archived: Archived) -> dict[str, str]:
    """The JSON texts that may be sealed, as they are spelled, by where they stand: a column's name, or
    ``payload_gzip`` and ``result_gzip``."""
    found = {name: text for name, text in _spelled(archived.job).items() if name in FIELDS and text != "null"}
    for name, packed in (("payload_gzip", archived.payload_gzip), ("result_gzip", archived.result_gzip)):
        if packed is not None:
            found[name] = gzip.decompress(packed).decode()
    return found


def with_texts(archived: Archived, anew: Mapping[str, str]) -> Archived:
    """``archived`` with other texts at those places; all else stays as it was spelled."""
    columns = _spelled(archived.job) | {name: text for name, text in anew.items() if name in FIELDS}
    job = "{" + ",".join(f"{json.dumps(name)}:{text}" for name, text in columns.items()) + "}"
    packed = {name: _gzip(text) for name, text in anew.items() if name not in FIELDS}
    return archived._replace(job=job, **packed)  # type: ignore[arg-type]


def field_of(place: str) -> str:
    """The column of the row that is kept at one of the places of ``texts``."""
    return place.removesuffix("_gzip")


def _spelled(job: str) -> dict[str, str]:
    """The columns of an archived row as texts of JSON: a number that was read and written again might be another."""
    decoder, found, place = json.JSONDecoder(), {}, job.index("{") + 1
    while job[(place := _next(job, place))] != "}":
        name, place = decoder.raw_decode(job, place)
        start = _next(job, place)
        _, place = decoder.raw_decode(job, start)
        found[name] = job[start:place]
    return found


def _next(job: str, place: int) -> int:
    between = _BETWEEN.match(job, place)
    return place if between is None else between.end()


def gzip64(packed: bytes | None) -> str | None:
    """A gzip as text."""
    return None if packed is None else PREFIX + base64.b64encode(packed).decode()


def ungzip64(text: str | None) -> bytes | None:
    """The gzip in a text."""
    return None if text is None else base64.b64decode(text.removeprefix(PREFIX))


def _gzip(text: str | None) -> bytes | None:
    return None if text is None else gzip.compress(text.encode(), mtime=0)
