"""`themis sweep`: many simulations, their figures together."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import click

from themis_arbiter.cli.failures import Interrupted, NotSo, WrongUse
from themis_arbiter.cli.options import JSON_OPTION
from themis_arbiter.cli.parameters import ResultFolder
from themis_arbiter.cli.simulate import check_arguments
from themis_arbiter.cli.tables import print_table
from themis_arbiter.obs.labels import legible, visible
from themis_arbiter.server.documents import dumps
from themis_arbiter.sim.run_folder import check_apart
from themis_arbiter.sim.sweep import RESULTS, Axis, Point, SweepError, parse_axis, parse_seeds, plan
from themis_arbiter.sim.trace import TraceError

SHOWN: Final = ("max_rho", "p95_rho", "frac_rho_le_1_05", "avg_jct_s", "gpu_hours", "restarts")


def _axes(_context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]) -> list[Axis]:
    try:
        return [parse_axis(value) for value in values]
    except SweepError as problem:
        raise WrongUse(f"--grid: {legible(str(problem))}") from problem


def _seeds(_context: click.Context, _parameter: click.Parameter, value: str) -> tuple[int, ...]:
    try:
        return parse_seeds(value)
    except SweepError as problem:
        raise WrongUse(f"--seeds: {legible(str(problem))}") from problem


@click.command()
@click.argument("fixed", nargs=-1, metavar="-- SIMULATE-OPTIONS", type=click.UNPROCESSED)
@click.option("--out", required=True, type=ResultFolder(), help="Folder for the points and the results.")
@click.option(
    "--grid",
    "axes",
    multiple=True,
    callback=_axes,
    metavar="FLAG=A,B",
    help="A flag of simulate, or set:KEY, and its values; repeat.",
)
@click.option(
    "--seeds", default="0", show_default=True, callback=_seeds, metavar="0-4,7", help="Each combination under each seed."
)
@click.option("--jobs", type=click.IntRange(1, 4_096), help="Points at a time. [default: a core each]")
@click.option(
    "--dask", "dask_address", metavar="ADDRESS", help="Run on this Dask scheduler instead; its workers must see the same files."
)
@click.option("--summaries-only", "is_summary_only", is_flag=True, help="Of each point keep the summary only.")
@click.option("--dry-run", "is_dry", is_flag=True, help="Print the commands and end.")
@JSON_OPTION
def sweep(
    fixed: tuple[str, ...], out: Path, axes: list[Axis], seeds: tuple[int, ...], is_dry: bool, as_json: bool, **how: Any
) -> None:
    """Simulate every combination of some flags, under several seeds.

    What stands after -- goes to every `themis simulate`; {seed} in it, or in a value, becomes the seed:

    themis sweep --out S --grid policy=themis,srsf --grid lease=300,600 --seeds 0-4 -- --trace T --cluster C

    Started again, it does only what is not done. Means over seeds with 95 % intervals are in results.csv and results.json, each
    point in points.csv. Exit status 1 where a point failed.
    """
    from themis_arbiter.sim import sweep_run

    out = out.absolute()
    try:
        points = plan(axes, seeds, fixed)
        if is_dry:
            for point in points:
                click.echo(visible(point.command(out)))
            return
        check_points(points, out)
        out.mkdir(parents=True, exist_ok=True)
        works = [sweep_run.Work(point=p, out=out, folder=Path.cwd(), is_summary_only=how["is_summary_only"]) for p in points]
        address = how["dask_address"]
        executor = sweep_run.dask(address) if address else sweep_run.cores(how["jobs"] or sweep_run.core_count())
        with _progress(len(works), out) as tell:
            outcomes = sweep_run.run_all(works, executor, tell)
        document = sweep_run.write_results(out, outcomes)
    except sweep_run.SweepInterrupted as stopped:
        raise Interrupted(_kept(out, stopped.done, stopped.count)) from None
    except (SweepError, TraceError) as problem:
        raise WrongUse(legible(str(problem))) from problem
    except OSError as error:
        raise NotSo(f"{visible(str(out))}: cannot be written: {error.strerror or error}") from error
    if document["same_for_all_seeds"]:
        same, all_of = len(document["same_for_all_seeds"]), len(document["results"])
        click.echo(f"themis: the seed changes nothing in {same} of {all_of} combinations: one run each, no interval", err=True)
    if as_json:
        click.echo(dumps(document, indent=2))
    else:
        _print(document, [axis.name for axis in axes])
    if document["failed"]:
        raise NotSo(f"{len(document['failed'])} of {len(points)} points failed; start the sweep again to try them again")


def check_points(points: Sequence[Point], out: Path) -> None:
    """Refuse a grid with a point that cannot run, before any does. Errors: WrongUse, TraceError."""
    has_seeds = any(first.arguments[:-1] != second.arguments[:-1] for first, second in pairwise(points[:2]))
    seen: set[tuple[tuple[str, str], ...]] = set()
    for point in points:
        if has_seeds or point.settings not in seen:  # seeds alone change nothing that could be wrong
            seen.add(point.settings)
            arguments = point.arguments[1:]
            try:
                inputs = check_arguments(arguments, point.folder(out))
            except click.ClickException as problem:
                raise WrongUse(f"{problem.format_message()}; no point was run, see --dry-run") from None
            check_apart([out / name for name in RESULTS], inputs)


def _kept(out: Path, done: Sequence[Any], count: int) -> str:
    """Write what is done, and say so. Errors: OSError."""
    from themis_arbiter.sim import sweep_run

    where = f", their results in {visible(str(out))}" if done else ""
    if done:
        sweep_run.write_results(out, done)
    return f"interrupted; {len(done)} of {count} points are done{where}; start the same sweep again for the rest"


@contextmanager
def _progress(total: int, out: Path) -> Iterator[Any]:
    """A bar on a terminal; in a log, a line a point."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    from themis_arbiter.sim.sweep_run import Outcome

    console = Console(file=sys.stderr, markup=False, highlight=False, emoji=False, soft_wrap=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    count = 0
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("points", total=total)

        def tell(outcome: Outcome) -> None:
            nonlocal count
            count += 1
            word = "was done" if outcome.is_from_before else f"FAILED ({outcome.reason})" if outcome.summary is None else "done"
            console.print(f"[{count}/{total}] {visible(word)}: {visible(outcome.point.command(out))}")
            bar.advance(task)

        yield tell


def _print(document: dict[str, Any], axes: Sequence[str]) -> None:
    rows = []
    for entry in document["results"]:
        cells = [_cell(entry["figures"].get(name)) for name in SHOWN]
        rows.append([*(entry["settings"][axis] for axis in axes), *cells])
    print_table([*((axis.upper(), False) for axis in axes), *((name.upper(), True) for name in SHOWN)], rows)


def _cell(found: dict[str, Any] | None) -> str:
    if found is None:
        return "-"
    half = "" if found["low"] is None else f" ±{(found['high'] - found['low']) / 2:.3g}"
    return f"{found['mean']:,.5g}{half}"
