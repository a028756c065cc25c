"""A run's folder: what is in it, that nothing of somebody else's is lost in it, and that no two runs are mixed in it."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from themis_arbiter.sim.trace import TraceError

ROUNDS: Final = "rounds.jsonl"
JOURNAL: Final = "arbiter.journal"
SUMMARY: Final = "summary.json"
SHARES: Final = "shares.csv"
REPORT: Final = "report.html"
FIGURES: Final = "figures"
FIGURE_PATTERNS: Final = tuple(
    f"{name}.{kind}" for name in ("rho_cdf", "contention", "queue", "gpu_timeline_[0-9]*") for kind in ("svg", "csv", "png")
)
INTERVALS: Final = ("intervals.csv", "intervals.json")  # of a comparison over seeds
PART: Final = ".part"  # ends the name of a file that is still being written

# Columns of the tables, by file.
TABLES: Final[Mapping[str, tuple[str, ...]]] = {
    "allocations.csv": ("app_id", "job_id", "gpus", "start_s", "end_s", "grant_id", "round"),
    "jobs.csv": ("app_id", "job_id", "arrival_s", "start_s", "finish_s", "gpu_seconds", "restarts"),
    "apps.csv": (
        *("app_id", "arrival_s", "finish_s", "t_shared_s", "t_independent_s", "n_avg"),
        *("rho", "rho_own", "rho_paper", "gpu_seconds", "restarts"),
    ),
    SHARES: ("app_id", "weight"),
}
FILES: Final = (*TABLES, ROUNDS, SUMMARY, JOURNAL, REPORT, *INTERVALS)
OF_A_SUMMARY: Final = frozenset({"policy", "seed", "max_rho"})  # keys that every summary of ours has
SUMMARY_BYTES_MAX: Final = 64 * 1024 * 1024


def check_apart(outputs: Iterable[Path], inputs: Mapping[str, Path | None]) -> None:
    """Refuse an input, by the flag that names it, that a result would replace.

    An output that is a folder stands for the files of a run in it. Errors: TraceError.
    """
    real = {name: Path(os.path.realpath(path)) for name, path in inputs.items() if path is not None}
    for output in outputs:
        place = Path(os.path.realpath(output))
        for name, path in real.items():
            inside = path.relative_to(place).parts if path.is_relative_to(place) else None
            if inside is not None and (not inside or inside[0] in {*FILES, FIGURES}):
                raise TraceError(f"{name} {inputs[name]} would be overwritten by the results in {output}; name another place")


def check_ours(folder: Path) -> None:
    """Refuse a folder with results that are not of a run of ours. Errors: TraceError."""
    problem = next((name for name, header in TABLES.items() if not _has_header(folder / name, header)), None)
    if problem is None and (folder / SUMMARY).exists() and not _is_summary(folder / SUMMARY):
        problem = SUMMARY
    if problem is not None:
        raise TraceError(f"{folder / problem}: is not of a simulation and would be overwritten; name another folder with --out")


def _has_header(path: Path, header: tuple[str, ...]) -> bool:
    """Whether `path` is a table of ours, empty, or not there."""
    try:
        with path.open("rb") as file:
            first = file.readline(SUMMARY_BYTES_MAX).decode("utf-8", "replace").strip()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return first in {"", ",".join(header)}


def _is_summary(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            document: Any = json.loads(file.read(SUMMARY_BYTES_MAX))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(document, dict) and document.keys() >= OF_A_SUMMARY


def clear(folder: Path) -> None:
    """Remove what a run writes, by name; everything else in `folder` stays. Errors: OSError."""
    for name in FILES:
        (folder / name).unlink(missing_ok=True)
        (folder / f"{name}{PART}").unlink(missing_ok=True)
    figures = folder / FIGURES
    for pattern in FIGURE_PATTERNS:
        for path in figures.glob(pattern):
            path.unlink()
    with suppress(OSError):  # something else is in it, or it is not there
        figures.rmdir()


@contextmanager
def fresh(folder: Path) -> Iterator[None]:
    """`folder` for a new run: nothing of an earlier one is in it, and where this one breaks off nothing of this one stays.

    Errors: TraceError where it holds somebody else's results; OSError.
    """
    check_ours(folder)
    is_new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    clear(folder)
    try:
        yield
    except BaseException:
        clear(folder)
        if is_new:
            with suppress(OSError):
                folder.rmdir()
        raise
