"""`themis trace`: convert public logs, generate workloads, tell what is in a trace."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import click

from themis_arbiter.cli.failures import NotSo, WrongUse
from themis_arbiter.cli.options import JSON_OPTION
from themis_arbiter.cli.parameters import STDOUT, Finite, ResultFile, once
from themis_arbiter.cli.tables import print_table
from themis_arbiter.obs.labels import legible, visible
from themis_arbiter.server.documents import dumps
from themis_arbiter.server.models import read_models
from themis_arbiter.sim.clusterfile import read_whole_cluster
from themis_arbiter.sim.convert import FORMATS, Conversion, Options, TraceRow, Unconvertible, convert, trace_text, write_trace
from themis_arbiter.sim.generate import STYLES, WORKLOADS, WorkloadSpec, generate, load_of
from themis_arbiter.sim.generate_curves import read_curves
from themis_arbiter.sim.plain_numbers import finite, whole
from themis_arbiter.sim.run_folder import check_apart
from themis_arbiter.sim.trace import TraceError, read_trace
from themis_arbiter.sim.tracestats import trace_stats

BAD_ROWS_SHOWN_MAX: Final = 100


@click.group()
def trace() -> None:
    """Traces: convert public logs, generate workloads, tell what is in one."""


@trace.command("convert")
@click.argument("form", metavar="FORMAT", type=click.Choice(FORMATS))
@click.argument("source", metavar="IN", type=click.Path(path_type=Path))
@click.argument("out", metavar="OUT", type=ResultFile())
@click.option("--strict", "is_strict", is_flag=True, help="Stop at the first bad row and write nothing.")
@click.option("--completed-only", "is_completed_only", is_flag=True, help="Only jobs whose status says that they completed.")
@click.option(
    "--app-window",
    "app_window_s",
    default=0.0,
    show_default=True,
    type=Finite(0.0),
    metavar="SECONDS",
    help="Jobs of one user, queue, gang size and model that follow within this are one app; 0: each job is an app.",
)
@click.option(
    "--models", "models_file", type=click.Path(path_type=Path), help="Drop model names that are not in this models file."
)
@click.option(
    "--throughputs", type=click.Path(path_type=Path), help="Gavel's throughputs file, for its traces (they have steps only)."
)
@click.option("--gpu-type", default="v100", show_default=True, help="The GPU type in that file.")
@JSON_OPTION
def convert_command(
    form: str, source: Path, out: Path, is_strict: bool, models_file: Path | None, as_json: bool, **how: Any
) -> None:
    """Convert a public job log into a trace.

    IN is the log: philly cluster_job_log, helios cluster_log.csv, pai the folder with its job and task tables, the others the
    file with the jobs; names that end in .gz are unpacked. OUT is a CSV file, - for stdout.

    Every row read is taken, bad or left out, and the three add up. Exit status 2 where nothing could be taken.
    """
    _refuse_two_on_stdout(out, as_json=as_json)
    try:
        check_apart([out], {"IN": source, "--models": models_file, "--throughputs": how["throughputs"]})
        done = convert(form, source, Options(models=_model_names(models_file), is_strict=is_strict, **how))
    except (TraceError, Unconvertible) as problem:
        raise WrongUse(legible(str(problem))) from problem
    for bad in done.bad_rows[:BAD_ROWS_SHOWN_MAX]:
        click.echo(f"themis: {legible(str(bad))}", err=True)
    if len(done.bad_rows) > BAD_ROWS_SHOWN_MAX:
        click.echo(f"themis: and {len(done.bad_rows) - BAD_ROWS_SHOWN_MAX} more bad rows", err=True)
    if not done.jobs:
        raise WrongUse(f"{visible(str(source))}: no usable row in {done.rows_read}; nothing was written")
    _write(out, done.jobs)
    _tell(_counts(done), as_json=as_json, is_on_stderr=out == STDOUT)


def _model_names(path: Path | None) -> frozenset[str] | None:
    if path is None:
        return None
    model, problems = read_models(path)
    if problems:
        raise WrongUse("\nthemis: ".join(legible(p) for p in problems))
    return frozenset(model.by_model)


def _counts(done: Conversion) -> dict[str, Any]:
    return {
        "rows_read": done.rows_read,
        "jobs": len(done.jobs),
        "apps": len({j.app_id for j in done.jobs}),
        "bad_rows": len(done.bad_rows),
        "left_out": done.left_out,
        "unknown_status": done.unknown_status,
        "models_dropped": done.models_dropped,
    }


def _write(out: Path, jobs: Sequence[TraceRow]) -> None:
    if out == STDOUT:
        click.echo(trace_text(jobs), nl=False)
        return
    try:
        write_trace(out, jobs)
    except OSError as error:
        raise NotSo(f"{visible(str(out))}: cannot be written: {error.strerror or error}") from error


def _refuse_two_on_stdout(out: Path, *, as_json: bool) -> None:
    if as_json and out == STDOUT:
        raise WrongUse("--json: stdout has the trace already where OUT is -; name a file, or leave --json out")


def _tell(document: dict[str, Any], *, as_json: bool, is_on_stderr: bool = False) -> None:
    """The document, or its entries as rows; a mapping gives one row an entry."""
    if as_json:
        click.echo(dumps(document, indent=2))
        return
    rows: list[list[str]] = []
    for key, value in document.items():
        if isinstance(value, dict):
            rows += [[f"{key}: {inner}", _cell(v)] for inner, v in value.items()]
        elif value is not None:
            rows.append([key, _cell(value)])
    print_table((("", False), ("", True)), rows, sys.stderr if is_on_stderr else None)


def _cell(value: Any) -> str:
    return (
        f"{value:,.6g}"
        if isinstance(value, float)
        else f"{value:,}"
        if isinstance(value, int)
        else "-"
        if value is None
        else str(value)
    )


# --- generate ---------------------------------------------------------------------------------------------------------


def _mix_of(
    key: Callable[[str], Any], what: str
) -> Callable[[click.Context, click.Parameter, str | None], dict[Any, float] | None]:
    """A callback that reads NAME=SHARE,NAME=SHARE."""

    def parse(_context: click.Context, _parameter: click.Parameter, value: str | None) -> dict[Any, float] | None:
        if value is None:
            return None
        pairs: list[tuple[str, float]] = []
        for part in value.split(","):
            name, separator, share = part.partition("=")
            try:
                pairs.append((str(key(name.strip())), finite(share) if separator else 1.0))
            except ValueError:
                raise click.BadParameter(f"{part[:60]!r} is not {what}=SHARE") from None
        return {key(name): share for name, share in once(pairs).items()}

    return parse


@trace.command("generate")
@click.argument("out", metavar="OUT", type=ResultFile())
@click.option("--workload", default="w1", show_default=True, type=click.Choice(WORKLOADS), help="Which of the paper's two.")
@click.option("--seed", default=0, show_default=True, help="Equal seeds and options give equal bytes.")
@click.option("--apps", default=85, show_default=True, help="How many apps.")
@click.option("--gpus", default=256, show_default=True, help="GPUs of the cluster that --load is about.")
@click.option(
    "--load", type=Finite(), help="GPU time of work over GPU time there is while apps arrive. [default: the paper's arrivals]"
)
@click.option("--burst", type=Finite(), help="Share of apps that arrive close after the one before. [default: 0.8]")
@click.option("--burst-gap", "burst_gap_s", type=Finite(), metavar="SECONDS", help="How close, on average. [default: 183]")
@click.option(
    "--models", metavar="MIX", callback=_mix_of(str, "MODEL"), help="Models by share of apps: vgg16=0.3,resnet50=0.7."
)
@click.option("--gangs", metavar="MIX", callback=_mix_of(whole, "GPUS"), help="Gang sizes by share of jobs: 1=0.5,4=0.5.")
@click.option(
    "--styles",
    metavar="MIX",
    callback=_mix_of(str, "STYLE"),
    help=f"Tuning styles by share of apps: {', '.join(STYLES)}. [default: parallel=1]",
)
@click.option("--eta", "halving_eta", type=int, help="halving: one job in so many goes on after each rung. [default: 2]")
@click.option(
    "--curves", "curves_file", type=click.Path(path_type=Path), help="curves: CSV of real training runs. [default: synthetic]"
)
@JSON_OPTION
def generate_command(out: Path, curves_file: Path | None, as_json: bool, **what: Any) -> None:
    """Generate a workload into OUT (- for stdout).

    Apps are tuning apps as the Themis paper describes them. A style says which jobs run to their end: `single` one job,
    `parallel` all, `halving` one in --eta after each rung, `curves` those whose learning curve stays above the median.
    """
    _refuse_two_on_stdout(out, as_json=as_json)
    try:
        check_apart([out], {"--curves": curves_file})
        curves = None if curves_file is None else read_curves(curves_file)
        spec = WorkloadSpec(curves=curves, **{key: value for key, value in what.items() if value is not None})
        jobs = generate(spec)
    except (TraceError, ValueError, Unconvertible) as problem:
        raise WrongUse(legible(str(problem))) from problem
    _write(out, jobs)
    told = {
        "apps": spec.apps,
        "jobs": len(jobs),
        "work_gpu_h": sum(j.work_gpu_s for j in jobs) / 3_600,
        "load": load_of(jobs, spec.gpus),
    }
    _tell(told, as_json=as_json, is_on_stderr=out == STDOUT)


# --- stats ------------------------------------------------------------------------------------------------------------


def _note(line: str) -> None:
    click.echo(f"themis: {legible(line)}", err=True)


@trace.command("stats")
@click.argument("file", metavar="TRACE", type=click.Path(path_type=Path))
@click.option("--cluster", "cluster_file", type=click.Path(path_type=Path), help="Tell the load on this cluster.")
@click.option("--strict", "is_strict", is_flag=True, help="Stop at the first bad row.")
@JSON_OPTION
def stats_command(file: Path, cluster_file: Path | None, is_strict: bool, as_json: bool) -> None:
    """Tell what is in TRACE: apps, jobs, gangs, work, arrivals, load."""
    told: list[str] = []
    try:
        cluster = None if cluster_file is None else read_whole_cluster(cluster_file)
        read = read_trace(file, strict=is_strict, tell=told.append, note=_note)
        found = trace_stats(read) if cluster is None else trace_stats(read, cluster.topology, cluster.capacity)
    except TraceError as problem:
        raise WrongUse(legible(str(problem))) from problem
    finally:
        for line in told[:BAD_ROWS_SHOWN_MAX]:
            click.echo(f"themis: {legible(line)}", err=True)
    if len(told) > BAD_ROWS_SHOWN_MAX:
        click.echo(f"themis: and {len(told) - BAD_ROWS_SHOWN_MAX} more bad rows", err=True)
    _tell(found, as_json=as_json)
