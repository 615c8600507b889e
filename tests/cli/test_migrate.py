from __future__ import annotations

from pathlib import Path

from store.open import open_store
from tests.cli.conftest import Command, run_program


def test_migrating_makes_the_home_and_publishes_the_types(tmp_path: Path) -> None:
    home = tmp_path / "home"
    first = run_program(home, "migrate", "--json").json
    assert first["affected"] > 0
    assert "proposal.repository" in first["types"]
    again = run_program(home, "migrate", "--json").json
    assert again == first | {"affected": 0}


def test_what_was_published_and_is_equal_is_left_alone(program: Command, home: Path) -> None:
    with_versions = f"sqlite:///{home}/jobs.db"
    store = open_store(with_versions)
    before = store.list("policy")
    assert program("migrate").code == 0
    assert store.list("policy") == before
    store.close()


def test_a_postgres_is_migrated_and_worked_with_like_any_store(tmp_path: Path, postgres_url: str) -> None:
    def run(*words: str) -> object:
        done = run_program(tmp_path / "home", *words, "--json", JOBS_DB_URL=postgres_url)
        assert done.code == 0, done.err
        return done.json

    run("migrate")
    woken = run("wake", "proposal.scan", "--payload", "{}", "--in", "1h")
    (listed,) = run("list", "--state", "scheduled")  # type: ignore[misc]
    assert woken["id"] == listed["id"]  # type: ignore[index]
    assert run("cancel", "--type", "proposal.scan")["affected"] == 1  # type: ignore[index]
