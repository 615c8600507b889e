"""One action on one job by its id, or on all that match filters: how it is asked for, done and told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import click

from ops.cli import output
from ops.cli.session import opened
from store.archive import Archiving
from store.contract import Store
from store.errors import NotFound, Refused, UsageError
from store.filters import Filter
from store.identity import check_id
from store.operations import Action, Settled, apply
from store.transitions import Answer

#: Groups that are shown at most.
TOP_MOST = 100


class Deed(NamedTuple):
    """An action and its words."""

    name: str  # the command's
    action: Action
    done: str  # "cancelled"
    would: str  # "would be cancelled"
    unchanged: str  # of the others: "had ended already"
    refused: Callable[[str], str]  # why not, of a job in that state
    one: Callable[[str | None, bool, bool], str] | None = None  # of one job: its state then, changed, dry run


def act(
    deed: Deed,
    id_: str | None,
    filter: Filter,
    *,
    dry_run: bool,
    as_json: bool,
    archive: Archiving | None = None,
    top: int | None = None,
) -> None:
    """Do it, and tell. ``top``: so many of the largest groups of what is changed. Raises UsageError where neither an id
    nor a filter is named, or both."""
    if id_ is None and not filter.narrows():
        raise UsageError(
            f"{deed.name} what? Name an id, or at least one of the filters: see dramaturg {deed.name} --help"
        )
    if id_ is not None and filter.narrows():
        raise UsageError(f"{deed.name} takes an id or filters, not both")
    with opened() as store:
        if id_ is not None:
            _one(store, deed, check_id(id_), dry_run, as_json, archive)
        else:
            _many(store, deed, filter, dry_run, as_json, archive, top)


def _one(store: Store, deed: Deed, id_: str, dry_run: bool, as_json: bool, archive: Archiving | None) -> None:
    told: list[Settled] = []
    apply(store, Filter(ids=(id_,)), deed.action, dry_run=dry_run, archive=archive, told=told.append)
    if not told:
        raise NotFound(f"there is no job {id_}: see `dramaturg list`")
    decision = told[0].decision
    if decision is None:
        raise Refused(f"job {id_} is locked or keeps changing, and nothing was done: try again")
    if decision.answer is Answer.GONE:
        raise NotFound(f"there is no job {id_} any more: it was deleted just now")
    if decision.answer is Answer.STALE:
        raise Refused(f"job {id_} was woken just now, and nothing was done: look at it again")
    if decision.answer is Answer.REFUSED:
        raise Refused(f"job {id_} is {decision.state}: {deed.refused(decision.state or '')}")
    affected = decision.answer is Answer.APPLIED
    if as_json:
        output.emit({"affected": int(affected), "dry_run": dry_run, "id": id_, "state": decision.state})
        return
    plain = deed.would if dry_run else deed.done
    output.console().print(f"{id_} {plain if deed.one is None else deed.one(decision.state, affected, dry_run)}")


def _many(
    store: Store,
    deed: Deed,
    filter: Filter,
    dry_run: bool,
    as_json: bool,
    archive: Archiving | None,
    top: int | None,
) -> None:
    groups = Groups()
    applied = apply(store, filter, deed.action, dry_run=dry_run, archive=archive, told=groups.count)
    if as_json:
        largest = {} if top is None else {"groups": groups.documents(top)}
        output.emit(applied._asdict() | {"dry_run": dry_run} | largest)
    else:
        rest = f"; {applied.unchanged} more {deed.unchanged}" if applied.unchanged else ""
        output.console().print(f"{counted(applied.affected)} {deed.would if dry_run else deed.done}{rest}")
        if top and applied.affected:
            groups.show(top)
    tell_unsettled(applied.unsettled)


def tell_unsettled(unsettled: int) -> None:
    """Rows that others held are no success."""
    if unsettled:
        output.complain(f"{counted(unsettled)} locked or kept changing: run the same again")
        raise click.exceptions.Exit(1)


class Groups:
    """Counts of changed jobs by domain, queue, type and the state that they were in."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str, str, str]] = Counter()

    def count(self, settled: Settled) -> None:
        """One more, if it was changed."""
        job = settled.job
        if settled.answer is Answer.APPLIED and job is not None:
            self._counts[job.domain, job.queue, job.job_type, job.state] += 1

    def largest(self, top: int) -> list[tuple[tuple[str, str, str, str], int]]:
        """The largest first; equal ones by their names."""
        return sorted(self._counts.items(), key=lambda group: (-group[1], group[0]))[:top]

    def documents(self, top: int) -> list[dict[str, object]]:
        """The same for scripts."""
        names = ("domain", "queue", "job_type", "state")
        return [dict(zip(names, group, strict=True)) | {"count": count} for group, count in self.largest(top)]

    def show(self, top: int) -> None:
        """The same for people."""
        rows = [[output.cell(value) for value in (*group, count)] for group, count in self.largest(top)]
        output.console().print(output.table(("domain", "queue", "type", "state", "jobs"), rows, right=("jobs",)))


def counted(number: int) -> str:
    """``1 job`` or ``7 jobs``."""
    return "1 job" if number == 1 else f"{number} jobs"
