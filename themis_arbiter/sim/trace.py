"""The trace: CSV of jobs by app, as contracts.md has it. Bad rows are told with line, column and reason, and counted.

Times in a trace are seconds and may have any fraction; here they stay the numbers that were written. What the engine gets is
whole milliseconds, rounded up, so that nothing runs before its arrival.
"""

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from math import inf
from pathlib import Path
from typing import Any, Final
from unicodedata import category

from themis_arbiter.core.fluid_types import Types
from themis_arbiter.core.gpu_speeds import gpus_for, merged, parse_speeds, reach_of
from themis_arbiter.core.types import AppId, GpuSpeeds, LossCurve, OnLeaseEnd
from themis_arbiter.sim.plain_numbers import finite

FILE_BYTES_MAX: Final = 512 * 1024 * 1024
ROWS_MAX: Final = 1_000_000
FIELD_CHARS_MAX: Final = 128 * 1024
SHOWN_CHARS_MAX: Final = 60
GPUS_MAX: Final = 1_000_000  # of one job
SECONDS_MAX: Final = 1e11  # three thousand years; sums of milliseconds stay exact
NO_NAMES: Final = frozenset({"Cc", "Zl", "Zp"})  # characters of these categories are in no name: they would break lines
CURVE_MAX: Final = 1e12  # of each parameter of a loss curve
WEIGHT_MAX: Final = 1e300  # sums of a million of them are still numbers

REQUIRED: Final = ("app_id", "job_id", "arrival_s", "n_gpus", "duration_s")
OPTIONAL: Final = (
    *("max_gpus", "model", "stop_after_s", "weight", "user", "queue", "on_lease_end", "cpu", "memory_gb", "loss_curve"),
    "gpu_speeds",
)
CLOSE: Final = 0.75  # how alike the name of a column that nobody knows is to one that is meant, as difflib counts
SURPLUS: Final = "\0surplus"  # no header can hold it: a key for what stands beyond the last column
JobKey = tuple[AppId, str]


class TraceError(Exception):
    """An input that cannot be used: what, where and what to do, in one line."""


class _BadRow(Exception):
    """Column and reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceJob:
    """One row. Seconds; `duration_s` is on `gang` GPUs at the best placement, already cut to `stop_after_s`."""

    app_id: AppId
    job_id: str
    arrival_s: float
    gang: int
    max_gpus: int
    duration_s: float
    model: str = ""
    weight: float = 1.0
    user: str = ""
    queue: str = ""
    on_lease_end: OnLeaseEnd = OnLeaseEnd.CHECKPOINT
    cpu: float = 0.0
    memory_gb: float = 0.0
    loss_curve: LossCurve | None = None
    gpu_speeds: GpuSpeeds = ()

    @property
    def key(self) -> JobKey:
        """App and job; unique in a trace."""
        return self.app_id, self.job_id

    @property
    def work_gpu_s(self) -> float:
        """Serial work, on a GPU of speed 1."""
        return self.gang * self.duration_s


@dataclass(frozen=True, slots=True)
class Trace:
    """The usable rows in order of arrival, then app and job; and what was wrong with the others."""

    jobs: tuple[TraceJob, ...]
    rows: int = 0
    bad_rows: int = 0

    def apps(self) -> dict[AppId, tuple[TraceJob, ...]]:
        """Jobs by app, apps by name; an app's first job is its first by arrival, then job id."""
        found: dict[AppId, list[TraceJob]] = {}
        for job in self.jobs:
            found.setdefault(job.app_id, []).append(job)
        return {app_id: tuple(found[app_id]) for app_id in sorted(found)}


def _nobody(_: str) -> None:
    """Where nobody wants to hear."""


def read_trace(
    path: Path, *, strict: bool = False, tell: Callable[[str], None] = _nobody, note: Callable[[str], None] = _nobody
) -> Trace:
    """The trace in `path`; each bad row goes to `tell` as one line, what may be a mistake and is none by the rules to `note`.

    Errors: TraceError where the file cannot be read, has no usable row, or (`strict`) at the first bad row.
    """
    reader = _open(path)
    for line in _unknown_columns(reader.fieldnames or ()):
        note(f"{path}: line 1: {line}")
    weights: dict[AppId, set[float]] = {}
    jobs: dict[JobKey, TraceJob] = {}
    rows = bad = 0
    try:
        for row in reader:
            rows += 1
            if rows > ROWS_MAX:
                raise TraceError(f"{path}: more than {ROWS_MAX} rows; cut the trace into windows")
            try:
                job = _job(row)
                if job.key in jobs:
                    raise _BadRow(f"job_id: {_shown(job.job_id)} of app {_shown(job.app_id)} is there already")
            except _BadRow as problem:
                bad += 1
                line = f"{path}: line {reader.line_num}: column {problem}"
                if strict:
                    raise TraceError(f"{line}; put it right, or leave --strict out") from None
                tell(line)
                continue
            jobs[job.key] = job
            if _text(row, "weight"):
                weights.setdefault(job.app_id, set()).add(job.weight)
    except csv.Error as problem:
        raise TraceError(f"{path}: line {reader.line_num}: not CSV: {problem}; put it right") from None
    if not jobs:
        raise TraceError(f"{path}: no usable row of {rows}; a trace needs {','.join(REQUIRED)}")
    at_odds = sorted(app_id for app_id, given in weights.items() if len(given) > 1)
    if at_odds:
        names = ", ".join(_shown(name) for name in at_odds[:5])
        note(f"{path}: rows of one app differ in weight, and that of its first row by arrival and job_id counts: {names}")
    ordered = sorted(jobs.values(), key=lambda j: (j.arrival_s, j.key))
    return Trace(jobs=tuple(ordered), rows=rows, bad_rows=bad)


def read_text(path: Path, bytes_max: int) -> str:
    """A UTF-8 file, with or without a BOM. Errors: TraceError."""
    try:
        with path.open("rb") as file:
            raw = file.read(bytes_max + 1)
    except OSError as problem:
        raise TraceError(f"{path}: cannot be read: {problem.strerror or problem}; name a file that is there") from None
    if len(raw) > bytes_max:
        raise TraceError(f"{path}: larger than {bytes_max} bytes; cut it into parts")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise TraceError(f"{path}: not UTF-8 (byte {problem.start}); save it as UTF-8") from None


def open_table(path: Path, required: Iterable[str], bytes_max: int = FILE_BYTES_MAX) -> "csv.DictReader[str]":
    """A CSV reader whose header names `required`. Errors: TraceError."""
    csv.field_size_limit(FIELD_CHARS_MAX)  # of the whole process, and other readers set theirs
    reader = csv.DictReader(io.StringIO(read_text(path, bytes_max), newline=""), restkey=SURPLUS)
    try:
        header = [(name or "").strip() for name in reader.fieldnames or ()]
    except csv.Error as problem:
        raise TraceError(f"{path}: line 1: not CSV: {problem}; put it right") from None
    missing = [name for name in required if name not in header]
    if missing:
        raise TraceError(f"{path}: line 1: no column {', '.join(missing)}; the header must name {','.join(required)}")
    twice = sorted({name for name in header if name and header.count(name) > 1})
    if twice:
        raise TraceError(f"{path}: line 1: column {', '.join(twice)} is there twice; keep one")
    reader.fieldnames = header
    return reader


def _open(path: Path) -> "csv.DictReader[str]":
    return open_table(path, REQUIRED)


def check_width(row: Mapping[str, Any]) -> str:
    """What is wrong with a row of `open_table` that has more fields than the header; empty where nothing is."""
    more = [text for text in row.get(SURPLUS) or () if text.strip()]
    return (
        f"{len(row) - 1 + len(row[SURPLUS])} fields for {len(row) - 1} columns; quote fields that hold commas" if more else ""
    )


def _unknown_columns(header: Iterable[str]) -> Iterator[str]:
    """Columns that nobody knows and that look like one that is known."""
    known = (*REQUIRED, *OPTIONAL)
    names = list(header)
    for name in names:
        close = get_close_matches(name.lower(), known, n=1, cutoff=CLOSE) if name not in known else []
        if close and close[0] not in names:
            yield f"column {_shown(name)} is not known and not read; is {close[0]} meant?"


def _shown(text: str) -> str:
    short = text if len(text) <= SHOWN_CHARS_MAX else f"{text[:SHOWN_CHARS_MAX]}..."
    return ascii(short)


def _text(row: Mapping[str, str | None], column: str) -> str:
    return (row.get(column) or "").strip()


def _name(row: Mapping[str, str | None], column: str) -> str:
    name = _text(row, column)
    if not name:
        raise _BadRow(f"{column}: empty; write a name")
    if any(category(character) in NO_NAMES for character in name):
        raise _BadRow(f"{column}: {_shown(name)} has a control character or a line break; write a name without")
    return name


def _number(row: Mapping[str, str | None], column: str, default: float | None = None) -> float:
    text = _text(row, column)
    if not text:
        if default is None:
            raise _BadRow(f"{column}: empty; write a number")
        return default
    try:
        return finite(text)
    except ValueError as problem:
        raise _BadRow(f"{column}: {_shown(text)} {problem}") from None


def _whole(row: Mapping[str, str | None], column: str, least: int, default: int | None = None) -> int:
    value = _number(row, column, default)
    if value != int(value) or not least <= value <= GPUS_MAX:
        raise _BadRow(f"{column}: {_shown(_text(row, column))} is not a whole number from {least} to {GPUS_MAX}")
    return int(value)


def _seconds(row: Mapping[str, str | None], column: str, *, may_be_zero: bool, default: float | None = None) -> float:
    value = _number(row, column, default)
    if value < 0 or (value == 0 and not may_be_zero) or (value > SECONDS_MAX and value != default):
        least = "at least" if may_be_zero else "above"
        raise _BadRow(f"{column}: {_shown(_text(row, column))} is not {least} 0 and at most {SECONDS_MAX:g} seconds")
    return value


def _job(row: Mapping[str, str | None]) -> TraceJob:
    """One row's job. Errors: _BadRow."""
    surplus = check_width(row)
    if surplus:
        raise _BadRow(f"(all): {surplus}")
    app_id, job_id = _name(row, "app_id"), _name(row, "job_id")
    arrival = _seconds(row, "arrival_s", may_be_zero=True)
    gang = _whole(row, "n_gpus", 1)
    duration = _seconds(row, "duration_s", may_be_zero=False)
    duration = min(duration, _seconds(row, "stop_after_s", may_be_zero=False, default=duration))
    weight = _number(row, "weight", 1.0)
    if not 0 < weight <= WEIGHT_MAX:
        raise _BadRow(f"weight: {_shown(_text(row, 'weight'))} is not above 0 and at most {WEIGHT_MAX:g}")
    ending = _text(row, "on_lease_end") or OnLeaseEnd.CHECKPOINT.value
    if ending not in set(OnLeaseEnd):
        raise _BadRow(f"on_lease_end: {_shown(ending)} is none of {', '.join(OnLeaseEnd)}")
    return TraceJob(
        app_id=app_id,
        job_id=job_id,
        arrival_s=arrival,
        gang=gang,
        max_gpus=_whole(row, "max_gpus", gang, gang),
        duration_s=duration,
        model=_text(row, "model"),
        weight=weight,
        user=_text(row, "user"),
        queue=_text(row, "queue"),
        on_lease_end=OnLeaseEnd(ending),
        cpu=_seconds(row, "cpu", may_be_zero=True, default=0.0),
        memory_gb=_seconds(row, "memory_gb", may_be_zero=True, default=0.0),
        loss_curve=_loss_curve(row),
        gpu_speeds=_gpu_speeds(row),
    )


def _gpu_speeds(row: Mapping[str, str | None]) -> GpuSpeeds:
    """Relative speeds by GPU type, type=speed;type=speed. Errors: _BadRow."""
    text = _text(row, "gpu_speeds")
    try:
        return parse_speeds(text) if text else ()
    except ValueError as problem:
        raise _BadRow(f"gpu_speeds: {_shown(text)}: {problem}") from None


def _loss_curve(row: Mapping[str, str | None]) -> LossCurve | None:
    """Three numbers between semicolons, a;b;c. Errors: _BadRow."""
    text = _text(row, "loss_curve")
    if not text:
        return None
    try:
        a, b, c = (finite(part) for part in text.split(";"))
    except ValueError:
        raise _BadRow(f"loss_curve: {_shown(text)} is not a;b;c, three numbers: loss a / (1 + b p) + c at progress p") from None
    if not (0 < a <= CURVE_MAX and 0 < b <= CURVE_MAX and 0 <= c <= CURVE_MAX):
        raise _BadRow(f"loss_curve: {_shown(text)} does not fall: a and b are above 0, c at least 0, none above {CURVE_MAX:g}")
    return a, b, c


def unknown_models(jobs: Iterable[TraceJob], known: Iterable[str]) -> list[str]:
    """Models that the trace names and the models file does not, sorted."""
    names = set(known)
    return sorted({job.model for job in jobs} - names - {""})


@dataclass(frozen=True, slots=True)
class FairApp:
    """What the ideal fluid share knows of an app. Seconds and GPU-seconds; `longest_s` as contracts.md has it."""

    app_id: AppId
    arrival_s: float
    work_gpu_s: float
    longest_s: float
    max_demand: int
    weight: float
    speeds: GpuSpeeds = ()
    gpu_s: float | None = None  # GPU time of its work where speeds by GPU type are declared
    gpus_max: float = inf  # by which its jobs together are no faster than the longest of them allows

    @property
    def parallelism(self) -> float:
        """The most GPUs that it can use at once, over its whole life."""
        return min((self.work_gpu_s if self.gpu_s is None else self.gpu_s) / self.longest_s, self.gpus_max)


def fair_app(app_id: AppId, jobs: tuple[TraceJob, ...], weight: float | None = None, types: Types = ()) -> FairApp:
    """An app of a trace, on a cluster with GPUs of these types; `weight` wins over that of its first row."""
    arrival = min(j.arrival_s for j in jobs)
    first = min(jobs, key=lambda j: (j.arrival_s, j.key))
    reaches = [reach_of(j.gpu_speeds, j.gang, j.max_gpus, types) for j in jobs]
    times = [r.gpu_time(j.work_gpu_s) for j, r in zip(jobs, reaches, strict=True)]
    work = sum(j.work_gpu_s for j in jobs)
    longest = max(t / r.gpus + j.arrival_s - arrival for j, r, t in zip(jobs, reaches, times, strict=True))
    speeds = merged(r.speeds for r in reaches)
    most = gpus_for(speeds, types, work / longest) if speeds and len(jobs) > 1 else 0.0
    return FairApp(
        app_id=app_id,
        arrival_s=arrival,
        work_gpu_s=work,
        longest_s=longest,
        max_demand=sum(j.max_gpus for j in jobs),
        weight=first.weight if weight is None else weight,
        speeds=speeds,
        gpu_s=sum(times) if speeds else None,
        gpus_max=most or inf,
    )
