"""`themis compare`: several policies on one input, a process each, as many at once as there are processors.

Under several seeds every policy runs with each of them; their figures are means with 95 % confidence intervals.
"""

import csv
import io
import json
import multiprocessing
import signal
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

from themis_arbiter.sim.run_folder import SUMMARY, clear
from themis_arbiter.sim.simulation import Loaded, Request, Tell, processors, simulate
from themis_arbiter.sim.sweep import Interval, figures, is_seedless, over_seeds

PROCESSES_MAX: Final = 64
SEED_FOLDER: Final = "seed-{seed}"
INTERVALS: Final = "intervals"

Intervals: TypeAlias = Mapping[str, Mapping[str, Interval]]  # by policy, by figure


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One run of a comparison."""

    request: Request
    loaded: Loaded
    folder: Path

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.request.policy}, seed {self.request.seed}"


def folder_of(out: Path, policy: str, seed: int, seeds: Sequence[int]) -> Path:
    """Where a run goes: `out`/<policy>; the runs of further seeds below that."""
    return out / policy if seed == seeds[0] else out / policy / SEED_FOLDER.format(seed=seed)


def compare(cases: Sequence[Case], tell: Tell | None, jobs: int | None = None) -> list[dict[str, Any]]:
    """Simulate `cases`, `jobs` at a time (None: a processor each); summaries in their order. Errors: those of `simulate`."""
    count = min(len(cases), jobs or processors(), PROCESSES_MAX)
    done: dict[int, dict[str, Any]] = {}
    # Started anew, not forked: a fork would carry threads' locks along.
    context = multiprocessing.get_context("spawn")
    others = set(multiprocessing.active_children())
    with ProcessPoolExecutor(max_workers=count, mp_context=context) as pool:
        try:
            with _ctrl_c_held_back():  # what is started in it inherits that Ctrl-C is its parent's matter
                futures = {pool.submit(simulate, c.request, c.loaded, c.folder): number for number, c in enumerate(cases)}
            for future in as_completed(futures):
                number = futures[future]
                done[number] = future.result()
                if tell is not None:
                    tell(f"{cases[number].name}: done in {done[number]['wall_s']:.0f} s")
        except BaseException:
            for child in set(multiprocessing.active_children()) - others:
                child.kill()
            pool.shutdown(wait=True, cancel_futures=True)
            for case in cases:
                if not (case.folder / SUMMARY).exists():  # the last of a run's files
                    clear(case.folder)
            raise
    return [done[number] for number in range(len(cases))]


@contextmanager
def _ctrl_c_held_back() -> Iterator[None]:
    """A Ctrl-C in it comes after it. Processes that are started in it never hear of one."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def intervals(summaries: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, dict[str, Interval]]:
    """Each figure of each policy over its runs."""
    out: dict[str, dict[str, Interval]] = {}
    for policy, runs in summaries.items():
        out[policy] = over_seeds([figures(run) for run in runs])
    return out


def seedless(summaries: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[str]:
    """The policies under which the seed changes nothing."""
    return [policy for policy, runs in summaries.items() if is_seedless([figures(run) for run in runs])]


def plain_intervals(found: Intervals) -> dict[str, Any]:
    """The intervals as plain values."""
    return {policy: {name: asdict(each) for name, each in by_name.items()} for policy, by_name in found.items()}


def write_intervals(out: Path, found: Intervals) -> None:
    """intervals.csv and intervals.json in `out`. Errors: OSError."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("policy", "figure", "seeds", "mean", "ci95_low", "ci95_high"))
    for policy, by_name in found.items():
        for name, each in by_name.items():
            ends = ("" if end is None else end for end in (each.low, each.high))
            writer.writerow((policy, name, each.n, each.mean, *ends))
    (out / f"{INTERVALS}.csv").write_text(text.getvalue(), encoding="utf-8", newline="")
    (out / f"{INTERVALS}.json").write_text(json.dumps(plain_intervals(found), indent=1) + "\n", encoding="utf-8")
