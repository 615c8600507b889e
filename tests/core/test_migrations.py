"""Numbered schema files: order, what is missing, and programs that are too old."""

from __future__ import annotations

from pathlib import Path

import pytest

from store.errors import Refused, SchemaTooNew
from store.migrations import Applied, Migration, load, missing, refuse_missing


def _folder(path: Path, **files: str) -> Path:
    for name, text in files.items():
        (path / f"{name}.sql").write_text(text, encoding="utf-8")
    return path


def _known(count: int, subject: str = "ours") -> list[Migration]:
    return [Migration(subject, number, f"step_{number}", False, "") for number in range(1, count + 1)]


def test_a_folder_is_read_in_the_order_of_its_numbers(tmp_path: Path) -> None:
    _folder(tmp_path, **{"002_second": "two;", "001_first": "-- breaking\none;", "010_x": ""})
    (tmp_path / "010_x.sql").unlink()
    (tmp_path / "003_third.surql").write_text("three;")

    found = load("ours", tmp_path)

    assert found == [
        Migration("ours", 1, "first", True, "-- breaking\none;"),
        Migration("ours", 2, "second", False, "two;"),
        Migration("ours", 3, "third", False, "three;"),
    ]


def test_other_files_are_passed_over(tmp_path: Path) -> None:
    _folder(tmp_path, **{"001_first": "", "1_first": "", "001_First": "", "notes": ""})
    (tmp_path / "001_first.sql~").write_text("")
    (tmp_path / "README.md").write_text("")

    assert [migration.name for migration in load("ours", tmp_path)] == ["first"]


@pytest.mark.parametrize("names", [("002_a",), ("001_a", "003_b"), ("001_a", "001_b"), ("000_a", "001_b")])
def test_a_gap_or_a_doubled_number_is_a_mistake(tmp_path: Path, names: tuple[str, ...]) -> None:
    _folder(tmp_path, **dict.fromkeys(names, ""))

    with pytest.raises(ValueError, match="does not number its migrations"):
        load("ours", tmp_path)


def test_breaking_is_said_in_the_first_line_or_not_at_all(tmp_path: Path) -> None:
    _folder(tmp_path, **{"001_a": "\n-- breaking\n", "002_b": "-- breaking news\n", "003_c": "-- breaking  \nx"})

    assert [migration.breaking for migration in load("ours", tmp_path)] == [False, False, True]


def test_what_is_missing_is_told_in_order() -> None:
    known = _known(3)

    assert missing(known, []) == known
    assert missing(known, [Applied("ours", 2, False)]) == [known[0], known[2]]
    assert missing(known, [Applied("ours", number, False) for number in (1, 2, 3)]) == []


def test_an_unknown_harmless_migration_is_harmless() -> None:
    assert missing(_known(1), [Applied("ours", 1, False), Applied("ours", 2, False)]) == []


def test_an_unknown_breaking_migration_means_that_this_program_is_too_old() -> None:
    for ask in (missing, refuse_missing):
        with pytest.raises(SchemaTooNew, match="migration 2 of ours") as refused:
            ask(_known(1), [Applied("ours", 1, False), Applied("ours", 2, True)])
        assert "install the newer version" in str(refused.value)


def test_a_breaking_migration_that_is_known_breaks_nothing() -> None:
    known = [Migration("ours", 1, "a", True, "")]

    assert missing(known, [Applied("ours", 1, True)]) == []


def test_somebody_elses_breaking_migration_is_not_our_business() -> None:
    assert missing(_known(1), [Applied("ours", 1, False), Applied("theirs", 7, True)]) == []


def test_subjects_are_counted_apart() -> None:
    known = [*_known(1), *_known(2, "theirs")]

    assert missing(known, [Applied("ours", 1, False), Applied("theirs", 1, False)]) == [known[2]]


def test_a_database_that_lacks_migrations_is_refused_with_the_command_to_run() -> None:
    with pytest.raises(Refused, match=r"ours 001, ours 002\): run `dramaturg migrate`"):
        refuse_missing(_known(2), [])

    refuse_missing(_known(2), [Applied("ours", 1, False), Applied("ours", 2, False)])
