"""``dramaturg``, the command line: which commands there are, and what becomes of their errors.

Exit codes: 0 done, 1 refused with a reason (or a service that does not answer), 2 usage, 130 interrupted. Each command
is imported when it is called, so that ``dramaturg --help`` costs nothing.
"""

from __future__ import annotations

import errno
import importlib
import io
import os
import sys
from collections.abc import Sequence

import click

from ops.cli.output import Unwritable, complain, emit
from store.errors import DramaturgError, UsageError

#: name -> (module, attribute, the line in ``--help``)
COMMANDS: dict[str, tuple[str, str, str]] = {
    "up": ("ops.cli.up", "up", "Run the main job on a repository, with embedded engines, live in this terminal."),
    "migrate": ("ops.cli.migrate", "migrate", "Bring the database up to date and publish the job types."),
    "wake": ("ops.cli.wake", "wake", "Ask for a job: it runs once, soon after, or when it is due."),
    "show": ("ops.cli.jobs", "show", "One job: its row and its history."),
    "list": ("ops.cli.jobs", "list_jobs", "Jobs that match, a line each."),
    "stats": ("ops.cli.jobs", "stats", "Counts of jobs by domain, queue and type."),
    "cancel": ("ops.cli.cancel", "cancel", "Cancel one job, or all that match."),
    "reschedule": ("ops.cli.reschedule", "reschedule", "Another time for one queued job, or for all that match."),
    "requeue": ("ops.cli.requeue", "requeue", "Queue quarantined, failed or cancelled jobs again."),
    "prune": ("ops.cli.prune", "prune", "Delete jobs that have ended, by id, filters and age."),
    "sweep": ("ops.cli.sweep", "sweep", "Maintenance by hand: retention, ttl, integrity."),
    "archive": ("ops.cli.archive", "archive", "Deleted jobs that were kept: meta, show."),
    "queue": ("ops.cli.queue", "queue", "Pause, resume and drain queues; where they stand."),
    "quota": ("ops.cli.quota", "quota", "How much of a domain's or an owner's work there may be: set, list, remove."),
    "events": ("ops.cli.events", "events", "Lifecycle events: follow them, consumers, on and off, prune."),
    "sla": ("ops.cli.sla", "sla", "Limits on how long jobs wait and run: set, list, remove, breaches."),
    "attach": ("ops.cli.attachments", "attach", "Put a file or a log line on a job."),
    "attachments": ("ops.cli.attachments", "attachments", "Files and log lines of a job."),
    "crypto": ("ops.cli.crypto", "crypto", "What is encrypted at rest: rotate the key."),
    "proposals": ("ops.cli.proposals", "proposals", "Proposals of git repositories: open, list, merge, close, reopen."),
    "health": ("ops.cli.health", "health", "Whether the workers, the database and Valkey do their work."),
}

USAGE, FAILED, INTERRUPTED = 2, 1, 130


class Commands(click.Group):
    """A group that imports a command when it is wanted."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, attribute, _ = COMMANDS[cmd_name]
        found = getattr(importlib.import_module(module), attribute)
        assert isinstance(found, click.Command)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, _, line) in COMMANDS.items()])


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(package_name="dramaturg")
def cli() -> None:
    """Durable, fenced jobs: a job is a row, the row is the truth.

    The database is JOBS_DB_URL (unset: SQLite under JOBS_HOME), Valkey is JOBS_VALKEY_URL (unset: an embedded one under
    JOBS_HOME). Every command takes --json: then standard output holds one JSON value and nothing else.
    """


def entry() -> int:
    """The program: ``main`` in a process of its own, whose logging is ours to set up."""
    _tame_logs()
    return main()


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and answer its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    as_json = "--json" in (words[: words.index("--")] if "--" in words else words)
    if sys.stdout is None:
        complain("standard output is closed: give it a place to go, such as /dev/null")
        return FAILED
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a character that the terminal lacks is no error
    try:
        code = _run(words, as_json)
        sys.stdout.flush()
    except OSError as error:
        # At exit Python would complain about what it could not write.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):  # whoever read our output may go
            complain(f"standard output can't be written ({errno.errorcode.get(error.errno or 0, 'unknown')})")
        return FAILED
    return code


def _run(words: list[str], as_json: bool) -> int:
    """The command's exit code. Raises OSError where standard output can't be written, and nothing else."""
    try:
        code = cli.main(words, prog_name="dramaturg", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.ctx.get_help() if error.ctx is not None else "", err=True)
        return USAGE
    except click.UsageError as error:
        return _failed("usage", _with_hint(error), USAGE, as_json)
    except click.ClickException as error:
        return _failed("refused", error.format_message(), FAILED, as_json)
    except DramaturgError as error:
        return _failed(error.code, str(error), USAGE if isinstance(error, UsageError) else FAILED, as_json)
    except (click.Abort, KeyboardInterrupt):
        return _failed("interrupted", "interrupted", INTERRUPTED, as_json)
    except (BrokenPipeError, Unwritable):
        raise
    except Exception as error:  # the last door: a foreign text must not reach the terminal
        if isinstance(error, OSError) and _raised_in(error) == "click.utils":
            raise  # click could not print its help or version
        return _unexpected(error, as_json)
    return code if isinstance(code, int) else 0


def _raised_in(error: Exception) -> str:
    """The module whose code raised it."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else str(trace.tb_frame.f_globals.get("__name__", ""))


def _tame_logs() -> None:
    """Our log lines go to standard error, and libraries' nowhere: they may hold foreign texts, and what matters of them
    comes as an error of ours."""
    import logging

    import structlog

    root = logging.getLogger()
    if not root.handlers:
        root.addHandler(logging.NullHandler())
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


def _failed(code: str, message: str, exit_code: int, as_json: bool) -> int:
    complain(message)
    if as_json:
        emit({"error": {"code": code, "message": message}})
    return exit_code


def _unexpected(error: Exception, as_json: bool) -> int:
    from middleware.failures import describe

    failure = describe(error)
    message = f"unexpected {failure.kind} ({failure.code}) at {failure.place or 'an unknown place'}"
    return _failed("unexpected", message, FAILED, as_json)


def _with_hint(error: click.UsageError) -> str:
    message = error.format_message()
    return message if error.ctx is None else f"{message}\nSee: {error.ctx.command_path} --help"


if __name__ == "__main__":
    sys.exit(entry())
