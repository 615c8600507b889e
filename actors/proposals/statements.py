"""The statements on our own tables, written once, and how the two dialects of SQL spell them (``surql.py`` says the
same in SurrealQL).

In a statement ``{our}`` stands before the name of a table, ``{now}`` is the database's clock, ``{lock}`` keeps the row
of ``p`` for this transaction (a write transaction of SQLite keeps all), and ``:name`` is a parameter. ``{tracked}``
holds SQLite to the index of tracked proposals: without statistics it takes the one of all proposals of a repository,
and reads every closed one on the way. The condition on the state must then be the index's own, word for word.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from store import clock
from store.errors import UsageError
from store.migrations import Subject

#: Our tables, for ``Store.migrate``.
SUBJECT = Subject("proposals", Path(__file__).parent / "schema")


class Dialect(NamedTuple):
    """How one kind of store wants it."""

    our: str
    now: str
    lock: str
    tracked: str
    parameter: str
    moment: Callable[[Any], datetime]  # what a column of time holds -> aware, in UTC
    own: bool = False  # it has words of its own for every statement


_DIALECTS = {
    # unixepoch('subsec') is younger than the SQLite that stable systems carry.
    "sqlite": Dialect(
        our="dramaturg_",
        now="(CAST(strftime('%s', 'now') AS INTEGER) * 1000000"
        " + CAST(substr(strftime('%f', 'now'), 4, 3) AS INTEGER) * 1000)",
        lock="",
        tracked="INDEXED BY dramaturg_proposal_tracked",
        parameter=r":\1",
        moment=clock.from_micros,
    ),
    "postgres": Dialect(
        our="dramaturg.",
        now="now()",
        lock="FOR UPDATE OF p",
        tracked="",
        parameter=r"%(\1)s",
        moment=lambda value: value.astimezone(UTC),
    ),
    "surreal": Dialect(
        our="dramaturg_", now="$now", lock="", tracked="", parameter=r"$\1", moment=clock.from_micros, own=True
    ),
}


def dialect_of(name: str) -> Dialect:
    """The dialect of a store. Raises UsageError where proposals have no tables for it."""
    if name not in _DIALECTS:
        raise UsageError(f"proposals can't be kept in a {name} store: use one of {', '.join(_DIALECTS)}")
    return _DIALECTS[name]


@cache
def spelled(dialect: Dialect, statement: str) -> str:
    """``statement`` as this dialect spells it."""
    if dialect.own:
        from actors.proposals.surql import SURQL  # made of the statements below

        if statement in SURQL:
            return SURQL[statement]
    text = re.sub(r"(?<!:):([a-z_]+)", dialect.parameter, statement)
    return text.format(our=dialect.our, now=dialect.now, lock=dialect.lock, tracked=dialect.tracked)


# --- repositories -----------------------------------------------------------------------------------------------------

_REGISTRATION = "r.id, r.domain, r.name, r.path, r.incarnation, r.ended"

REGISTRATION = f"""
SELECT {_REGISTRATION} FROM {{our}}repository r
WHERE r.domain = :domain AND r.name = :name AND r.incarnation = :incarnation"""

#: The repository of a name: the standing registration, else the one that was replaced last and not removed.
REGISTRATION_OF_NAME = f"""
SELECT {_REGISTRATION} FROM {{our}}repository r
WHERE r.domain = :domain AND r.name = :name AND (r.ended IS NULL OR r.ended = 'replaced')
ORDER BY CASE WHEN r.ended IS NULL THEN 0 ELSE 1 END, r.ended_at DESC, r.id DESC LIMIT 1"""

REGISTRATION_AT_PATH = f"""
SELECT {_REGISTRATION} FROM {{our}}repository r
WHERE r.domain = :domain AND r.path = :path AND r.ended IS NULL ORDER BY r.id LIMIT 1"""

REPLACE_OTHERS = """
UPDATE {our}repository SET ended = 'replaced', ended_at = {now}
WHERE domain = :domain AND name = :name AND incarnation <> :incarnation AND ended IS NULL
RETURNING id, domain, name, path, incarnation, ended"""

REGISTER = """
INSERT INTO {our}repository (id, domain, name, path, incarnation, registered_at)
VALUES (:id, :domain, :name, :path, :incarnation, {now})
ON CONFLICT (domain, name, incarnation) DO UPDATE SET path = excluded.path, ended = NULL, ended_at = NULL
RETURNING id, domain, name, path, incarnation, ended"""

END_REGISTRATION = """
UPDATE {our}repository SET ended = :ended, ended_at = {now} WHERE id = :id AND ended IS NULL
RETURNING id, domain, name, path, incarnation, ended"""

#: A page of the scan at start-up; ended ones too, since their jobs have to retire them.
REGISTRATIONS_WITH_WORK = f"""
SELECT {_REGISTRATION}, EXISTS (
  SELECT 1 FROM {{our}}proposal p {{tracked}} WHERE p.repository_id = r.id AND p.state IN ('draft', 'open'))
FROM {{our}}repository r WHERE r.id > :after ORDER BY r.id LIMIT :limit"""

# --- proposals --------------------------------------------------------------------------------------------------------

_PROPOSAL = f"""
SELECT p.id, p.title, p.base, p.head, p.state, p.version, p.revision,
  p.base_commit, p.head_commit, p.merge_base, p.ahead, p.behind, p.files_changed, p.conflicts, p.compared_at,
  p.trouble_kind, p.trouble_code, p.trouble_at, p.merging_base, p.merging_head, p.merging_since, p.merge_commit,
  p.created_at, p.updated_at, {_REGISTRATION}
FROM {{our}}proposal p JOIN {{our}}repository r ON r.id = p.repository_id"""

PROPOSAL = f"{_PROPOSAL} WHERE p.id = :id"

PROPOSAL_TO_CHANGE = f"{_PROPOSAL} WHERE p.id = :id {{lock}}"

_MATCHES = """p.id > :after AND (CAST(:domain AS text) IS NULL OR r.domain = :domain)
  AND (CAST(:state AS text) IS NULL OR p.state = :state) ORDER BY p.id LIMIT :limit"""

PROPOSALS = f"{_PROPOSAL} WHERE {_MATCHES}"

#: A statement of its own, so that it walks the few registrations of the name and not all proposals.
PROPOSALS_OF_NAME = f"""{_PROPOSAL}
WHERE p.repository_id IN (SELECT named.id FROM {{our}}repository named WHERE named.name = :name) AND {_MATCHES}"""

#: What is still tracked of a registration that has ended.
LEFT_OVER = f"""{_PROPOSAL}
WHERE p.repository_id = :repository_id AND p.state IN ('draft', 'open') ORDER BY p.id LIMIT :limit {{lock}}"""

#: A page of a pass.
REFERENCES = """
SELECT p.id, p.base, p.head, p.revision, p.base_commit, p.head_commit, p.trouble_kind, p.trouble_code
FROM {our}proposal p {tracked}
WHERE p.repository_id = :repository_id AND p.state IN ('draft', 'open') AND p.id > :after
ORDER BY p.id LIMIT :limit"""

INSERT = """
INSERT INTO {our}proposal (id, repository_id, title, base, head, state, version, revision, created_at, updated_at)
VALUES (:id, :repository_id, :title, :base, :head, :state, 1, 1, {now}, {now})"""

#: What a person changes; the commits of a merge under way are set by the change that begins it and go with it.
CHANGE = """
UPDATE {our}proposal SET title = :title, base = :base, head = :head, state = :state, merge_commit = :merge_commit,
  merging_base = :merging_base, merging_head = :merging_head,
  merging_since = CASE WHEN CAST(:state AS text) = 'merging' THEN {now} END,
  version = version + 1, revision = revision + 1, updated_at = {now}
WHERE id = :id AND revision = :revision RETURNING version"""

ADD_SNAPSHOT = """
INSERT INTO {our}proposal_snapshot (proposal_id, version, title, base, head, state, base_commit, head_commit, at)
VALUES (:id, :version, :title, :base, :head, :state, :base_commit, :head_commit, {now})"""

ADD_EVENT = """
INSERT INTO {our}proposal_feed (proposal_id, version, kind, code, at) VALUES (:id, :version, :kind, :code, {now})"""

SNAPSHOTS = """
SELECT version, title, base, head, state, base_commit, head_commit, at FROM {our}proposal_snapshot
WHERE proposal_id = :id AND version > :after ORDER BY version LIMIT :limit"""

FEED = """
SELECT version, kind, code, at FROM {our}proposal_feed
WHERE proposal_id = :id AND version > :after ORDER BY version LIMIT :limit"""

# --- what the tracking job finds out ----------------------------------------------------------------------------------

SET_COMPARED = """
UPDATE {our}proposal SET base_commit = :base_commit, head_commit = :head_commit, merge_base = :merge_base,
  ahead = :ahead, behind = :behind, files_changed = :files_changed, conflicts = :conflicts, compared_at = {now},
  trouble_kind = NULL, trouble_code = NULL, trouble_at = NULL, revision = revision + 1
WHERE id = :id AND revision = :revision RETURNING id"""

SET_TROUBLE = """
UPDATE {our}proposal SET trouble_kind = :kind, trouble_code = :code, trouble_at = {now}, revision = revision + 1
WHERE id = :id AND revision = :revision RETURNING id"""
