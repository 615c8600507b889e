"""Reading and comparing git repositories."""

from __future__ import annotations

import random
import shutil
import subprocess
import tempfile
import threading
from pathlib import Path

import pytest

from actors.proposals.errors import CommitMissing, RepositoryMissing, RepositoryUnreadable
from actors.proposals.git import Limits, Repository, adopt, commit_file, compare
from tests.proposals.repositories import Workshop, forked, git

# -- opening ----------------------------------------------------------------------------------------------------------


def test_a_path_where_nothing_is_and_a_path_that_is_no_repository_are_missing_repositories(tmp_path: Path) -> None:
    Workshop(tmp_path / "outer", bare=False)
    (tmp_path / "outer" / "inner").mkdir()
    for path in (tmp_path / "nothing", tmp_path, tmp_path / "outer" / "inner"):
        with pytest.raises(RepositoryMissing) as refused:
            Repository(path)
        assert refused.value.code == "repository_missing"
        assert str(path) in str(refused.value)


def test_a_damaged_repository_is_unreadable_and_the_error_has_no_foreign_text(tmp_path: Path) -> None:
    Workshop(tmp_path / "r")
    (tmp_path / "r" / "config").write_text("[core\nrepositoryformatversion = SECRET\n")
    with pytest.raises(RepositoryUnreadable) as refused:
        Repository(tmp_path / "r")
    assert refused.value.code == "repository_unreadable"
    assert refused.value.__cause__ is not None
    assert str(refused.value.__cause__) not in str(refused.value)


def test_a_format_that_libgit2_does_not_know_is_unreadable(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", "--object-format=sha256", str(tmp_path / "r")], check=True)
    with pytest.raises(RepositoryUnreadable):
        Repository(tmp_path / "r")


def test_bare_repositories_checkouts_and_linked_worktrees_open(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path / "checkout", bare=False)
    tip = workshop.commit("main", {"a": "a"})
    git(tmp_path / "checkout", "worktree", "add", "-q", "-b", "side", str(tmp_path / "linked"))
    with Repository(tmp_path / "checkout") as checkout, Repository(tmp_path / "linked") as linked:
        assert not checkout.bare
        assert linked.heads(["main", "side"]) == {"main": tip, "side": tip}
        assert linked.incarnation == checkout.incarnation
    Workshop(tmp_path / "bare")
    with Repository(tmp_path / "bare") as bare:
        assert bare.bare


# -- branches ---------------------------------------------------------------------------------------------------------


def test_heads_are_the_commits_of_branches_and_none_for_those_that_can_not_be_read(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path / "r", default="unborn")
    main = workshop.commit("main", {"a": "a"})
    deep = workshop.commit("team/topic", {"b": "b"})
    (tmp_path / "r" / "refs" / "heads" / "damaged").write_text("no id\n")
    impossible = ["", "..", "a b", "x\x00main", "main\x00x", "sur\udc80rogate", "y" * 5000, "-/~^:"]
    with Repository(tmp_path / "r") as repository:
        heads = repository.heads(["main", "team/topic", "unborn", "missing", "team", "damaged", *impossible])
    assert heads.pop("main") == main
    assert heads.pop("team/topic") == deep
    assert len(heads) == 4 + len(impossible)
    assert set(heads.values()) == {None}


def test_an_open_repository_sees_branches_move_however_git_stores_them(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path / "r")
    first = workshop.commit("main", {"a": "1"})
    with Repository(tmp_path / "r") as repository:
        assert repository.heads(["main"]) == {"main": first}
        second = workshop.commit("main", {"a": "2"})
        assert repository.heads(["main"]) == {"main": second}
        git(tmp_path / "r", "gc", "-q")
        assert repository.heads(["main"]) == {"main": second}
        third = workshop.commit("main", {"a": "3"})
        git(tmp_path / "r", "gc", "-q")
        assert repository.heads(["main"]) == {"main": third}
        assert compare(repository, first, third).ahead == 2


def test_a_repository_that_goes_away_while_it_is_read_is_missing_and_not_without_branches(tmp_path: Path) -> None:
    Workshop(tmp_path / "r").commit("main", {"a": "1"})
    with Repository(tmp_path / "r") as repository:
        shutil.rmtree(tmp_path / "r")
        with pytest.raises(RepositoryMissing):
            repository.heads(["main"])


def test_branches_are_listed_in_order_and_bounded(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path / "r")
    tip = workshop.commit("main", {"a": "1"})
    for name in ("b/2", "b/1", "a", "ü"):
        workshop.branch(name, tip)
    (Path(str(tmp_path / "r" / "refs" / "heads")) / "odd\udcff").write_text(tip + "\n")
    with Repository(tmp_path / "r") as repository:
        assert repository.branches() == ("a", "b/1", "b/2", "main", "ü")
        assert repository.branches(limit=2) == ("a", "b/1")


@pytest.mark.parametrize(
    ("head", "branches", "expected"),
    [
        ("trunk", ["main", "trunk"], "trunk"),
        ("unborn", ["a", "main", "master"], "main"),
        ("unborn", ["a", "master"], "master"),
        ("unborn", ["b", "a"], "a"),
        ("unborn", [], None),
    ],
)
def test_the_default_branch_is_the_one_of_head_or_the_likeliest(
    tmp_path: Path, head: str, branches: list[str], expected: str | None
) -> None:
    workshop = Workshop(tmp_path / "r", default=head)
    for name in branches:
        workshop.commit(name, {name: "x"})
    with Repository(tmp_path / "r") as repository:
        assert repository.default_branch() == expected


# -- incarnation ------------------------------------------------------------------------------------------------------


def test_the_incarnation_stays_while_a_repository_lives(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path / "r")
    workshop.commit("main", {"a": "1"})
    with Repository(tmp_path / "r") as repository:
        before = repository.incarnation
    workshop.commit("other", {"a": "2"})
    git(tmp_path / "r", "gc", "-q")
    git(tmp_path / "r", "config", "some.thing", "else")
    git(tmp_path / "r", "branch", "-D", "other")
    (tmp_path / "r").rename(tmp_path / "moved")
    with Repository(tmp_path / "moved") as repository:
        assert repository.incarnation == before


@pytest.mark.parametrize("maker", [Repository, adopt])
def test_a_repository_made_anew_under_the_same_name_is_another_incarnation(
    tmp_path: Path, maker: type[Repository]
) -> None:
    seen = set()
    for _ in range(3):
        Workshop(tmp_path / "r").commit("main", {"a": "1"}, at=1_700_000_000)
        with maker(tmp_path / "r") as repository:
            seen.add(repository.incarnation)
        shutil.rmtree(tmp_path / "r")
    assert len(seen) == 3


def test_adopting_changes_no_incarnation_and_makes_it_outlive_a_copy(tmp_path: Path) -> None:
    Workshop(tmp_path / "r")
    with Repository(tmp_path / "r") as repository:
        before = repository.incarnation
    for _ in range(2):
        with adopt(tmp_path / "r") as repository:
            assert repository.incarnation == before
    shutil.copytree(tmp_path / "r", tmp_path / "restored")
    with Repository(tmp_path / "restored") as repository:
        assert repository.incarnation == before
    assert [file.name for file in (tmp_path / "r").glob("dramaturg*")] == ["dramaturg-incarnation"]


def test_those_who_adopt_at_once_agree(tmp_path: Path) -> None:
    Workshop(tmp_path / "r")
    barrier, answers = threading.Barrier(8), []

    def adopter() -> None:
        barrier.wait(timeout=10)
        with adopt(tmp_path / "r") as repository:
            answers.append(repository.incarnation)

    threads = [threading.Thread(target=adopter) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=10)
    assert len(answers) == 8
    assert len(set(answers)) == 1


@pytest.mark.parametrize("content", ["", "nonsense\n", "\x00" * 32])
def test_a_damaged_incarnation_is_an_error_and_not_a_new_identity(tmp_path: Path, content: str) -> None:
    Workshop(tmp_path / "r")
    (tmp_path / "r" / "dramaturg-incarnation").write_text(content)
    with pytest.raises(RepositoryUnreadable, match="does not hold an identity"):
        Repository(tmp_path / "r")


# -- comparing --------------------------------------------------------------------------------------------------------


def test_a_comparison_tells_fork_distance_and_the_files_that_head_changed(tmp_path: Path) -> None:
    _, fork, base, head = forked(tmp_path / "r")
    with Repository(tmp_path / "r") as repository:
        found = compare(repository, base, head)
        assert (found.merge_base, found.ahead, found.behind, found.files_changed) == (fork, 3, 2, 3)
        assert (found.conflicts, found.conflict_paths, found.mergeable) == (0, (), True)
        back = compare(repository, head, base)
        assert (back.merge_base, back.ahead, back.behind, back.files_changed) == (fork, 2, 3, 2)


def test_a_head_that_is_its_base_only_ahead_or_only_behind(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path / "r")
    first, second = (workshop.commit("main", {"a": text}) for text in "12")
    with Repository(tmp_path / "r") as repository:
        same, ahead, behind = (
            compare(repository, *pair) for pair in ((first, first), (first, second), (second, first))
        )
    assert (same.merge_base, same.ahead, same.behind, same.files_changed, same.conflicts) == (first, 0, 0, 0, 0)
    assert (ahead.merge_base, ahead.ahead, ahead.behind, ahead.files_changed, ahead.conflicts) == (first, 1, 0, 1, 0)
    assert (behind.merge_base, behind.ahead, behind.behind, behind.files_changed) == (first, 0, 1, 0)
    assert same.mergeable
    assert ahead.mergeable
    assert behind.mergeable


def test_histories_with_nothing_in_common_have_no_merge_base_and_can_not_be_merged(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path / "r")
    base = workshop.commit("main", {"a": "1"})
    workshop.commit("other", {"x/b": "1"})
    head = workshop.commit("other", {"c": "1"})
    with Repository(tmp_path / "r") as repository:
        found = compare(repository, base, head)
    assert (found.merge_base, found.ahead, found.behind, found.files_changed) == (None, 2, 1, 2)
    assert found.mergeable is False


def test_conflicts_are_counted_whole_and_named_in_order_up_to_the_limit(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path / "r")
    names = [f"f{number:02}.txt" for number in range(12)]
    fork = workshop.commit("main", dict.fromkeys(names, "x\n"))
    workshop.branch("feature", fork)
    base = workshop.commit("main", {**dict.fromkeys(names, "base\n"), "gone.txt": "x", names[0]: None})
    head = workshop.commit("feature", {**dict.fromkeys(names, "head\n"), "new.txt": "y"})
    with Repository(tmp_path / "r") as repository:
        found = compare(repository, base, head, Limits(conflict_paths=3))
    assert (found.conflicts, found.conflict_paths, found.mergeable) == (12, tuple(names[:3]), False)


def test_a_path_that_is_no_text_is_named_all_the_same(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path / "r")
    fork = workshop.commit("main", {"a": "x"})
    workshop.branch("feature", fork)
    base = workshop.commit("main", {"caf\udce9": "base"})
    head = workshop.commit("feature", {"caf\udce9": "head"})
    with Repository(tmp_path / "r") as repository:
        found = compare(repository, base, head)
    assert found.conflict_paths == ("caf\ufffd",)


def test_a_renamed_file_is_one_changed_file_and_merges_with_changes_of_the_other_side(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path / "r")
    text = "".join(f"line {number}\n" for number in range(40))
    fork = workshop.commit("main", {"old.txt": text})
    workshop.branch("feature", fork)
    base = workshop.commit("main", {"old.txt": text.replace("line 3\n", "line three\n")})
    head = workshop.commit("feature", {"old.txt": None, "new.txt": text.replace("line 30\n", "line thirty\n")})
    with Repository(tmp_path / "r") as repository:
        found = compare(repository, base, head)
        assert (found.files_changed, found.conflicts) == (1, 0)
        bounded = compare(repository, base, head, Limits(content=0))
        assert (bounded.files_changed, bounded.conflicts, bounded.mergeable) == (2, None, None)


def test_what_would_cost_too_much_is_unknown_and_the_rest_is_told(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path / "r")
    fork = workshop.commit("main", {"big": "0\n" * 1000})
    workshop.branch("feature", fork)
    base = workshop.commit("main", {"big": "1\n" * 1000, "m": "m"})
    head = workshop.commit("feature", {"big": "2\n" * 1000, "x": "x", "y": "y"})
    with Repository(tmp_path / "r") as repository:
        for limits in (Limits(content=1000), Limits(files=1)):
            found = compare(repository, base, head, limits)
            assert (found.merge_base, found.ahead, found.behind, found.files_changed) == (fork, 1, 1, 3)
            assert (found.conflicts, found.mergeable) == (None, None)
        assert compare(repository, base, head, Limits(content=100_000, files=3)).conflicts == 1


def test_submodules_modes_and_binary_files_are_compared_like_any_file(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path / "checkout", bare=False)
    fork = workshop.commit("main", {"bin": bytes(range(256)), "run.sh": "#!/bin/sh\n"})
    path = tmp_path / "checkout"
    git(path, "checkout", "-q", "-f", "-b", "feature", fork)
    git(path, "update-index", "--add", "--cacheinfo", f"160000,{fork},module")
    git(path, "update-index", "--chmod=+x", "run.sh")
    who = ("-c", "user.name=x", "-c", "user.email=x@example.invalid")
    git(path, *who, "commit", "-q", "-m", "module and mode")
    head = git(path, "rev-parse", "feature")
    base = workshop.commit("main", {"bin": b"\x00changed"})
    with Repository(path) as repository:
        found = compare(repository, base, head)
    assert (found.files_changed, found.conflicts) == (2, 0)


@pytest.mark.parametrize("wrong", ["0" * 40, "12345", "", "no id", "Z" * 40, "tree"])
def test_an_id_that_is_no_commit_here_is_a_missing_commit(tmp_path: Path, wrong: str) -> None:
    workshop, _, base, _ = forked(tmp_path / "r")
    if wrong == "tree":
        wrong = workshop.tree(base)
    with Repository(tmp_path / "r") as repository:
        for pair in ((base, wrong), (wrong, base)):
            with pytest.raises(CommitMissing) as refused:
                compare(repository, *pair)
            assert refused.value.code == "commit_missing"


def test_a_commit_whose_files_are_lost_is_an_unreadable_repository(tmp_path: Path) -> None:
    workshop, _, base, head = forked(tmp_path / "r")
    tree = workshop.tree(head)
    (tmp_path / "r" / "objects" / tree[:2] / tree[2:]).unlink()
    with Repository(tmp_path / "r") as repository, pytest.raises(RepositoryUnreadable):
        compare(repository, base, head)


@pytest.mark.parametrize("seed", range(8))
def test_git_itself_says_the_same_of_random_histories(tmp_path: Path, seed: int) -> None:
    rnd = random.Random(seed)
    workshop, path = Workshop(tmp_path / "r"), tmp_path / "r"
    made: list[str] = []
    for number in range(24):
        parents = rnd.sample(made[-5:], min(len(made), rnd.choice([1, 1, 1, 2]))) if rnd.random() > 0.1 else []
        files = {f"d{rnd.randrange(3)}/f{rnd.randrange(4)}": f"{rnd.randrange(3)}\n" * 5 for _ in range(2)}
        at = 1_700_000_000 + (number * 10 if seed % 2 else rnd.randrange(300))  # clocks that go wrong, too
        made.append(workshop.commit(None, files, parents=parents, at=at))
    with Repository(path) as repository:
        for base, head in (rnd.sample(made, 2) for _ in range(6)):
            found = compare(repository, base, head)
            behind, ahead = git(path, "rev-list", "--left-right", "--count", f"{base}...{head}").split()
            assert (found.behind, found.ahead) == (int(behind), int(ahead))
            bases = subprocess.run(
                ["git", "-C", str(path), "merge-base", "--all", base, head], capture_output=True, text=True, check=False
            ).stdout.split()
            if found.merge_base is None:
                assert bases == []
            else:
                assert found.merge_base in bases
                changed = git(path, "diff", "--name-only", "-M", found.merge_base, head).splitlines()
                assert found.files_changed == len(changed)


def test_comparing_writes_nothing_into_a_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, base, head = forked(tmp_path / "r")
    before = sorted(str(file) for file in (tmp_path / "r").rglob("*"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    with Repository(tmp_path / "r") as repository:
        for _ in range(2):
            assert compare(repository, base, head).conflicts == 0
        assert any((tmp_path / "scratch").iterdir())
    assert sorted(str(file) for file in (tmp_path / "r").rglob("*")) == before
    assert not any((tmp_path / "scratch").iterdir())


def test_a_repository_that_borrows_its_objects_is_compared(tmp_path: Path) -> None:
    _, _, base, head = forked(tmp_path / "lender")
    git(tmp_path, "clone", "-q", "--bare", "--shared", str(tmp_path / "lender"), str(tmp_path / "borrower"))
    with Repository(tmp_path / "borrower") as repository:
        assert compare(repository, base, head).conflicts == 0


def test_a_pushed_commit_shows_in_the_next_comparison(tmp_path: Path) -> None:
    _, _, base, head = forked(tmp_path / "r")
    with Repository(tmp_path / "r") as repository:
        pushed = commit_file(repository, "feature", "docs/new.md", "new\n", "One more")
        assert repository.heads(["feature"]) == {"feature": pushed}
        assert compare(repository, base, pushed).ahead == compare(repository, base, head).ahead + 1
