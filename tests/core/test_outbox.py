"""What a change of a row is called, how long things took, and pages."""

from __future__ import annotations

import pytest

from store import attachments
from store.clock import PARKED
from store.errors import CursorTooOld, Refused, UsageError
from store.events import Cancel, Claim, Finish, GiveBack, Kind, Reclaim, Release, Requeue, Reschedule
from store.job import Job
from store.outbox import SCANNED, Extent, Limits, Name, Page, events_of, page_of
from store.policy import Policy
from store.transitions import after
from tests.contract.rows import LEASE, NOW, OTHER_LEASE, TYPE, finish, later, row, wake

RUNNING = row("processing")
LAPSED = RUNNING._replace(leased_until=later(-1))


@pytest.mark.parametrize(
    ("before", "event", "name"),
    [
        (None, wake(), "job.created"),
        (row(), wake(), "job.woken"),
        (row(), wake(run_at=later(500)), "job.woken"),
        (RUNNING, wake(), "job.woken"),
        (row("quarantined"), wake(), "job.woken"),
        (row("completed"), wake(), "job.requeued"),
        (row("cancelled"), wake(), "job.requeued"),
        (row("failed"), Requeue(), "job.requeued"),
        (row("quarantined"), Requeue(), "job.requeued"),
        (row(), Reschedule(delay=60), "job.rescheduled"),
        (row(), Reschedule(run_at=PARKED), "job.rescheduled"),
        (row(run_at=PARKED), Reschedule(delay=0), "job.woken"),
        (row(), Claim(row().id, OTHER_LEASE, "worker", 60), "job.claimed"),
        (RUNNING, finish(RUNNING), "job.completed"),
        (RUNNING, finish(RUNNING, Kind.AGAIN, delay=5), "job.rescheduled"),
        (RUNNING, finish(RUNNING, Kind.PARK), "job.parked"),
        (RUNNING, finish(RUNNING, Kind.RETRY), "job.retry_scheduled"),
        (RUNNING, finish(RUNNING, Kind.FAIL), "job.failed"),
        (RUNNING._replace(max_retries=0), finish(RUNNING, Kind.RETRY), "job.failed"),
        (RUNNING._replace(failure_code="broken", failure_streak=2), finish(RUNNING, Kind.RETRY), "job.quarantined"),
        (RUNNING._replace(cancel_requested_at=NOW), finish(RUNNING, Kind.RETRY), "job.cancelled"),
        (RUNNING, Release(LEASE, 2), "job.released"),
        (RUNNING, GiveBack(LEASE, 2, 5.0, "type_unknown"), "job.released"),
        (LAPSED, Reclaim(LEASE), "job.retry_scheduled"),
        (LAPSED._replace(stopping=True), Reclaim(LEASE), "job.released"),
        (RUNNING, Cancel(), "job.cancel_requested"),
        (row(), Cancel(), "job.cancelled"),
    ],
)
def test_each_step_has_one_name(before: Job | None, event: object, name: str) -> None:
    policy = Policy(TYPE, quarantine_after=3)
    changed = after(before, event, NOW, policy)  # type: ignore[arg-type]
    assert [each.name for each in events_of(before, changed)] == [name]


def test_what_tells_nobody_anything_is_no_event() -> None:
    assert events_of(row(), row(owner="me")) == []
    assert events_of(RUNNING, RUNNING._replace(leased_until=later(500), stopping=True, revision=8)) == []
    assert events_of(None, None) == []


def test_a_run_that_deletes_its_row_was_completed_and_the_row_is_gone() -> None:
    found = events_of(RUNNING, None, Limits(duration=4), at=NOW)
    assert [(each.name, each.state, each.seconds) for each in found] == [
        ("job.completed", "completed", 5.0), ("job.sla_breached", "completed", 5.0), ("job.deleted", "completed", None),
    ]  # fmt: skip
    assert [each.name for each in events_of(row("failed"), None)] == ["job.deleted"]


def test_a_limit_is_breached_beyond_it_and_not_at_it() -> None:
    claimed = after(row(), Claim(row().id, OTHER_LEASE, "worker", 60), NOW, Policy(TYPE))
    assert claimed is not None
    assert len(events_of(row(), claimed, Limits(queue_latency=60))) == 1
    [_, breach] = events_of(row(), claimed, Limits(queue_latency=59.999))
    assert (breach.name, breach.code, breach.seconds, breach.allowed) == (
        "job.sla_breached",
        "queue_latency",
        60,
        59.999,
    )
    ended: Finish = finish(RUNNING)
    assert len(events_of(RUNNING, after(RUNNING, ended, NOW, Policy(TYPE)), Limits(duration=5))) == 1
    assert len(events_of(RUNNING, after(RUNNING, ended, NOW, Policy(TYPE)), Limits(duration=4.9))) == 2


def test_the_names_are_stable() -> None:
    assert sorted(Name) == [
        "job.cancel_requested", "job.cancelled", "job.claimed", "job.completed", "job.created", "job.deleted",
        "job.failed", "job.parked", "job.quarantined", "job.released", "job.requeued", "job.rescheduled",
        "job.retry_scheduled", "job.sla_breached", "job.woken",
    ]  # fmt: skip


def test_a_page_says_where_to_go_on_and_refuses_what_it_can_not_know() -> None:
    events = [each._replace(position=8) for each in events_of(None, row())]
    assert page_of(5, 1, Extent(3, 20), events) == Page(events, 8)
    assert page_of(5, 2, Extent(3, 20), events).cursor == 20
    assert page_of(5, 2, Extent(3, 10**6), events).cursor == 5 + SCANNED
    assert page_of(2, 2, Extent(3, 2), []).cursor == 2
    with pytest.raises(CursorTooOld):
        page_of(1, 2, Extent(3, 20), [])
    with pytest.raises(Refused):
        page_of(21, 2, Extent(3, 20), [])


@pytest.mark.parametrize(
    "make",
    [
        lambda: attachments.file("", b"x"),
        lambda: attachments.file("a\nb", b"x"),
        lambda: attachments.file("a" * 256, b"x"),
        lambda: attachments.file("a", b"x", "text/\x1b"),
        lambda: attachments.file("a", b"x" * (attachments.FILE_BYTES + 1)),
        lambda: attachments.file("a", 7),  # type: ignore[arg-type]
        lambda: attachments.file("a", "\ud800"),
        lambda: attachments.log_line(""),
        lambda: attachments.log_line("ä" * 2049),
    ],
)
def test_what_can_not_be_attached_is_refused(make: object) -> None:
    with pytest.raises(UsageError):
        make()  # type: ignore[operator]
