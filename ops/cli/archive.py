"""``archive``: what was kept of jobs that are deleted."""

from __future__ import annotations

import click

from ops.cli import output
from ops.cli.options import json_option
from ops.cli.session import opened
from store.archive import parts, read
from store.boundary import load_boundary
from store.contract import Archived
from store.errors import NotFound
from store.identity import check_id


@click.group()
def archive() -> None:
    """Jobs that were deleted and kept, where JOBS_ARCHIVE_BEFORE_DELETE is set."""


@archive.command()
@click.argument("id_", metavar="ID")
@json_option
def meta(id_: str, as_json: bool) -> None:
    """Tell which parts of the deleted job ID are kept, a line for each of its lives, newest first."""
    found = [_meta(kept) for kept in _kept(id_)]
    if as_json:
        output.emit(found)
        return
    rows = [[output.cell(value) for value in life.values()] for life in found]
    output.console().print(output.table([name.replace("_", " ") for name in found[0]], rows))


@archive.command()
@click.argument("id_", metavar="ID")
@click.option("--reveal", is_flag=True, help="Open what is encrypted, with the keys of this process.")
@json_option
def show(id_: str, reveal: bool, as_json: bool) -> None:
    """Show the newest life of the deleted job ID, payload and result included."""
    newest = _kept(id_)[0]
    if reveal:
        newest = load_boundary().opened_archive(newest)
    columns = read(newest)
    if as_json:
        output.emit(columns | {"archived_at": output.moment(newest.archived_at)})
        return
    shown = {name: output.cell(value) for name, value in columns.items() if value is not None}
    output.console().print(output.facts(shown | {"archived_at": output.cell(output.moment(newest.archived_at))}))


def _kept(id_: str) -> list[Archived]:
    wanted = check_id(id_)
    with opened() as store:
        found = store.archived(wanted)
    if not found:
        raise NotFound(f"the archive has no job {wanted}: see JOBS_ARCHIVE_BEFORE_DELETE")
    return found


def _meta(kept: Archived) -> dict[str, object]:
    return {
        "id": kept.id,
        "generation": kept.generation,
        "domain": kept.domain,
        "queue": kept.queue,
        "job_type": kept.job_type,
        "key": kept.key,
        "archived_at": output.moment(kept.archived_at),
        **parts(kept),
    }
