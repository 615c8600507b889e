"""Reading and writing our tables inside a transaction of the store. It decides nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from actors.proposals import statements
from actors.proposals.git import Comparison
from actors.proposals.model import (
    Change,
    Compared,
    Ended,
    FeedEvent,
    Merging,
    Proposal,
    Reference,
    Registration,
    Snapshot,
    State,
    Trouble,
)
from actors.proposals.statements import Dialect
from store.contract import Tx
from store.errors import Refused
from store.events import Failure
from store.identity import new_id

#: Before every id.
FIRST = "00000000-0000-0000-0000-000000000000"

Row = tuple[Any, ...]
T = TypeVar("T")


class Book:
    """The tables as one dialect has them. Every method runs in the transaction that it is given."""

    def __init__(self, dialect: str) -> None:
        self._dialect: Dialect = statements.dialect_of(dialect)

    # --- repositories

    def registration(self, tx: Tx, domain: str, name: str, incarnation: str) -> Registration | None:
        """One incarnation of a repository, ended or not."""
        where = {"domain": domain, "name": name, "incarnation": incarnation}
        return _first(self._registrations(tx, statements.REGISTRATION, where))

    def registration_of(self, tx: Tx, domain: str, name: str) -> Registration | None:
        """The repository of a name; where none stands, the one that was replaced last."""
        return _first(self._registrations(tx, statements.REGISTRATION_OF_NAME, {"domain": domain, "name": name}))

    def registration_at(self, tx: Tx, domain: str, path: str) -> Registration | None:
        """The standing registration of a path."""
        return _first(self._registrations(tx, statements.REGISTRATION_AT_PATH, {"domain": domain, "path": path}))

    def register(self, tx: Tx, domain: str, name: str, path: str, incarnation: str) -> list[Registration]:
        """Make an incarnation the one of its name; answers it, then those that it took the name from."""
        known = self.registration(tx, domain, name, incarnation)
        if known is not None and known.ended is None and known.path == path:
            return [known]
        values = {"id": new_id(), "domain": domain, "name": name, "path": path, "incarnation": incarnation}
        named = {"domain": domain, "name": name, "incarnation": incarnation}
        replaced = self._registrations(tx, statements.REPLACE_OTHERS, named)
        return self._registrations(tx, statements.REGISTER, values) + replaced

    def end(self, tx: Tx, registration: Registration, why: Ended) -> Registration:
        """A registration is no longer the one of its name; one that has ended stays as it is."""
        ended = self._registrations(tx, statements.END_REGISTRATION, {"id": registration.id, "ended": why.value})
        return _first(ended) or registration._replace(ended=registration.ended or why)

    def with_work(self, tx: Tx, after: str, limit: int) -> list[tuple[Registration, bool]]:
        """A page of all registrations by id, each with whether it has tracked proposals."""
        rows = self._run(tx, statements.REGISTRATIONS_WITH_WORK, {"after": after, "limit": limit})
        return [(_registration(row[:6]), bool(row[6])) for row in rows]

    # --- proposals

    def proposal(self, tx: Tx, proposal_id: str, *, to_change: bool = False) -> Proposal | None:
        """One proposal; ``to_change`` keeps its row for this transaction."""
        statement = statements.PROPOSAL_TO_CHANGE if to_change else statements.PROPOSAL
        return _first(self._proposals(tx, statement, {"id": proposal_id}))

    def proposals(
        self, tx: Tx, *, domain: str | None, name: str | None, state: State | None, after: str, limit: int
    ) -> list[Proposal]:
        """A page of proposals by id."""
        where = {"domain": domain, "name": name, "state": state and state.value, "after": after, "limit": limit}
        return self._proposals(tx, statements.PROPOSALS if name is None else statements.PROPOSALS_OF_NAME, where)

    def left_over(self, tx: Tx, registration: Registration, limit: int) -> list[Proposal]:
        """Tracked proposals of one registration, kept for this transaction."""
        return self._proposals(tx, statements.LEFT_OVER, {"repository_id": registration.id, "limit": limit})

    def references(self, tx: Tx, registration: Registration, after: str, limit: int) -> list[Reference]:
        """A page of what a pass reads of the tracked proposals."""
        where = {"repository_id": registration.id, "after": after, "limit": limit}
        return [Reference._make((str(row[0]), *row[1:])) for row in self._run(tx, statements.REFERENCES, where)]

    def insert(
        self, tx: Tx, registration: Registration, title: str, base: str, head: str, state: State, commits: Row
    ) -> str:
        """A new proposal with its first snapshot and event; answers its id. ``commits``: of base and head."""
        values = {"id": new_id(), "title": title, "base": base, "head": head, "state": state.value}
        self._run(tx, statements.INSERT, values | {"repository_id": registration.id})
        self._note(tx, values, 1, Change.OPENED, None, commits)
        return values["id"]

    def change(
        self, tx: Tx, proposal: Proposal, change: Change, *, code: str | None = None, commits: Row | None = None
    ) -> None:
        """Write what became of a proposal that this transaction keeps, with its snapshot and event.

        ``proposal`` carries the new values and the revision that was read. ``commits`` of base and head, where newer
        ones are known than those that were compared. Raises Refused where the row was not kept.
        """
        values = {"id": proposal.id, "title": proposal.title, "base": proposal.base, "head": proposal.head}
        values["state"] = proposal.state.value
        merging, compared = proposal.merging, proposal.compared
        written = self._run(
            tx,
            statements.CHANGE,
            values
            | {
                "merge_commit": proposal.merge_commit,
                "merging_base": merging and merging.base_commit,
                "merging_head": merging and merging.head_commit,
                "revision": proposal.revision,
            },
        )
        if not written:
            raise Refused(f"proposal {proposal.id} was changed by somebody else meanwhile: look at it, and try again")
        if commits is None:
            commits = (None, None) if compared is None else (compared.base_commit, compared.head_commit)
        self._note(tx, values, written[0][0], change, code, commits)

    def snapshots(self, tx: Tx, proposal_id: str, after: int, limit: int) -> list[Snapshot]:
        """Versions of a proposal beyond ``after``."""
        rows = self._run(tx, statements.SNAPSHOTS, {"id": proposal_id, "after": after, "limit": limit})
        return [Snapshot._make((*row[:4], State(row[4]), *row[5:7], self._dialect.moment(row[7]))) for row in rows]

    def feed(self, tx: Tx, proposal_id: str, after: int, limit: int) -> list[FeedEvent]:
        """Events of a proposal beyond version ``after``."""
        rows = self._run(tx, statements.FEED, {"id": proposal_id, "after": after, "limit": limit})
        return [FeedEvent(row[0], Change(row[1]), row[2], self._dialect.moment(row[3])) for row in rows]

    # --- what the tracking job finds out: compare-and-set

    def set_compared(self, tx: Tx, reference: Reference, commits: tuple[str, str], found: Comparison) -> bool:
        """Write a comparison unless the proposal was written since it was read; it clears what had failed."""
        values = {
            "id": reference.id,
            "revision": reference.revision,
            "base_commit": commits[0],
            "head_commit": commits[1],
            "merge_base": found.merge_base,
            "ahead": found.ahead,
            "behind": found.behind,
            "files_changed": found.files_changed,
            "conflicts": found.conflicts,
        }
        return bool(self._run(tx, statements.SET_COMPARED, values))

    def set_trouble(self, tx: Tx, reference: Reference, failure: Failure) -> bool:
        """Write a failure by class and code unless the proposal was written since it was read."""
        values = {"id": reference.id, "revision": reference.revision, "kind": failure.kind, "code": failure.code}
        return bool(self._run(tx, statements.SET_TROUBLE, values))

    # --- rows and values

    def _run(self, tx: Tx, statement: str, values: dict[str, Any]) -> list[Row]:
        return tx.execute(statements.spelled(self._dialect, statement), values)

    def _registrations(self, tx: Tx, statement: str, values: dict[str, Any]) -> list[Registration]:
        return [_registration(row) for row in self._run(tx, statement, values)]

    def _proposals(self, tx: Tx, statement: str, values: dict[str, Any]) -> list[Proposal]:
        return [self._proposal(row) for row in self._run(tx, statement, values)]

    def _note(
        self, tx: Tx, values: dict[str, Any], version: int, change: Change, code: str | None, commits: Row
    ) -> None:
        both = {"base_commit": commits[0], "head_commit": commits[1]}
        self._run(tx, statements.ADD_SNAPSHOT, values | both | {"version": version})
        event = {"id": values["id"], "version": version, "kind": change.value, "code": code}
        self._run(tx, statements.ADD_EVENT, event)

    def _proposal(self, row: Row) -> Proposal:
        moment = self._dialect.moment
        compared, trouble, merging = row[7:15], row[15:18], row[18:21]
        return Proposal(
            id=str(row[0]),
            repository=_registration(row[24:]),
            title=row[1],
            base=row[2],
            head=row[3],
            state=State(row[4]),
            version=row[5],
            revision=row[6],
            compared=None if compared[-1] is None else Compared._make((*compared[:-1], moment(compared[-1]))),
            trouble=None if trouble[-1] is None else Trouble._make((*trouble[:-1], moment(trouble[-1]))),
            merging=None if merging[-1] is None else Merging._make((*merging[:-1], moment(merging[-1]))),
            merge_commit=row[21],
            created_at=moment(row[22]),
            updated_at=moment(row[23]),
        )


def _registration(row: Row) -> Registration:
    return Registration._make((str(row[0]), *row[1:5], None if row[5] is None else Ended(row[5])))


def _first(found: Sequence[T]) -> T | None:
    return found[0] if found else None
