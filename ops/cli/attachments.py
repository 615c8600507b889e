"""``attach`` and ``attachments``: files and log lines on a job."""

from __future__ import annotations

import mimetypes
from pathlib import Path
from typing import Any

import click

from ops.cli import output
from ops.cli.options import json_option
from ops.cli.session import opened
from store import attachments as attaching
from store.attachments import FILE_BYTES, LOG, Attachment, Item
from store.errors import NotFound, Refused, UsageError
from store.identity import check_id


@click.command()
@click.argument("id_", metavar="ID")
@click.argument("path", metavar="[FILE]", required=False, type=click.Path(path_type=Path))
@click.option("--log", "line", metavar="TEXT", help="A log line in place of a file.")
@click.option("--name", metavar="NAME", help="Unset: the file's own.")
@click.option("--media-type", metavar="TYPE", help="Unset: by the name's ending.")
@json_option
def attach(
    id_: str, path: Path | None, line: str | None, name: str | None, media_type: str | None, as_json: bool
) -> None:  # fmt: skip
    """Put FILE, or a log line, on the job ID."""
    wanted = check_id(id_)
    if (path is None) == (line is None):
        raise UsageError("attach what? Name a file, or give --log a text")
    item = attaching.log_line(line) if line is not None else _file(path or Path(), name, media_type)
    with opened() as store:
        given = store.attach(wanted, [item])
    if given is None:
        raise NotFound(f"there is no job {wanted}: see `dramaturg list`")
    if as_json:
        output.emit({"id": wanted, "number": given[0], "affected": 1})
    else:
        output.console().print(f"attached as number {given[0]}")


def _file(path: Path, name: str | None, media_type: str | None) -> Item:
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        raise UsageError(f"the file can't be read ({type(error).__name__})") from None
    named = path.name if name is None else name
    kind = media_type or mimetypes.guess_type(named)[0] or "application/octet-stream"
    return attaching.file(named, data, kind)


@click.command()
@click.argument("id_", metavar="ID")
@click.option("--save", "number", type=int, metavar="NUMBER", help="Write this attachment to a file.")
@click.option("--to", "path", type=click.Path(path_type=Path), metavar="FILE", help="The file; it must not exist.")
@json_option
def attachments(id_: str, number: int | None, path: Path | None, as_json: bool) -> None:
    """List what is attached to the job ID, with the texts of its log lines; or save one attachment."""
    wanted = check_id(id_)
    if (number is None) != (path is None):
        raise UsageError("--save and --to go together")
    with opened() as store:
        if store.read([wanted])[0] is None:
            raise NotFound(f"there is no job {wanted}: see `dramaturg list`")
        if number is not None and path is not None:
            found = store.attachment(wanted, number)
            if found is None:
                raise NotFound(f"the job has no attachment {number}: see `dramaturg attachments {wanted}`")
            _save(path, found[1])
            listed: list[tuple[Attachment, str | None]] = [(found[0], None)]
        else:
            listed = [(each, _text(store.attachment(wanted, each.number), each)) for each in store.attachments(wanted)]
    if as_json:
        output.emit([document(each, text) for each, text in listed])
        return
    if number is not None:
        output.console().print(f"{listed[0][0].size} bytes saved")
        return
    rows = [
        [output.cell(value) for value in (each.number, each.kind, each.name, each.media_type, each.size, text or "")]
        for each, text in listed
    ]
    columns = ("number", "kind", "name", "media type", "bytes", "line")
    output.console().print(output.table(columns, rows, right=("bytes",)) if rows else "nothing is attached")


def document(each: Attachment, text: str | None) -> dict[str, Any]:
    """An attachment for scripts; ``text`` of log lines alone."""
    return {name: value for name, value in each._asdict().items() if name != "job_id"} | {
        "at": output.moment(each.at),
        "text": text,
    }


def _text(found: tuple[Attachment, bytes] | None, each: Attachment) -> str | None:
    return None if found is None or each.kind != LOG else found[1].decode("utf-8", "replace")


def _save(path: Path, data: bytes) -> None:
    try:
        with path.open("xb") as file:
            file.write(data)
    except FileExistsError:
        raise Refused("that file exists already: name another") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"the file can't be written ({type(error).__name__})") from None
