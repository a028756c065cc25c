"""Public GPU job logs made into this project's trace format (contracts.md).

`convert` reads a source by its format, `to_trace` gives its jobs apps and arrivals, `write_trace` writes the CSV. Arrivals
count from the first taken job's submission. Sources know jobs, not apps: each job is an app of its own, unless `app_window_s`
says that jobs of one user, queue, gang size and model that follow each other within that time are one tuning app.
"""

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from themis_arbiter.sim import convert_gavel, convert_pai, convert_philly
from themis_arbiter.sim.convert_rows import BadRow, SourceJob, Tally, Unconvertible
from themis_arbiter.sim.convert_tables import HELIOS, ITP, TIRESIAS
from themis_arbiter.sim.whole_file import write_whole

FORMATS: Final = ("philly", "helios", "pai", "itp", "elasticflow", "gavel", "msr", "tiresias", "shockwave")
DECIMALS: Final = 3  # of seconds in a trace
APP_DIGITS: Final = 6

__all__ = ["FORMATS", "Conversion", "Options", "TraceRow", "Unconvertible", "convert", "trace_text", "write_trace"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a source is read. `models`: names that may stay, others are dropped and counted; None: all stay."""

    is_completed_only: bool = False
    is_strict: bool = False  # the first bad row is an error
    app_window_s: float = 0.0
    throughputs: Path | None = None
    gpu_type: str = "v100"
    models: frozenset[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRow:
    """A row of a trace, names and units as in contracts.md; None: the column stays empty."""

    app_id: str
    job_id: str
    arrival_s: float
    n_gpus: int
    duration_s: float
    max_gpus: int | None = None
    model: str = ""
    stop_after_s: float | None = None
    weight: float | None = None
    user: str = ""
    queue: str = ""
    cpu: float | None = None
    memory_gb: float | None = None

    @property
    def work_gpu_s(self) -> float:
        """Serial work in GPU-seconds: what the tuner lets it do."""
        return self.n_gpus * (self.duration_s if self.stop_after_s is None else min(self.duration_s, self.stop_after_s))


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """What a source gave. rows_read = len(jobs) + len(bad_rows) + sum of left_out."""

    rows_read: int
    jobs: tuple[TraceRow, ...]
    bad_rows: tuple[BadRow, ...]
    left_out: dict[str, int]
    unknown_status: dict[str, int]
    models_dropped: dict[str, int]


def convert(form: str, source: Path, options: Options) -> Conversion:
    """Read `source`, which is in format `form`. Errors: Unconvertible for a file that cannot be converted at all."""
    tally = Tally(is_strict=options.is_strict)
    _read(form, source, options, tally)
    dropped: dict[str, int] = {}
    jobs = tuple(_to_trace(tally.jobs, options, dropped))
    return Conversion(
        rows_read=tally.rows,
        jobs=jobs,
        bad_rows=tuple(tally.bad),
        left_out=dict(sorted(tally.left_out.items())),
        unknown_status=dict(sorted(tally.unknown_status.items())),
        models_dropped=dict(sorted(dropped.items())),
    )


def _read(form: str, source: Path, options: Options, tally: Tally) -> None:
    only = options.is_completed_only
    match form:
        case "philly":
            convert_philly.read(source, tally, is_completed_only=only)
        case "pai":
            convert_pai.read(source, tally, is_completed_only=only)
        case "helios":
            HELIOS.read(source, tally, is_completed_only=only)
        case "itp" | "elasticflow":
            ITP.read(source, tally, is_completed_only=only)
        case "tiresias":
            TIRESIAS.read(source, tally, is_completed_only=only)
        case "gavel" | "msr":
            if options.throughputs is None:
                raise Unconvertible(
                    f"{source}: Gavel's traces have steps and no durations; give --throughputs FILE (Gavel publishes one)"
                )
            throughputs = convert_gavel.read_throughputs(options.throughputs, options.gpu_type)
            convert_gavel.read_gavel(source, tally, throughputs)
        case "shockwave":
            convert_gavel.read_shockwave(source, tally)
        case _:
            raise Unconvertible(f"no format {form}; there are {', '.join(FORMATS)}")


def _to_trace(jobs: Sequence[SourceJob], options: Options, dropped: dict[str, int]) -> Iterable[TraceRow]:
    ordered = sorted(jobs, key=lambda j: (j.submitted_s, j.job_id))
    if not ordered:
        return
    start_s = ordered[0].submitted_s
    open_apps: dict[tuple[str, str, int, str], tuple[str, float]] = {}
    apps = 0
    for job in ordered:
        model = job.model
        if model and options.models is not None and model not in options.models:
            dropped[model] = dropped.get(model, 0) + 1
            model = ""
        key = (job.user, job.queue, job.n_gpus, job.model)
        app_id, last_s = open_apps.get(key, ("", 0.0))
        if not app_id or options.app_window_s <= 0 or job.submitted_s - last_s > options.app_window_s:
            app_id, apps = f"app{apps:0{APP_DIGITS}d}", apps + 1
        open_apps[key] = (app_id, job.submitted_s)
        yield TraceRow(
            app_id=app_id,
            job_id=job.job_id,
            arrival_s=job.submitted_s - start_s,
            n_gpus=job.n_gpus,
            duration_s=job.duration_s,
            model=model,
            weight=None if job.weight == 1.0 else job.weight,
            user=job.user,
            queue=job.queue,
            cpu=job.cpu,
            memory_gb=job.memory_gb,
        )


# --- writing ----------------------------------------------------------------------------------------------------------

NEEDED: Final = ("app_id", "job_id", "arrival_s", "n_gpus", "duration_s")
OPTIONAL: Final = ("max_gpus", "model", "stop_after_s", "weight", "user", "queue", "cpu", "memory_gb")


def trace_text(jobs: Sequence[TraceRow]) -> str:
    """The trace as CSV; of the optional columns only those that some job fills."""
    optional = [c for c in OPTIONAL if any(getattr(j, c) not in {None, ""} for j in jobs)]
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    columns = (*NEEDED, *optional)
    writer.writerow(columns)
    writer.writerows([_cell(getattr(job, c)) for c in columns] for job in jobs)
    return text.getvalue()


def _cell(value: str | float | None) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        # Rounding must not make a short job one of no time at all.
        rounded = round(value, DECIMALS)
        return f"{rounded if rounded > 0 or value == 0 else value:.12g}"
    return str(value)


def write_trace(path: Path, jobs: Sequence[TraceRow]) -> None:
    """Write the trace whole or not at all. Errors: OSError."""
    write_whole(path, trace_text(jobs))
