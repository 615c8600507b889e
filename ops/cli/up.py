"""``up``: the main job on real input, live."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from ops.cli import output
from ops.cli.options import json_option

if TYPE_CHECKING:
    from ops.up.engines import Kind
    from ops.up.screen import Screen


@click.command()
@click.option(
    "--store",
    "kind",
    type=click.Choice(["sqlite", "postgres", "surreal"]),
    help="The store. Unset: that of JOBS_DB_URL, else sqlite.  [the others are embedded unless JOBS_DB_URL names one]",
)
@click.option("--repo", metavar="PATH_OR_URL", help="The repository to copy. Unset: the checkout that you stand in.")
@click.option("--demo", is_flag=True, help="Show a push and a crash on engines of its own, and end by itself.")
@json_option
def up(kind: Kind | None, repo: str | None, demo: bool, as_json: bool) -> None:
    """Copy a repository, open three proposals between its branches, and track them until Ctrl-C.

    Everything that is needed runs under JOBS_HOME and ends with this command: Valkey, Postgres or SurrealDB where it is
    asked for, a worker and the ticker. Commit to a branch of the copy, and the proposals follow.
    """
    from ops.up.run import Plan, up

    def make_screen(headline: str) -> Screen:
        from ops.up.screen import Lines, View

        if demo or as_json or not sys.stdout.isatty():
            screen = Lines(sys.stderr if as_json else sys.stdout)
            screen.say(headline)
            return screen
        return View(output.console(), headline)

    done = up(Plan(kind, repo, demo), make_screen)
    if as_json:
        output.emit(done)
