"""``health``: the workers' signs of life, the database and Valkey, in one verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ops.cli import output
from ops.cli.options import json_option
from ops.cli.session import opened, settings, valkey
from store.errors import Refused, Unavailable
from store.settings import StoreSettings

if TYPE_CHECKING:
    from rich.text import Text


@click.command()
@json_option
def health(as_json: bool) -> None:
    """Exit 0 if the workers of this JOBS_HOME, the database and Valkey do their work; else 1, with the reasons."""
    from middleware.health import judge

    chosen = settings()
    at_store, at_valkey = _store_fault(chosen), _valkey_fault(chosen)
    verdict = judge(chosen.home.absolute())
    reasons = [*(fault for fault in (at_store, at_valkey) if fault), *verdict.reasons]
    if as_json:
        answers = {"store": at_store is None, "valkey": at_valkey is None, "workers": verdict.workers}
        output.emit({"healthy": not reasons, "reasons": reasons, "notes": verdict.notes} | answers)
    else:
        console = output.console()
        lines = [("database", at_store), ("Valkey", at_valkey)]
        console.print(output.facts({name: _word(fault) for name, fault in lines}))
        for worker in verdict.workers:
            console.print(f"worker {output.printable(worker['worker'])}: signed {worker['age']:.0f} s ago")
        console.print("healthy" if not reasons else "not healthy")
    for line in [*reasons, *verdict.notes]:
        output.complain(line)
    if reasons:
        raise click.exceptions.Exit(1)


def _word(fault: str | None) -> Text:
    return output.cell("answers", "green") if fault is None else output.cell("does not do its work", "red")


def _store_fault(chosen: StoreSettings) -> str | None:
    try:
        with opened(chosen) as store:
            store.ping()
    except (Unavailable, Refused) as error:
        return str(error)
    return None


def _valkey_fault(chosen: StoreSettings) -> str | None:
    found = valkey(chosen)
    if found is None:
        return f"no Valkey is up under {chosen.home}: the first worker starts one"
    try:
        found[1].ping()
    except Unavailable as error:
        return str(error)
    finally:
        found[1].close()
    return None
