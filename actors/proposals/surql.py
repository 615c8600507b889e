"""The statements of ``statements.py`` in SurrealQL, which is another language and not another spelling.

Each answers the same columns in the same order. ``$now`` is the transaction's moment, in microseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from actors.proposals import statements

_REGISTRATION: Final = "record::id(id), domain, name, path, incarnation, ended"
_LAST: Final = "9223372036854775807"


def _ordered(columns: str, source: str, rest: str) -> str:
    """Rows in an order: that is of records, and not of what is selected of them."""
    return f"SELECT VALUE [{columns}] FROM (SELECT * FROM {source} {rest})"


_REPOSITORY: Final = "type::record('dramaturg_repository', repository_id)"
_OF_REPOSITORY: Final = ", ".join(
    f"{_REPOSITORY}.{name}" for name in ("domain", "name", "path", "incarnation", "ended")
)
_PROPOSAL: Final = f"""record::id(id), title, base, head, state, version, revision,
  base_commit, head_commit, merge_base, ahead, behind, files_changed, conflicts, compared_at,
  trouble_kind, trouble_code, trouble_at, merging_base, merging_head, merging_since, merge_commit,
  created_at, updated_at, repository_id, {_OF_REPOSITORY}"""

_ONE: Final = f"SELECT VALUE [{_PROPOSAL}] FROM type::record('dramaturg_proposal', $id)"
_MATCHES: Final = f"""($domain = NONE OR {_REPOSITORY}.domain = $domain)
  AND ($state = NONE OR state = $state)"""
# Records of one name; from a query of their own, since of records that a function answers the engine (3.2.4) takes the
# first so many and sorts those.
OF_REPOSITORY: Final = "SELECT VALUE id FROM dramaturg_proposal WHERE repository_id = {}"
_OF_NAME: Final = f"""(SELECT * FROM array::flatten((
  SELECT VALUE ({OF_REPOSITORY.format("record::id($parent.id)")}) FROM dramaturg_repository WHERE name = $name))
  WHERE uuid > $after AND {_MATCHES})"""
HAS_WORK: Final = "SELECT VALUE 1 FROM dramaturg_proposal WHERE tracked = {} LIMIT 1"
_GUARD: Final = "type::record('dramaturg_proposal', $id)"

SURQL: Final[Mapping[str, str]] = {
    # --- repositories
    statements.REGISTRATION: f"""SELECT VALUE [{_REGISTRATION}] FROM dramaturg_repository
WHERE domain = $domain AND name = $name AND incarnation = $incarnation""",
    statements.REGISTRATION_OF_NAME: _ordered(
        _REGISTRATION,
        "(SELECT *, ended != NONE AS over FROM dramaturg_repository "
        "WHERE domain = $domain AND name = $name AND (ended = NONE OR ended = 'replaced'))",
        "ORDER BY over, ended_at DESC, id DESC LIMIT 1",
    ),
    statements.REGISTRATION_AT_PATH: _ordered(
        _REGISTRATION,
        "dramaturg_repository",
        "WHERE domain = $domain AND path = $path AND ended = NONE ORDER BY id LIMIT 1",
    ),
    statements.REPLACE_OTHERS: f"""UPDATE dramaturg_repository SET ended = 'replaced', ended_at = $now
WHERE domain = $domain AND name = $name AND incarnation != $incarnation AND ended = NONE
RETURN VALUE [{_REGISTRATION}]""",
    statements.REGISTER: f"""{{
LET $known = (SELECT VALUE id FROM dramaturg_repository
  WHERE domain = $domain AND name = $name AND incarnation = $incarnation)[0];
IF $known != NONE {{
  UPDATE $known SET path = $path, ended = NONE, ended_at = NONE RETURN VALUE [{_REGISTRATION}]
}} ELSE {{
  CREATE type::record('dramaturg_repository', $id) SET domain = $domain, name = $name, path = $path,
    incarnation = $incarnation, registered_at = $now RETURN VALUE [{_REGISTRATION}]
}}
}}""",
    statements.END_REGISTRATION: f"""UPDATE type::record('dramaturg_repository', $id)
SET ended = $ended, ended_at = $now WHERE ended = NONE RETURN VALUE [{_REGISTRATION}]""",
    statements.REGISTRATIONS_WITH_WORK: _ordered(
        f"{_REGISTRATION}, array::len(({HAS_WORK.format('record::id($parent.id)')})) > 0",
        "type::record('dramaturg_repository', $after>..)",
        "ORDER BY id LIMIT $limit",
    ),
    # --- proposals
    statements.PROPOSAL: _ONE,
    statements.PROPOSAL_TO_CHANGE: _ONE,
    statements.PROPOSALS: _ordered(
        _PROPOSAL, "type::record('dramaturg_proposal', $after>..)", f"WHERE {_MATCHES} ORDER BY id LIMIT $limit"
    ),
    statements.PROPOSALS_OF_NAME: _ordered(_PROPOSAL, _OF_NAME, "ORDER BY id LIMIT $limit"),
    statements.LEFT_OVER: _ordered(
        _PROPOSAL, "dramaturg_proposal", "WHERE tracked = $repository_id ORDER BY uuid LIMIT $limit"
    ),
    statements.REFERENCES: _ordered(
        "record::id(id), base, head, revision, base_commit, head_commit, trouble_kind, trouble_code",
        "dramaturg_proposal",
        "WHERE tracked = $repository_id AND uuid > $after ORDER BY uuid LIMIT $limit",
    ),
    statements.INSERT: f"""CREATE {_GUARD} SET repository_id = $repository_id, title = $title, base = $base,
  head = $head, state = $state, version = 1, revision = 1, created_at = $now, updated_at = $now RETURN NONE""",
    statements.CHANGE: f"""UPDATE {_GUARD} SET title = $title, base = $base, head = $head, state = $state,
  merge_commit = $merge_commit, merging_base = $merging_base, merging_head = $merging_head,
  merging_since = IF $state = 'merging' THEN $now ELSE NONE END,
  version += 1, revision += 1, updated_at = $now WHERE revision = $revision RETURN VALUE [version]""",
    statements.ADD_SNAPSHOT: """CREATE type::record('dramaturg_proposal_snapshot', [$id, $version]) SET
  title = $title, base = $base, head = $head, state = $state, base_commit = $base_commit, head_commit = $head_commit,
  at = $now RETURN NONE""",
    statements.ADD_EVENT: """CREATE type::record('dramaturg_proposal_feed', [$id, $version]) SET
  kind = $kind, code = $code, at = $now RETURN NONE""",
    statements.SNAPSHOTS: _ordered(
        "record::id(id)[1], title, base, head, state, base_commit, head_commit, at",
        f"dramaturg_proposal_snapshot:[$id, $after + 1]..=[$id, {_LAST}]",
        "ORDER BY id LIMIT $limit",
    ),
    statements.FEED: _ordered(
        "record::id(id)[1], kind, code, at",
        f"dramaturg_proposal_feed:[$id, $after + 1]..=[$id, {_LAST}]",
        "ORDER BY id LIMIT $limit",
    ),
    # --- what the tracking job finds out
    statements.SET_COMPARED: f"""UPDATE {_GUARD} SET base_commit = $base_commit, head_commit = $head_commit,
  merge_base = $merge_base, ahead = $ahead, behind = $behind, files_changed = $files_changed, conflicts = $conflicts,
  compared_at = $now, trouble_kind = NONE, trouble_code = NONE, trouble_at = NONE, revision += 1
WHERE revision = $revision RETURN VALUE [record::id(id)]""",
    statements.SET_TROUBLE: f"""UPDATE {_GUARD} SET trouble_kind = $kind, trouble_code = $code, trouble_at = $now,
  revision += 1 WHERE revision = $revision RETURN VALUE [record::id(id)]""",
}
