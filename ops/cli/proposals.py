"""``proposals``: open, list, make ready, merge, close and reopen proposals of git repositories.

Importing ``actors`` reads the settings and declares the job types, so it is left to the command that runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ops.cli import output
from ops.cli.options import json_option
from ops.cli.session import opened, settings
from store.identity import DEFAULT_DOMAIN
from store.settings import load

if TYPE_CHECKING:
    from actors.proposals.ledger import Proposals
    from actors.proposals.model import Proposal
    from actors.proposals.view import OpenView
    from store.contract import Store

#: ``State`` of actors/proposals/model.py, which is not imported for ``--help``; a test keeps the two alike.
STATES = ("draft", "open", "merging", "merged", "closed", "archived")

#: Proposals that one ``list`` shows at most.
LIST_MOST = 1000

_STYLES = {"draft": "bright_black", "open": "green", "merging": "yellow", "merged": "magenta", "closed": "red"}

domain_option = click.option(
    "--domain", metavar="NAME", default=DEFAULT_DOMAIN, show_default=True, help="The repository's domain."
)


@click.group()
def proposals() -> None:
    """Proposals of git repositories: to merge one branch into another."""


@proposals.command("open")
@click.argument("repository", metavar="REPO")
@click.argument("base")
@click.argument("head")
@click.option("--title", help="What it is about. Unset: HEAD into BASE.")
@click.option("--draft", is_flag=True, help="Not to be merged yet.")
@domain_option
@json_option
def open_proposal(
    repository: str, base: str, head: str, title: str | None, draft: bool, domain: str, as_json: bool
) -> None:
    """Propose to merge branch HEAD into branch BASE of REPO.

    REPO is the name of a registered repository, or the path of one, which is then registered under its folder's name;
    or the tls:// URL of one on WEB_SCRIBE_SERVER.
    """
    with _ledger() as (ledger, store):
        name, path = _found(ledger, repository, domain)
        made = ledger.open(name, base, head, title or f"{head} into {base}"[:256], draft, domain, path=path)
        _show(made, store, as_json)


@proposals.command("list")
@click.option("--repo", "repository", metavar="NAME", help="Proposals of this repository.")
@click.option("--state", type=click.Choice(STATES), help="Proposals in this state.")
@click.option("--domain", metavar="NAME", help="Proposals of this domain.")
@click.option("--limit", type=click.IntRange(1, LIST_MOST), default=100, show_default=True, help="Proposals at most.")
@json_option
def list_proposals(repository: str | None, state: str | None, domain: str | None, limit: int, as_json: bool) -> None:
    """List proposals with how their branches compare, oldest first."""
    with _ledger() as (ledger, store):
        from actors.proposals.model import State

        wanted = None if state is None else State(state)
        found = ledger.list(repository=repository, domain=domain, state=wanted, limit=limit)
        more = len(found) == limit and ledger.list(
            repository=repository, domain=domain, state=wanted, after=found[-1].id, limit=1
        )
        now = store.ping()
    if as_json:
        output.emit([document(proposal) for proposal in found])
        return
    console = output.console()
    if not found:
        console.print("no proposals match")
        return
    console.print(_table(found, now))
    if more:
        console.print(f"and more: this shows the first {limit}, see --limit")


def _command(name: str, text: str, act: Callable[[Proposals, str], Proposal]) -> None:
    """A command that does one thing to one proposal."""

    @proposals.command(name, help=text)
    @click.argument("id_", metavar="ID")
    @json_option
    def command(id_: str, as_json: bool) -> None:
        with _ledger() as (ledger, store):
            _show(act(ledger, id_), store, as_json)


_command("ready", "A draft becomes an open proposal.", lambda ledger, id_: ledger.mark_ready(id_))
_command(
    "merge",
    "Merge an open proposal into its base branch, or settle a merge whose end is not known.",
    lambda ledger, id_: ledger.merge(id_),
)
_command("close", "Stop tracking a proposal; it can be reopened.", lambda ledger, id_: ledger.close(id_))
_command("reopen", "Track a closed proposal again.", lambda ledger, id_: ledger.reopen(id_))


def document(proposal: Proposal) -> dict[str, Any]:
    """A proposal for scripts; what is not known yet is null."""
    compared, trouble, merging = proposal.compared, proposal.trouble, proposal.merging
    return {
        "id": proposal.id,
        "domain": proposal.repository.domain,
        "repository": proposal.repository.name,
        "incarnation": proposal.repository.incarnation,
        "path": proposal.repository.path,
        "title": proposal.title,
        "base": proposal.base,
        "head": proposal.head,
        "state": proposal.state.value,
        "version": proposal.version,
        "base_commit": compared and compared.base_commit,
        "head_commit": compared and compared.head_commit,
        "merge_base": compared and compared.merge_base,
        "ahead": compared and compared.ahead,
        "behind": compared and compared.behind,
        "files_changed": compared and compared.files_changed,
        "conflicts": compared and compared.conflicts,
        "compared_at": output.moment(compared and compared.at),
        "failure": trouble and {"class": trouble.kind, "code": trouble.code, "at": output.moment(trouble.at)},
        "merging_since": output.moment(merging and merging.since),
        "merge_commit": proposal.merge_commit,
        "created_at": output.moment(proposal.created_at),
        "updated_at": output.moment(proposal.updated_at),
    }


@contextmanager
def _ledger() -> Iterator[tuple[Proposals, Store]]:
    with opened() as store:
        from actors.proposals.ledger import Proposals
        from actors.proposals.statements import SUBJECT

        store.check_schema([SUBJECT])
        yield Proposals(store, view=_view()), store


def _view() -> OpenView:
    from actors.access.opening import READER, opener
    from actors.access.settings import AccessSettings
    from middleware.credentials import Credentials, CredentialSettings

    credentials = Credentials(load(CredentialSettings))
    return opener(load(AccessSettings), settings().home, lambda: credentials.open(READER))


def _found(ledger: Proposals, repository: str, domain: str) -> tuple[str, Path | str | None]:
    """The name that REPO stands for, and where it lies if that is not known yet."""
    from actors.access.endpoint import is_remote
    from actors.proposals.refusals import RepositoryUnknown

    if is_remote(repository):
        known = ledger.repository_at(repository, domain)
        name = repository.split("://", 1)[1].partition("/")[2].strip("/").removesuffix(".git")
        return (name or repository, repository) if known is None else (known.name, None)
    try:
        return ledger.repository(repository, domain).name, None
    except RepositoryUnknown:
        path = Path(repository).expanduser().resolve()
        if not path.is_dir():
            raise
    known = ledger.repository_at(path, domain)
    if known is not None:
        return known.name, None
    name = (path.parent if path.name == ".git" else path).name.removesuffix(".git") or str(path)
    try:
        ledger.repository(name, domain)
    except RepositoryUnknown:
        return name, path
    return str(path), path  # another repository has that name


def _show(proposal: Proposal, store: Store, as_json: bool) -> None:
    if as_json:
        output.emit(document(proposal))
    else:
        output.console().print(_table([proposal], store.ping()))


def _table(found: list[Proposal], now: datetime) -> Any:
    columns = (
        "id",
        "repository",
        "base",
        "head",
        "title",
        "state",
        "ahead",
        "behind",
        "files",
        "conflicts",
        "compared",
    )
    return output.table(columns, [_line(one, now) for one in found], right=("ahead", "behind", "files", "conflicts"))


def _line(proposal: Proposal, now: datetime) -> list[Any]:
    compared, trouble = proposal.compared, proposal.trouble
    figures: tuple[int | None, ...] = (None,) * 4
    if compared is not None:
        figures = (compared.ahead, compared.behind, compared.files_changed, compared.conflicts)
    last = trouble.code if trouble else output.relative(compared and compared.at, now)
    return [
        output.cell(proposal.id),
        output.cell(proposal.repository.name),
        output.cell(proposal.base),
        output.cell(proposal.head),
        output.cell(proposal.title),
        output.cell(proposal.state.value, _STYLES.get(proposal.state, "")),
        *map(output.cell, figures),
        output.cell(last, "red" if trouble else ""),
    ]
