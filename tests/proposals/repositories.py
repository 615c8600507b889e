"""Builders of small, real git repositories, and the git command as a second opinion."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

import pygit2
from pygit2.enums import FileMode

START = 1_700_000_000
Files = Mapping[str, str | bytes | None]


class Workshop:
    """A repository under construction. Commits are ten seconds apart unless a time is given."""

    def __init__(self, path: Path, *, bare: bool = True, default: str = "main") -> None:
        self.path = path
        self.raw = pygit2.init_repository(str(path), bare=bare, initial_head=default)
        self._time = START

    def commit(
        self, branch: str | None, files: Files, *, parents: list[str] | None = None, at: int | None = None
    ) -> str:
        """A commit that changes files (None deletes one), on top of the branch's tip or of the given parents."""
        name = f"refs/heads/{branch}" if branch else None
        if parents is None:
            parents = [str(self.raw.references[name].target)] if name and name in self.raw.references else []
        index = pygit2.Index()
        if parents:
            index.read_tree(self.raw[parents[0]].peel(pygit2.Tree))
        for path, content in files.items():
            if content is None:
                index.remove(path)
            else:
                data = content if isinstance(content, bytes) else content.encode()
                index.add(pygit2.IndexEntry(path, self.raw.create_blob(data), FileMode.BLOB))
        self._time += 10
        who = pygit2.Signature("Somebody", "somebody@example.invalid", at or self._time, 0)
        made = str(self.raw.create_commit(None, who, who, "a commit", index.write_tree(self.raw), parents))
        if name is not None:
            self.raw.references.create(name, made, force=True)
        return made

    def tree(self, commit: str) -> str:
        """Id of a commit's tree."""
        return str(self.raw[commit].peel(pygit2.Tree).id)

    def branch(self, name: str, commit: str) -> None:
        self.raw.references.create(f"refs/heads/{name}", commit, force=True)


def git(path: Path, *arguments: str) -> str:
    """Runs the git command in a repository; answers what it says. Raises when it fails."""
    answer = subprocess.run(
        ["git", "-C", str(path), *arguments], capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL
    )
    return answer.stdout.strip()


def forked(path: Path) -> tuple[Workshop, str, str, str]:
    """Main two commits and feature three commits after their fork, without conflict: workshop, fork, main, feature."""
    workshop = Workshop(path)
    fork = workshop.commit("main", {"a.txt": "one\ntwo\nthree\n", "b.txt": "b\n", "docs/c.txt": "c\n"})
    workshop.branch("feature", fork)
    workshop.commit("main", {"a.txt": "ONE\ntwo\nthree\n"})
    base = workshop.commit("main", {"d.txt": "d\n"})
    workshop.commit("feature", {"a.txt": "one\ntwo\nTHREE\n"})
    workshop.commit("feature", {"b.txt": None})
    head = workshop.commit("feature", {"docs/e.txt": "e\n"})
    return workshop, fork, base, head
