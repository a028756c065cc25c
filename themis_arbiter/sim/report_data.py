"""What a report shows, read from run directories (contracts.md) and cut to what a page can hold.

Everything comes from the files alone, so that a run of last year, or of another program that writes the same files, can be
shown. Two figures are made here from allocations, because no file has them: contention is the GPUs that present jobs want (a
job: the fewest it ever ran on) over the GPUs that ever ran anything; the queue is the jobs that have arrived, are not done and
hold no GPU.
"""

import csv
import json
import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from themis_arbiter.sim.report_series import Segment, averaged, merged, thinned

FILE_BYTES_MAX: Final = 4 * 1024**3
SUMMARY_BYTES_MAX: Final = 64 * 1024 * 1024
RUNS_MAX: Final = 64
LABEL_LENGTH_MAX: Final = 60
BINS: Final = 1_000  # of time: more than a screen has pixels for
SEGMENTS_MAX: Final = 240_000  # of all runs together: about 4 MB of page
GPU_ROWS_MAX: Final = 256  # rows of a timeline; a larger cluster shows every k-th GPU
APP_COLUMNS: Final = (
    *("arrival_s", "finish_s", "t_shared_s", "t_independent_s", "n_avg"),
    *("rho", "rho_own", "rho_paper", "gpu_seconds", "restarts"),
)


class ReportError(Exception):
    """A run directory that cannot be shown: what, where and what to do, in one line."""


@dataclass(frozen=True, slots=True)
class _Job:
    """A job's life in seconds; `end_s` is infinite where it never finished."""

    arrival_s: float
    end_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run, ready to be drawn. Times in seconds. Series have `BINS` values over the report's span."""

    label: str
    summary: Mapping[str, Any]
    apps: Mapping[str, tuple[float | None, ...]]  # APP_COLUMNS by app
    rho: tuple[float, ...]  # sorted
    gpu_names: tuple[str, ...]
    gpu_count: int
    timeline: tuple[tuple[Segment, ...], ...]  # one row a name in gpu_names
    timeline_step_s: float  # 0: exact
    contention: tuple[float, ...]
    queue: tuple[float, ...]
    present: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """All runs, over one span of time."""

    runs: tuple[Run, ...]
    span_s: float


@dataclass(frozen=True, slots=True)
class _Raw:
    """A run directory's files, parsed."""

    folder: Path
    summary: Mapping[str, Any]
    apps: Mapping[str, tuple[float | None, ...]]
    jobs: Mapping[tuple[str, str], _Job]
    held: Mapping[str, list[Segment]]  # by GPU
    running: Mapping[tuple[str, str], list[tuple[float, float]]]  # by job
    gang: Mapping[tuple[str, str], int]
    end_s: float


def read_report(run_dirs: Sequence[Path]) -> Report:
    """Everything that the report of these runs shows. Errors: ReportError."""
    if not 1 <= len(run_dirs) <= RUNS_MAX:
        raise ReportError(f"{len(run_dirs)} run directories; a report shows 1 to {RUNS_MAX}")
    raws = [_read(folder) for folder in run_dirs]
    span_s = max(max((raw.end_s for raw in raws), default=0.0), 1.0)
    labels = _labels(raws)
    share = SEGMENTS_MAX // len(raws)
    return Report(tuple(_run(raw, label, span_s, share) for raw, label in zip(raws, labels, strict=True)), span_s)


def _labels(raws: Sequence[_Raw]) -> list[str]:
    """A run is called after its policy; where two have one, after its directory too, and by number where that is not enough."""
    policies = [str(raw.summary.get("policy") or raw.folder.name)[:LABEL_LENGTH_MAX] for raw in raws]
    labels: list[str] = []
    for raw, policy in zip(raws, policies, strict=True):
        label = policy if policies.count(policy) == 1 else f"{policy} ({raw.folder.name[:LABEL_LENGTH_MAX]})"
        labels.append(label if label not in labels else f"{label} {len(labels) + 1}")
    return labels


def _run(raw: _Raw, label: str, span_s: float, segments_max: int) -> Run:
    gpu_names = sorted(raw.held, key=_natural)
    every = max(1, math.ceil(len(gpu_names) / GPU_ROWS_MAX))
    shown = gpu_names[::every]
    rows, step_s = thinned([merged(raw.held[name]) for name in shown], span_s, segments_max)
    rho_at = APP_COLUMNS.index("rho")
    waiting: list[tuple[float, float, float]] = []
    wanted: list[tuple[float, float, float]] = []
    for key, job in raw.jobs.items():
        end_s = min(job.end_s, span_s)
        wanted.append((job.arrival_s, end_s, raw.gang.get(key, 0)))
        waiting.append((job.arrival_s, end_s, 1.0))
        waiting += [(start, end, -1.0) for start, end in _union(raw.running.get(key, ()))]
    lives = [(values[0] or 0.0, span_s if values[1] is None else values[1], 1.0) for values in raw.apps.values()]
    gpus = max(1, len(gpu_names))
    return Run(
        label=label,
        summary=raw.summary,
        apps=raw.apps,
        rho=tuple(sorted(v for values in raw.apps.values() if (v := values[rho_at]) is not None)),
        gpu_names=tuple(shown),
        gpu_count=len(gpu_names),
        timeline=tuple(tuple(row) for row in rows),
        timeline_step_s=step_s,
        contention=tuple(v / gpus for v in averaged(wanted, span_s, BINS)),
        queue=tuple(max(0.0, v) for v in averaged(waiting, span_s, BINS)),
        present=tuple(averaged(lives, span_s, BINS)),
    )


def _union(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Spans without overlap: leases of one job follow each other, and may overlap where it grows."""
    out: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        if out and start <= out[-1][1]:
            out[-1] = (out[-1][0], max(out[-1][1], end))
        else:
            out.append((start, end))
    return out


def _natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """Sorts r2 before r10."""
    parts: list[tuple[int, int, str]] = []
    digits = ""
    for character in f"{name}\0":
        if character.isascii() and character.isdigit():
            digits += character
            continue
        if digits:
            parts.append((0, int(digits[:18]), digits))
            digits = ""
        parts.append((1, 0, character))
    return tuple(parts)


def cdf_share(rho: Sequence[float], at: float) -> float:
    """The share of apps with rho of at most `at`."""
    return bisect_right(rho, at) / len(rho) if rho else 0.0


# --- files ------------------------------------------------------------------------------------------------------------


def _read(folder: Path) -> _Raw:
    apps = {
        row["app_id"]: tuple(_number(row, column, folder / "apps.csv") for column in APP_COLUMNS)
        for row in _rows(folder / "apps.csv", ("app_id", "arrival_s", "finish_s", "rho"))
    }
    jobs: dict[tuple[str, str], _Job] = {}
    for row in _rows(folder / "jobs.csv", ("app_id", "job_id", "arrival_s", "finish_s")):
        end_s = _number(row, "finish_s", folder / "jobs.csv")
        arrival_s = _number(row, "arrival_s", folder / "jobs.csv") or 0.0
        jobs[row["app_id"], row["job_id"]] = _Job(arrival_s, math.inf if end_s is None else end_s)
    held: dict[str, list[Segment]] = {}
    running: dict[tuple[str, str], list[tuple[float, float]]] = {}
    gang: dict[tuple[str, str], int] = {}
    last_s = 0.0
    path = folder / "allocations.csv"
    for row in _rows(path, ("app_id", "job_id", "gpus", "start_s", "end_s")):
        start_s, end_s = _number(row, "start_s", path) or 0.0, _number(row, "end_s", path) or 0.0
        gpus = [g for g in row["gpus"].split(";") if g]
        key = row["app_id"], row["job_id"]
        for gpu in gpus:
            _go_on(held.setdefault(gpu, []), (start_s, end_s, row["app_id"]))
        _go_on(running.setdefault(key, []), (start_s, end_s))
        gang[key] = min(len(gpus), gang.get(key, len(gpus)))
        last_s = max(last_s, end_s)
    ends = [v for values in apps.values() if (v := values[1]) is not None]
    return _Raw(folder, _summary(folder / "summary.json"), apps, jobs, held, running, gang, max([last_s, *ends]))


def _go_on(spans: list[Any], span: Any) -> None:
    """Add a span, start and end first; what follows on the one before it without a gap, and is alike, makes it longer."""
    if spans and spans[-1][1] == span[0] and spans[-1][2:] == span[2:]:
        spans[-1] = (spans[-1][0], *span[1:])
    else:
        spans.append(span)


def _rows(path: Path, columns: Sequence[str]) -> Iterable[dict[str, str]]:
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise ReportError(f"{path}: larger than {FILE_BYTES_MAX} bytes; report a shorter run")
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, restval="")
            missing = [c for c in columns if c not in (reader.fieldnames or ())]
            if missing:
                raise ReportError(f"{path}: line 1: no column {', '.join(missing)}; name the output of `themis simulate`")
            yield from reader
    except OSError as error:
        raise ReportError(f"{path}: cannot be read: {error.strerror or error}; name the output of `themis simulate`") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise ReportError(f"{path}: not CSV in UTF-8: {error}; run the simulation again") from None


def _number(row: Mapping[str, str], column: str, path: Path) -> float | None:
    """The number in a column; None where it is empty (an app or job that never finished)."""
    text = (row.get(column) or "").strip()
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ReportError(f"{path}: column {column}: {ascii(text)[:80]} is not a number; run the simulation again")
    return value


def _summary(path: Path) -> Mapping[str, Any]:
    try:
        with path.open("rb") as file:
            document = json.loads(file.read(SUMMARY_BYTES_MAX))
    except OSError as error:
        raise ReportError(f"{path}: cannot be read: {error.strerror or error}; name the output of `themis simulate`") from None
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise ReportError(f"{path}: not a JSON object; run the simulation again")
    return document
