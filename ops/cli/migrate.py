"""``migrate``: the schema, the tables of the subjects, and the published job types."""

from __future__ import annotations

import click

from ops.cli import output
from ops.cli.options import json_option
from ops.cli.session import settings_of_all
from store.errors import StoreUnavailable


@click.command()
@json_option
def migrate(as_json: bool) -> None:
    """Bring the database up to date and publish the job types that are declared here.

    Running it again, or in several places at once, is harmless.
    """
    settings_of_all()  # what is wrong with them is told before anything else is
    import actors  # noqa: F401 - declares the types and their tables
    from middleware.build import broker

    runtime = broker().runtime
    try:
        applied = runtime.store.migrate(runtime.subjects)
        runtime.publish()
        published = {document.key for document in runtime.store.list("policy")}
        if missing := sorted(set(runtime.policies) - published):
            raise StoreUnavailable(f"the job types {', '.join(missing)} could not be published: run the same again")
    finally:
        runtime.close()
    if as_json:
        output.emit({"affected": applied, "types": sorted(published)})
        return
    done = f"{applied} migrations applied" if applied else "the database is up to date"
    output.console().print(f"{done}; job types: {', '.join(map(output.printable, sorted(published))) or 'none'}")
