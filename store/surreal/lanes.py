"""Due rows, read queue by queue: a lane is the queued rows of one queue and job type.

Every step is a seek in ``dramaturg_job_lane``: the next queue, then for each published type that has a lane there ten
short ranges, one for each priority, that end at now. So rows that aren't due cost nothing, nor do those of a paused
queue or of a type that nobody published; only rows of a domain that is paused by itself are passed one by one.

The next queue is sought by ``>=`` its name and a U+0000, not by ``>``: the engine (3.2.4) answers nothing at all to
``>`` on a column of an index that is not its last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from store import clock
from store.contract import Due
from store.surreal.requests import Step
from store.surreal.rows import LIMITS, record

NEXT_QUEUE: Final = (
    "(SELECT VALUE queue FROM dramaturg_job WHERE state = 'queued' AND queue >= $d0 ORDER BY queue LIMIT 1)[0]"
)

LANE: Final = (
    "(SELECT VALUE 1 FROM dramaturg_job WHERE state = 'queued' AND queue = $queue AND job_type = $type LIMIT 1)"
)

_ROW: Final = "[priority, run_at, record::id(id)]"
_LANE: Final = "state = 'queued' AND queue = $queue AND job_type = $type AND priority = $priority"
_OPEN: Final = "domain NOT IN $shut"

PROBE: Final = f"""(SELECT VALUE {_ROW} FROM dramaturg_job
  WHERE {_LANE} AND run_at <= $now AND {_OPEN} ORDER BY run_at, id LIMIT $d1)"""

# What is left of the priority at which the page before ended: its own moment, then the later ones. Those are sought
# from that moment on and cut off at now afterwards: the engine takes one end of a range from the index, and by the
# other it would pass every row that isn't due.
SAME: Final = f"""(SELECT VALUE {_ROW} FROM dramaturg_job
  WHERE {_LANE} AND run_at = $d4 AND id > $d5 AND {_OPEN} ORDER BY id LIMIT $d1)"""
LATER: Final = f"""(SELECT VALUE {_ROW} FROM (SELECT id, priority, run_at FROM dramaturg_job
  WHERE {_LANE} AND run_at > $d4 AND {_OPEN} ORDER BY run_at, id LIMIT $d1) WHERE run_at <= $now)"""

# The same where there are limits: rows are judged one by one until a page is full.
_WIDE: Final = "SELECT id, priority, run_at, domain, owner FROM dramaturg_job"
_WITHIN: Final = "fn::dramaturg::within(domain, owner, $queue, $type, $limits, $full)"
WIDE_PROBE: Final = f"""(SELECT VALUE {_ROW} FROM ({_WIDE}
  WHERE {_LANE} AND run_at <= $now AND {_OPEN} ORDER BY run_at, id) WHERE {_WITHIN} ORDER BY run_at, id LIMIT $d1)"""
WIDE_SAME: Final = f"""(SELECT VALUE {_ROW} FROM ({_WIDE}
  WHERE {_LANE} AND run_at = $d4 AND id > $d5 AND {_OPEN} ORDER BY id) WHERE {_WITHIN} ORDER BY id LIMIT $d1)"""
WIDE_LATER: Final = f"""(SELECT VALUE {_ROW} FROM ({_WIDE}
  WHERE {_LANE} AND run_at > $d4 AND {_OPEN} ORDER BY run_at, id)
  WHERE run_at <= $now AND {_WITHIN} ORDER BY run_at, id LIMIT $d1)"""

_FROM_QUEUE: Final = """{{
LET $queue = {queue};
IF $queue = NONE {{ NONE }} ELSE {{
  LET $shut = (SELECT VALUE string::slice(record::id(id)[1], string::len($queue) + 1) FROM
    dramaturg_document:['queue', $queue + '\\u{{1f}}']..['queue', $queue + '\\u{{20}}'] WHERE paused);
  LET $limits = {limits};
  LET $full = IF $limits = NONE THEN [] ELSE fn::dramaturg::full($limits, $now) END;
  LET $types = IF type::record('dramaturg_document', ['queue', $queue]).paused = true THEN [] ELSE
    (SELECT VALUE record::id(id)[1] FROM dramaturg_document:['policy', NONE]..['policy', {{}}]) END;
  LET $lanes = array::filter($types, |$type| array::len({lane}) > 0);
  [$queue, array::flatten(array::map($lanes, |$type| array::flatten(array::map({priorities}, |$priority|
    IF $limits = NONE {{ {probe} }} ELSE {{ {wide} }}))))]
}}
}}"""


def first(queue: str, limit: int) -> Step:
    """The first queue that is not before ``queue``; answers nothing, or [queue, rows]."""
    text = _FROM_QUEUE.format(
        queue=NEXT_QUEUE, lane=LANE, priorities="<array> (1..=10)", probe=PROBE, wide=WIDE_PROBE, limits=LIMITS
    )
    return Step(text, {"d0": queue, "d1": limit})


def following(after: Due, limit: int) -> Step:
    """A page of one queue beyond ``after``; answers [queue, rows]."""
    probe = f"IF $priority = $d3 THEN array::concat({SAME}, {LATER}) ELSE {PROBE} END"
    wide = f"IF $priority = $d3 THEN array::concat({WIDE_SAME}, {WIDE_LATER}) ELSE {WIDE_PROBE} END"
    text = _FROM_QUEUE.format(
        queue="$d0", lane=LANE, priorities="<array> ($d3..=10)", probe=probe, wide=wide, limits=LIMITS
    )
    values = {
        "d0": after.queue,
        "d1": limit,
        "d3": after.priority,
        "d4": clock.micros(after.run_at),
        "d5": record(after.id),
    }
    return Step(text, values)


def after_queue(queue: str) -> str:
    """The least text behind ``queue``."""
    return queue + "\x00"


def due_of(queue: str, rows: Sequence[Any], limit: int) -> list[Due]:
    """The rows of a queue in the order of the offer."""
    return [
        Due(id_, queue, priority, clock.from_micros(run_at))
        for priority, run_at, id_ in sorted(map(tuple, rows))[:limit]
    ]


def pages(after: Mapping[str, Due], limit: int) -> list[Step]:
    """The steps that page on."""
    return [following(after[queue]._replace(queue=queue), limit) for queue in sorted(after)]
