"""The house rules that a machine can check: arrows between rooms, file sizes, names, drivers, the environment."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("store", "middleware", "actors", "scheduler", "ops")

#: What each room may import of the others.
ARROWS = {
    "store": set(),
    "middleware": {"store"},
    "scheduler": {"store", "middleware"},
    "actors": {"store", "middleware"},
    "ops": {"store", "middleware", "scheduler", "actors"},
}

#: The composition roots, which put the rooms together.
COMPOSERS = {"actors/__init__.py": {"scheduler", "dramaturg"}}

#: Drivers, and the only folders that may import them.
DRIVERS = {
    "psycopg": ("store/postgres/", "store/engines/", "ops/bench/", "ops/torture/"),
    "sqlite3": ("store/sqlite/",),
    "redis": ("store/valkey/", "store/engines/", "ops/bench/", "ops/torture/"),
    "surrealdb": ("store/surreal/", "store/engines/"),
    "surrealdb_embedded": ("store/engines/",),
    "pygit2": ("actors/proposals/",),
}

LINES_MOST = 400


def sources() -> list[Path]:
    return sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))


def imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {name.name.split(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.split(".")[0])
    return found


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("path", sources(), ids=name_of)
def test_a_room_imports_only_what_stands_below_it(path: Path) -> None:
    room = name_of(path).split("/")[0]
    allowed = ARROWS[room] | {room} | COMPOSERS.get(name_of(path), set())
    if room in ("ops", "actors"):
        allowed |= {"dramaturg"}  # the face, for whoever declares jobs
    crossed = imports(path) & {*ROOMS, "dramaturg"} - allowed
    assert not crossed, f"{name_of(path)} may not import {crossed}"


@pytest.mark.parametrize("path", sources(), ids=name_of)
def test_only_adapters_import_drivers(path: Path) -> None:
    for driver in imports(path) & set(DRIVERS):
        assert name_of(path).startswith(DRIVERS[driver]), f"{name_of(path)} imports {driver}"


@pytest.mark.parametrize("path", sources(), ids=name_of)
def test_a_source_file_is_short_and_named_for_what_it_is(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= LINES_MOST, f"{name_of(path)} is too long: split it"
    assert not re.fullmatch(r"(utils?|helpers?|common|misc|manager|base)\.py", path.name)


def test_only_the_settings_read_the_environment() -> None:
    readers = [
        name_of(path)
        for path in sources()
        if re.search(r"os\.environ|os\.getenv|\bgetenv\(", path.read_text()) and not name_of(path).startswith("ops/")
    ]
    assert readers in ([], ["store/settings.py"])


def test_nothing_tracked_names_this_machine_or_a_registry() -> None:
    # Spelled in pieces, so that this file does not name them.
    telling = "|".join(["/" + "root/", "/" + "work/", "index" + "-url", "pypi" + r"\.org", "find" + "-links"])
    told = subprocess.run(["git", "grep", "-nIE", telling], cwd=ROOT, capture_output=True, text=True, check=False)
    assert told.returncode == 1, told.stdout


def test_every_file_of_a_room_is_reached_from_somewhere() -> None:
    texts = {
        name_of(path): path.read_text() for path in [*sources(), ROOT / "dramaturg.py", *(ROOT / "tests").rglob("*.py")]
    }
    everything = (ROOT / "pyproject.toml").read_text() + (ROOT / "Makefile").read_text()
    for path in sources():
        name = name_of(path)
        if path.name in ("__init__.py", "__main__.py"):
            continue
        module = name.removesuffix(".py").replace("/", ".")
        parent, leaf = module.rsplit(".", 1)
        used = any(
            re.search(rf"\b{re.escape(module)}\b|from {re.escape(parent)} import [^\n]*\b{leaf}\b", text)
            for other, text in texts.items()
            if other != name
        )
        assert used or module in everything, f"nothing uses {name}: delete it"
