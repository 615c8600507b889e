"""What a person sees: the live view, and lines where there is no terminal."""

from __future__ import annotations

import io
import os
from datetime import timedelta

import pytest
from rich.console import Console

from actors.proposals.model import Compared, Proposal, Registration, State, Trouble
from ops.up.screen import Lines, View
from ops.up.seen import Seen, comparison, news
from ops.up.view import render
from store.job import Recorded
from tests.contract.rows import NOW, later, row

HOSTILE = "\x1b[31m\u202e[bold]x[/bold]"


def proposal(head: str = "feature", **compared: int | None) -> Proposal:
    found = None
    if compared:
        figures = {"ahead": 0, "behind": 0, "files_changed": 0, "conflicts": 0} | compared
        found = Compared("b" * 40, "h" * 40, "m" * 40, **figures, at=NOW)  # type: ignore[arg-type]
    return Proposal(
        id="0190f3c2-7d1e-7a6b-9c3d-2f4e5a6b7c8d",
        repository=Registration("r", "default", "repository", "/path", "i" * 32, None),
        title="title",
        base="main",
        head=head,
        state=State.OPEN,
        version=1,
        revision=1,
        compared=found,
        trouble=None,
        merging=None,
        merge_commit=None,
        created_at=NOW,
        updated_at=NOW,
    )


def seen(*proposals: Proposal, jobs: list[object] | None = None, history: list[object] | None = None) -> Seen:
    return Seen(NOW, list(proposals), jobs or [], history or [])  # type: ignore[arg-type]


def line(kind: str = "attempt_failed", attempt: int = 1, seconds: float = 0) -> Recorded:
    return Recorded(row().id, later(seconds), kind, attempt, "worker_lost", {"state": "queued"})


def drawn(what: Seen, said: list[str]) -> str:
    out = io.StringIO()
    Console(file=out, width=200, force_terminal=False).print(render("headline", what, said))
    return out.getvalue()


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (proposal(), "not compared yet"),
        (proposal()._replace(trouble=Trouble("E", "branch_missing", NOW)), "not compared: branch_missing"),
        (proposal(ahead=1, files_changed=1), "1 ahead, 0 behind, 1 file changed, no conflict"),
        (proposal(behind=2, conflicts=3), "0 ahead, 2 behind, 0 files changed, 3 conflicts"),
        (proposal(ahead=1, conflicts=None), "1 ahead, 0 behind, 0 files changed, conflicts unknown"),
    ],
)
def test_a_comparison_in_words(found: Proposal, words: str) -> None:
    assert comparison(found) == words


def test_the_view_shows_proposals_jobs_history_and_what_happened() -> None:
    job = row(run_at=NOW + timedelta(seconds=20), attempt=3)
    text = drawn(seen(proposal(ahead=7), jobs=[job], history=[(job, line())]), ["worker-1 was started again"])
    for word in ("headline", "feature", "7", "scheduled", "in 20 s", "worker_lost", "worker-1 was started again"):
        assert word in text


def test_nothing_in_the_view_drives_the_terminal_or_is_read_as_markup() -> None:
    job = row(key="k")._replace(key=HOSTILE, job_type=HOSTILE)
    text = drawn(seen(proposal(HOSTILE), jobs=[job], history=[(job, line(HOSTILE))]), [HOSTILE])
    assert all(one.isprintable() for one in text.splitlines())
    assert "[bold]x[/bold]" in text


def test_lines_tell_what_is_new_and_nothing_twice() -> None:
    job = row()
    first = seen(proposal(ahead=1), jobs=[job], history=[(job, line())])
    assert len(news(None, first)) == 2
    assert news(first, first) == []
    moved = seen(proposal(ahead=2), jobs=[job], history=[(job, line()), (job, line("recovered", 2, 5))])
    assert [one.split()[0] for one in news(first, moved)] == ["proposal", "history"]
    ended = seen(proposal(ahead=2), jobs=[row("completed")])
    assert news(moved, ended) == [f"job {job.job_type} {job.key}: completed"]


def test_a_reader_who_has_gone_is_noticed_and_is_no_error(capfd: pytest.CaptureFixture[str]) -> None:
    kept = os.dup(1)
    reader, writer = os.pipe()
    os.close(reader)
    try:
        with os.fdopen(writer, "w") as gone:
            lines = Lines(gone)
            lines.say("hello")
            assert lines.lost
            lines.say("again")
            os.dup2(os.open(os.devnull, os.O_WRONLY), gone.fileno())
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def test_the_live_view_keeps_the_newest_of_what_happened() -> None:
    out = io.StringIO()
    view = View(Console(file=out, width=120, height=40, force_terminal=True), "headline")
    for number in range(20):
        view.say(f"event {number}.")
    view.show(seen(proposal(ahead=1)))
    view.close()
    last = out.getvalue().split("headline")[-1]
    assert "event 19." in last
    assert "event 2." not in last
    assert not view.lost


def test_what_is_to_be_copied_is_never_broken() -> None:
    lines = [f"export JOBS_HOME=/{'x' * 300}", "dramaturg list"]
    plain, live = io.StringIO(), io.StringIO()
    Lines(plain).hint("in another terminal:", lines)
    view = View(Console(file=live, width=80, height=40, force_terminal=True), "headline")
    view.hint("in another terminal:", lines)
    view.close()
    for out in (plain, live):
        shown = out.getvalue().splitlines()  # a terminal's are led by what clears the line
        assert all(any(one.endswith(line) for one in shown) for line in lines)
