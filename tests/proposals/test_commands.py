"""``dramaturg proposals``: what a person and a script see of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from actors.proposals.model import State
from ops.cli.main import main
from ops.cli.proposals import STATES
from store.identity import new_id
from tests.proposals.desk import NAME, Desk
from tests.proposals.repositories import Workshop

#: For what no database has a say in.
sqlite = pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)


class Said(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Command = Callable[..., Said]


@pytest.fixture
def command(desk: Desk, store_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """``dramaturg proposals`` with these words, on the desk's database."""
    monkeypatch.setenv("JOBS_DB_URL", store_url)

    def run(*words: object) -> Said:
        capsys.readouterr()
        return Said(main(["proposals", *map(str, words)]), *capsys.readouterr())

    return run


def test_a_proposal_is_opened_tracked_merged_and_gone_from_the_open_ones(desk: Desk, command: Command) -> None:
    desk.register()
    made = command("open", NAME, "main", "feature", "--title", "Two", "--json")
    assert made.code == 0
    id_ = made.json["id"]
    assert made.json | {"title": "Two", "state": "open", "ahead": None, "failure": None, "version": 1} == made.json
    desk.track(desk.proposals.get(id_).repository)
    [listed] = command("list", "--json").json
    assert (listed["id"], listed["ahead"], listed["behind"], listed["conflicts"]) == (id_, 1, 0, 0)
    merged = command("merge", id_, "--json").json
    assert (merged["state"], merged["merge_commit"]) == ("merged", desk.tip("main"))
    assert command("list", "--state", "open", "--json").json == []
    assert [one["id"] for one in command("list", "--state", "merged", "--repo", NAME, "--json").json] == [id_]


@sqlite
def test_closing_reopening_and_making_ready(desk: Desk, command: Command) -> None:
    desk.register()
    id_ = command("open", NAME, "main", "feature", "--draft", "--json").json["id"]
    states = [command(verb, id_, "--json").json["state"] for verb in ("ready", "close", "reopen")]
    assert states == ["open", "closed", "open"]


@sqlite
def test_a_path_is_registered_under_its_folders_name(desk: Desk, command: Command) -> None:
    first = command("open", desk.workshop.path, "main", "feature", "--json").json
    assert (first["repository"], first["title"]) == ("scribe", "feature into main")
    second = command("open", desk.workshop.path, "main", "feature", "--json").json
    assert second["incarnation"] == first["incarnation"]


@sqlite
def test_another_repository_with_a_folder_of_the_same_name_gets_its_path_for_a_name(
    desk: Desk, command: Command, tmp_path: Path
) -> None:
    first = desk.open()
    (tmp_path / "elsewhere").mkdir()
    other = Workshop(tmp_path / "elsewhere" / "scribe.git")
    other.branch("feature", other.commit("main", {"a": "a"}))
    made = command("open", other.path, "main", "feature", "--json").json
    assert made["repository"] == str(other.path)
    assert desk.now(first).repository.ended is None


@sqlite
@pytest.mark.parametrize(
    ("words", "exit_code", "code"),
    [
        (("open", "nobody", "main", "feature"), 1, "repository_unknown"),
        (("open", NAME, "main", "nowhere"), 1, "branch_missing"),
        (("open", NAME, "main", "main"), 2, "usage"),
        (("open", NAME, "main", "feature", "--title", "a\x1b[31m"), 2, "usage"),
        (("open", NAME, "main"), 2, "usage"),
        (("open", NAME, "main", "feature", "--domain", ""), 2, "usage"),
        (("list", "--state", "merry"), 2, "usage"),
        (("list", "--repo", ""), 2, "usage"),
        (("merge", "seven"), 2, "usage"),
        (("merge", new_id()), 1, "proposal_missing"),
        (("close", new_id()), 1, "proposal_missing"),
        (("reopen", ""), 2, "usage"),
    ],
)
def test_bad_input_is_refused_with_a_reason_and_changes_nothing(
    desk: Desk, command: Command, words: tuple[str, ...], exit_code: int, code: str
) -> None:
    desk.register()
    before = desk.everything()
    said = command(*words, "--json")
    assert (said.code, said.json["error"]["code"]) == (exit_code, code)
    assert said.err.startswith("dramaturg: ")
    assert desk.everything() == before


@sqlite
def test_people_get_a_table_that_no_title_can_drive(desk: Desk, command: Command) -> None:
    proposal = desk.proposals.open(NAME, "main", "feature", "[red]\u202enot markup", path=desk.workshop.path)
    desk.delete_branch("feature")
    desk.track(proposal.repository)
    said = command("list")
    assert said.code == 0
    assert "[red]\\u202enot markup" in said.out
    assert "branch_missing" in said.out
    assert command("list", "--state", "closed").out.strip() == "no proposals match"


@sqlite
def test_a_list_that_is_cut_says_so(desk: Desk, command: Command) -> None:
    desk.open_many(3)
    assert "and more" in command("list", "--limit", "2").out
    assert "and more" not in command("list", "--limit", "3").out


def test_the_states_that_can_be_asked_for_are_all_there_are() -> None:
    assert tuple(State) == STATES
