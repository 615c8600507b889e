"""Git, as far as proposals need it: heads, comparisons, our own bare copy, and the few writes that go into it.

Nothing here knows jobs, stores or clocks. Everything is synchronous and raises only the errors of
``actors/proposals/errors.py`` and ``UsageError``.
"""

from actors.proposals.git.cloning import clone_bare
from actors.proposals.git.comparison import Comparison, Limits, compare
from actors.proposals.git.demo import DemoBranches, create_demo_branches
from actors.proposals.git.repository import Repository, adopt, make_bare
from actors.proposals.git.writing import commit_file, create_branch, merge

__all__ = [
    "Comparison",
    "DemoBranches",
    "Limits",
    "Repository",
    "adopt",
    "clone_bare",
    "commit_file",
    "compare",
    "create_branch",
    "create_demo_branches",
    "make_bare",
    "merge",
]
