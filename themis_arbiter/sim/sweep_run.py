"""Running a sweep's points: on this machine's cores or, unchanged, on a Dask cluster that shares the file system.

A point is done when its marker is there, with the arguments and the digests of the files that they name as they are now; a
point whose trace has changed since runs again. The marker is written last and in one step, so a sweep that was killed loses
only its open points.
"""

import csv
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from functools import lru_cache
from hashlib import blake2b
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from themis_arbiter.sim.sweep import PROGRAM, Point, SweepError, combined, figures, is_seedless

MARKER: Final = "done.json"
LOG: Final = "stderr.txt"
SUMMARY: Final = "summary.json"
SUMMARY_BYTES_MAX: Final = 64 * 1024 * 1024
LOG_TAIL_BYTES: Final = 4_096
REASON_LENGTH_MAX: Final = 300
CHUNK_BYTES: Final = 1024 * 1024
PROBE_S: Final = 10.0  # how long a Dask scheduler may take to answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a point: a summary, or the reason why there is none."""

    point: Point
    summary: Mapping[str, Any] | None = None
    reason: str = ""
    is_from_before: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A point with all that it takes to run it anywhere; goes to workers as it is."""

    point: Point
    out: Path
    folder: Path  # the directory that relative paths in arguments are relative to
    program: tuple[str, ...] = PROGRAM
    is_summary_only: bool = False


def run_point(work: Work) -> Outcome:
    """Run one point to its end and mark it done. Problems are in the outcome: one bad point spoils no sweep."""
    folder = work.point.folder(work.out)
    try:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        command = [*work.program, *work.point.arguments, "--out", str(folder)]
        with (folder / LOG).open("wb") as log:
            done = subprocess.run(
                command, stdout=subprocess.DEVNULL, stderr=log, stdin=subprocess.DEVNULL, cwd=work.folder, check=False
            )
        if done.returncode != 0:
            return Outcome(point=work.point, reason=_last_line(folder / LOG) or f"ended with status {done.returncode}")
        summary = _read_json(folder / SUMMARY)
        if summary is None:
            return Outcome(point=work.point, reason=f"no readable {SUMMARY}")
        if work.is_summary_only:
            _keep_only(folder, {SUMMARY, LOG})
        marker = {"arguments": work.point.arguments, "files": _digests(work.point, work.folder)}
        temporary = folder / f"{MARKER}.new"
        temporary.write_text(json.dumps(marker), encoding="utf-8")
        temporary.replace(folder / MARKER)
    except OSError as error:
        return Outcome(point=work.point, reason=f"{folder}: {error.strerror or error}")
    return Outcome(point=work.point, summary=summary)


def done_before(work: Work) -> Outcome | None:
    """The outcome of an earlier run of this very point, if there is one."""
    folder = work.point.folder(work.out)
    marker = _read_json(folder / MARKER)
    if (
        marker is None
        or marker.get("arguments") != list(work.point.arguments)
        or marker.get("files") != _digests(work.point, work.folder)
    ):
        return None
    summary = _read_json(folder / SUMMARY)
    return None if summary is None else Outcome(point=work.point, summary=summary, is_from_before=True)


class SweepInterrupted(KeyboardInterrupt):
    """Somebody pressed Ctrl-C; `done` are the points of `count` that were done by then, in the plan's order."""

    def __init__(self, done: list[Outcome], count: int) -> None:
        super().__init__("interrupted")
        self.done, self.count = done, count


def run_all(
    works: Sequence[Work], executor: AbstractContextManager[Executor], tell: Callable[[Outcome], None]
) -> list[Outcome]:
    """Every point's outcome in the plan's order; `tell` hears of each as it comes.

    Errors: SweepError, no executor; SweepInterrupted, when no point runs any more.
    """
    outcomes: dict[int, Outcome] = {}
    for number, work in enumerate(works):
        earlier = done_before(work)
        if earlier is not None:
            outcomes[number] = earlier
            tell(earlier)
    left = [number for number in range(len(works)) if number not in outcomes]
    if left:
        futures: dict[Future[Outcome], int] = {}
        try:
            with executor as pool:
                futures |= {pool.submit(run_point, works[number]): number for number in left}
                try:
                    for future in as_completed(futures):
                        outcomes[futures[future]] = future.result()
                        tell(outcomes[futures[future]])
                except BaseException:
                    pool.shutdown(wait=True, cancel_futures=True)
                    raise
        except KeyboardInterrupt:
            over = (f for f in futures if f.done() and not f.cancelled() and f.exception() is None)
            outcomes |= {futures[f]: f.result() for f in over}
            done = [outcomes[number] for number in sorted(outcomes) if outcomes[number].summary is not None]
            raise SweepInterrupted(done, len(works)) from None
    return [outcomes[number] for number in range(len(works))]


@contextmanager
def cores(count: int) -> Iterator[Executor]:
    """`count` points at a time on this machine. Threads: each only waits for its process."""
    with ThreadPoolExecutor(max_workers=count) as pool:
        yield pool


@contextmanager
def dask(address: str) -> Iterator[Executor]:
    """The workers of the Dask scheduler at `address`. Errors: SweepError."""
    if find_spec("distributed") is None:
        raise SweepError("--dask: Dask is not installed; pip install 'themis-arbiter[sweep]'")
    distributed = import_module("distributed")
    try:
        client = distributed.Client(address, timeout=PROBE_S)
    except (OSError, ValueError) as error:
        raise SweepError(f"--dask: no scheduler answers at {address}: {error}; name one, like tcp://HOST:8786") from error
    with client:
        # A point runs a program of its own: a retry after a lost worker is safe, for a run clears its folder first.
        yield client.get_executor(retries=2, pure=False)


def core_count() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def write_results(out: Path, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Write points.csv, results.csv and results.json into `out`; what results.json holds. Errors: OSError."""
    good = [(o.point, o.summary) for o in outcomes if o.summary is not None]
    axes = [name for name, _ in outcomes[0].point.settings] if outcomes else []
    names = list(dict.fromkeys(name for _, summary in good for name in figures(summary)))
    rows = [
        [*(v for _, v in point.settings), point.seed, point.key, *(figures(summary).get(n, "") for n in names)]
        for point, summary in good
    ]
    _write_csv(out / "points.csv", [*axes, "seed", "point", *names], rows)
    together = combined(good)
    spread = [
        [
            *settings.values(),
            name,
            found.n,
            found.mean,
            "" if found.low is None else found.low,
            "" if found.high is None else found.high,
        ]
        for settings, by_name in together
        for name, found in by_name.items()
    ]
    _write_csv(out / "results.csv", [*axes, "figure", "seeds", "mean", "ci95_low", "ci95_high"], spread)
    by_settings: dict[tuple[tuple[str, str], ...], list[dict[str, float]]] = {}
    for point, summary in good:
        by_settings.setdefault(point.settings, []).append(figures(summary))
    document = {
        "points": len(outcomes),
        "failed": [{"command": o.point.command(out), "reason": o.reason} for o in outcomes if o.summary is None],
        "same_for_all_seeds": [dict(settings) for settings, runs in by_settings.items() if is_seedless(runs)],
        "results": [
            {"settings": s, "figures": {name: asdict(found) for name, found in by_name.items()}} for s, by_name in together
        ],
    }
    (out / "results.json").write_text(json.dumps(document, indent=1), encoding="utf-8")
    return document


def _write_csv(path: Path, header: Sequence[object], rows: Sequence[Sequence[object]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)


def _digests(point: Point, folder: Path) -> dict[str, str]:
    """Digests of the files that a point's arguments name."""
    found: dict[str, str] = {}
    for argument in point.arguments:
        path = folder / argument
        try:
            state = path.stat()
        except (OSError, ValueError):
            continue
        if path.is_file():
            found[argument] = _digest(path, state.st_size, state.st_mtime_ns)
    return found


@lru_cache(maxsize=1_024)
def _digest(path: Path, _size: int, _modified_ns: int) -> str:
    digest = blake2b(digest_size=16)
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        with path.open("rb") as file:
            document = json.loads(file.read(SUMMARY_BYTES_MAX))
    except (OSError, ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def _last_line(path: Path) -> str:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - LOG_TAIL_BYTES))
        lines = file.read().decode("utf-8", "replace").strip().splitlines()
    return lines[-1][:REASON_LENGTH_MAX] if lines else ""


def _keep_only(folder: Path, names: set[str]) -> None:
    for path in sorted(folder.iterdir()):
        if path.name not in names:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
