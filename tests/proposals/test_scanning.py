"""The scan at start-up: every repository with tracked proposals has its job, and nobody else is disturbed."""

from __future__ import annotations

from pathlib import Path

from actors.proposals.job import scan_repositories
from actors.proposals.model import Registration, State
from store.contract import Store
from store.events import Cancel, Kind
from store.filters import Filter
from store.operations import apply
from tests.proposals.desk import NAME, Desk
from tests.proposals.repositories import Workshop


def scan(desk: Desk, *, page: int = 200) -> list[dict[str, int]]:
    """A whole scan, as a worker's boot asks for it; what each run counted."""
    desk.store.wake([scan_repositories.request()])
    counted = []
    while True:
        ran = desk.scan(page=page)
        counted.append(dict(ran.finish.counts))
        if ran.finish.kind is Kind.DONE:
            return counted


def lose_jobs(desk: Desk) -> None:
    """As a queue that was installed later, or restored from an older copy, has none."""
    desk.execute("DELETE FROM {our}job")


def other_repositories(desk: Desk, folder: Path, count: int) -> list[Registration]:
    found = []
    for number in range(count):
        workshop = Workshop(folder / f"other-{number}.git")
        workshop.branch("feature", workshop.commit("main", {"a": str(number)}))
        found.append(desk.proposals.open(f"other-{number}", "main", "feature", "t", path=workshop.path).repository)
    return found


def test_a_job_that_is_missing_is_made(desk: Desk) -> None:
    proposal = desk.open()
    lose_jobs(desk)
    assert scan(desk) == [{"woken": 1}]
    desk.track(proposal.repository)
    assert desk.now(proposal).compared is not None


def test_a_job_that_ended_by_mistake_is_woken(desk: Desk) -> None:
    proposal = desk.open()
    desk.proposals.close(proposal.id)
    assert desk.track(proposal.repository).left.state == "completed"
    # A copy of the proposals that is newer than the jobs' shows this.
    desk.execute("UPDATE {our}proposal SET state = 'open'")
    assert scan(desk) == [{"woken": 1}]
    assert desk.there(proposal.repository).state == "queued"


def test_a_job_that_is_there_is_not_touched(desk: Desk, store: Store) -> None:
    proposal = desk.open()
    desk.track(proposal.repository)
    before = desk.there(proposal.repository)
    assert scan(desk) == [{}]
    assert desk.there(proposal.repository) == before
    apply(store, Filter(ids=(before.id,)), Cancel())
    assert scan(desk) == [{}]
    assert desk.there(proposal.repository).state == "cancelled"  # an operator's word stands until the next change
    desk.proposals.update(proposal.id, title="changed")
    assert desk.there(proposal.repository).state == "queued"


def test_repositories_without_tracked_proposals_get_no_job(desk: Desk) -> None:
    proposal = desk.open()
    desk.proposals.close(proposal.id)
    lose_jobs(desk)
    assert scan(desk) == [{}]
    assert desk.job(proposal.repository) is None


def test_a_repository_that_ended_gets_its_job_back_to_retire_what_it_tracked(desk: Desk) -> None:
    old = desk.open()
    desk.make_anew()
    desk.register()
    lose_jobs(desk)
    assert scan(desk) == [{"woken": 1}]
    assert desk.track(old.repository).left.state == "completed"
    assert desk.now(old).state is State.ARCHIVED


def test_the_scan_goes_page_by_page_and_sees_every_repository_once(desk: Desk, tmp_path: Path) -> None:
    repositories = other_repositories(desk, tmp_path, 5)
    lose_jobs(desk)
    assert scan(desk, page=2) == [{"woken": 2}, {"woken": 2}, {"woken": 1}]
    assert all(desk.job(repository) for repository in repositories)


def test_a_worker_that_boots_in_mid_scan_is_served_by_one_more_scan(desk: Desk, tmp_path: Path) -> None:
    first, *_, last = other_repositories(desk, tmp_path, 3)
    desk.store.wake([scan_repositories.request()])
    desk.scan(page=2)
    lost = desk.there(first).id
    desk.delete_job(lost)
    desk.store.wake([scan_repositories.request()])
    while desk.scan(page=2).finish.kind is not Kind.DONE:
        pass
    assert desk.job(first) is not None
    assert desk.job(last) is not None


def test_the_scan_opens_no_repository(desk: Desk, tmp_path: Path) -> None:
    proposal = desk.open()
    lose_jobs(desk)
    desk.workshop.path.rename(tmp_path / "unmounted.git")
    assert scan(desk) == [{"woken": 1}]
    assert desk.job(proposal.repository) is not None


def test_a_scan_leaves_nothing_behind(desk: Desk) -> None:
    desk.register(NAME)
    scan(desk)
    assert desk.store.find(Filter(job_type="proposal.scan")) == []
