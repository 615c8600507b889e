"""Lifecycle events and attachments; the rest stands in ``schema/004``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from store import clock
from store.attachments import Attachment, Caps, Fence, Item
from store.job import HISTORY_KEPT
from store.outbox import SCANNED, Event, Extent
from store.surreal.requests import Step
from store.surreal.rows import micros

#: Events that get their positions in one transaction.
NUMBERED: Final = 1_000

_WATCH: Final = (
    "DEFINE EVENT OVERWRITE dramaturg_job_event ON dramaturg_job THEN {{ "
    "fn::dramaturg::note_change($event, $before, $after, {events}, {limits}, {kept}) }}"
)


def arm() -> Step:
    """Make or remove the event on the table of jobs as the documents say; answers whether anything changed.

    What it is made for is kept in a record, which two that do this at once both write: one of them does it again.
    """
    made = " ".join(
        f"IF $mode = {mode} {{ "
        + _WATCH.format(events=str(bool(mode & 1)).lower(), limits=str(bool(mode & 2)).lower(), kept=HISTORY_KEPT)
        + " };"
        for mode in (1, 2, 3)
    )
    text = f"""{{
LET $outbox = type::record('dramaturg_document', ['outbox', 'events']).body;
LET $on = $outbox != NONE AND encoding::json::decode($outbox).on = true;
LET $limits = (SELECT VALUE id FROM dramaturg_document:['sla', NONE]..['sla', {{}}]
  WHERE encoding::json::decode(body).removed = NONE LIMIT 1);
LET $mode = (IF $on THEN 1 ELSE 0 END) + (IF array::len($limits) > 0 THEN 2 ELSE 0 END);
LET $changes = (dramaturg_outbox_counter:armed.last ?? 0) != $mode;
IF $changes {{
  UPSERT dramaturg_outbox_counter:armed SET last = $mode RETURN NONE;
  {made}
  IF $mode = 0 {{ REMOVE EVENT IF EXISTS dramaturg_job_event ON dramaturg_job }};
}};
$changes
}}"""
    return Step(text, {})


def waiting() -> Step:
    """Whether events have arrived that have no position yet."""
    return Step("(array::len((SELECT VALUE id FROM dramaturg_outbox_arrival LIMIT 1)) > 0)", {})


def number() -> Step:
    """Give positions to what has been committed; answers how many got one."""
    return Step(f"fn::dramaturg::number_events({NUMBERED})", {})


def extent() -> Step:
    """Which events are kept."""
    return Step("fn::dramaturg::extent()", {})


def page(after: int | None, limit: int, names: dict[str, str | None]) -> Step:
    """Events behind ``after``; answers [extent, rows]."""
    values: dict[str, Any] = {"e0": after}
    conditions = []
    for place, name in ((3, "domain"), (4, "queue"), (5, "job_type")):
        if names[name] is not None:
            values[f"e{place}"] = names[name]
            conditions.append(f"row[{place}] = $e{place}")
    text = f"""{{
LET $kept = fn::dramaturg::extent();
LET $start = $e0 ?? ($kept[0] - 1);
LET $end = math::min([$start + {SCANNED}, $kept[1]]);
LET $found = (SELECT VALUE [record::id(id), row] FROM (
  SELECT * FROM type::record('dramaturg_outbox', $start>..=$end)
  WHERE {" AND ".join(conditions) or "true"} ORDER BY id LIMIT {max(limit, 0)}));
[$kept, $found]
}}"""
    return Step(text, values)


def page_of(answer: Any) -> tuple[Extent, list[Event]]:
    """What ``page`` answers."""
    kept, found = answer
    return Extent(*kept), [_event([position, *row]) for position, row in found]


def prune(seconds: float, through: int, limit: int) -> Step:
    """Remove the oldest events that are older than ``seconds``; answers how many."""
    text = f"""{{
LET $oldest = fn::dramaturg::extent()[0];
LET $doomed = (SELECT VALUE [record::id(id), row[1]] FROM (
  SELECT * FROM type::record('dramaturg_outbox', $oldest..=$e0) ORDER BY id LIMIT {max(limit, 0)}));
LET $kept = $doomed.filter(|$d| $d[1] >= $now - $e1)[0][0];
LET $gone = IF $kept = NONE THEN array::len($doomed) ELSE $kept - $oldest END;
IF $gone > 0 {{ DELETE type::record('dramaturg_outbox', $oldest..($oldest + $gone)) RETURN NONE }};
$gone
}}"""
    return Step(text, {"e0": through, "e1": micros(seconds)})


def attach(job_id: str, items: Sequence[Item], caps: Caps, fence: Fence | None) -> Step:
    """Attach; answers the numbers."""
    values = {
        "a0": job_id,
        "a1": [item._asdict() for item in items],
        "a2": caps._asdict(),
        "a3": None if fence is None else list(fence),
    }
    return Step("fn::dramaturg::attach($a0, $a1, $a2, $a3, $now)", values)


_COLUMNS: Final = "record::id(id)[0], record::id(id)[1], kind, name, media_type, bytes::len(data), at"


def attachments(job_id: str) -> Step:
    """What is attached, without bytes."""
    text = f"""(SELECT VALUE [{_COLUMNS}] FROM (
  SELECT * FROM dramaturg_attachment:[$a0, 0]..=[$a0, 9223372036854775807] ORDER BY id))"""
    return Step(text, {"a0": job_id})


def attachment(job_id: str, number: int) -> Step:
    """One attachment with its bytes, or nothing."""
    text = f"(SELECT VALUE [{_COLUMNS}, data] FROM ONLY type::record('dramaturg_attachment', [$a0, $a1]))"
    return Step(text, {"a0": job_id, "a1": number})


def attachment_of(row: Sequence[Any]) -> Attachment:
    """The attachment in a row."""
    return Attachment._make((*row[:6], clock.from_micros(row[6])))


def _event(row: Sequence[Any]) -> Event:
    event = Event._make(row)
    return event._replace(
        at=clock.from_micros(row[2]),
        run_at=clock.from_micros(row[13]),
        seconds=None if event.seconds is None else event.seconds / 1_000_000,
    )
