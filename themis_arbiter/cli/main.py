"""`themis`: the command's root. Exit status: 0 done, 1 the thing asked for is not so, 2 wrong use or unreadable input."""

import contextlib
import os
import sys
from collections.abc import Sequence

# gRPC's C core logs to stderr on its own; what matters of that arrives as errors. Set before its first import.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

import click

from themis_arbiter import __version__
from themis_arbiter.cli import admin, admin_store, audit, compare, listing, processes, replay, simulate, sweep, trace
from themis_arbiter.cli.failures import DONE, INTERRUPTED, NOT_SO


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="themis", message="%(prog)s %(version)s")
def cli() -> None:
    """Finish-time-fair GPU scheduling by auctioned leases."""


for _command in (
    processes.serve,
    processes.bridge,
    processes.check_config,
    listing.apps,
    listing.leases,
    listing.rounds,
    listing.nodes,
    listing.explain,
    admin.admin,
    trace.trace,
    simulate.simulate,
    compare.compare,
    sweep.sweep,
    replay.replay,
    audit.audit,
):
    cli.add_command(_command)
for _command in admin_store.VERBS:
    admin.admin.add_command(_command)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status; problems are one line on stderr."""
    try:
        result = cli.main(args=None if arguments is None else list(arguments), prog_name="themis", standalone_mode=False)
    except click.ClickException as problem:
        click.echo(f"themis: {problem.format_message()}{_advice(problem)}", err=True)
        return problem.exit_code
    except click.Abort:
        click.echo("themis: interrupted", err=True)
        return INTERRUPTED
    except BrokenPipeError:
        # Who read our output has gone (`themis apps | head`). Python would fail again when it flushes at its end.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return NOT_SO
    except OSError as problem:
        click.echo(f"themis: cannot write the output: {problem.strerror}", err=True)
        return NOT_SO
    return result if isinstance(result, int) else DONE


def _advice(problem: click.ClickException) -> str:
    if isinstance(problem, click.UsageError) and problem.ctx is not None:
        return f" (`{problem.ctx.command_path} --help` shows how it is used)"
    return ""


def main() -> None:
    """The console script."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # A terminal that cannot show a name gets its escape instead of a traceback.
            stream.reconfigure(errors="backslashreplace")
    sys.exit(run())
