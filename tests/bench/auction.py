"""How long auctions take, how near the optimum they are known to be, and what HiGHS and CP-SAT make of the same ones.

    python -m tests.bench.auction [--quick] [--json FILE] [--chart FILE]

Generated auctions are those of `tests.support.large_auctions`; `recorded` are rounds of simulated runs. CPU time of one core,
warm, the least of three runs for each instance, from bids to named GPUs. Exit status 1 where another solver finds more than our
certified bound, or our bound or theirs is below what somebody found: then one of the two is wrong.
"""

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Final, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from tests.bench.auction_cases import Case, cases
from tests.bench.auction_models import Answer, Model, by_cp_sat, by_highs, can_model, lp_bound, model_of
from tests.bench.lease_book import machine
from tests.support.auctions import Auction
from themis_arbiter.cli.tables import print_table
from themis_arbiter.core.auction.payment import partial_allocation
from themis_arbiter.core.auction.solver import solve
from themis_arbiter.core.kernels import search
from themis_arbiter.core.kernels.jit import is_compiled

Result = TypeVar("Result")

REPEATS: Final = 3
LONG_MS: Final = 1_000.0  # what takes longer than this runs once
OTHERS_SECONDS: Final = 10.0  # for each instance
SLACK: Final = 1e-5  # of other solvers' own tolerances, which are of single limits and add up
OTHERS: Final[dict[str, Callable[[Model, float], Answer]]] = {"HiGHS": by_highs, "CP-SAT": by_cp_sat}


@dataclass(frozen=True)
class Other:
    """What another solver made of an instance. `gain`: of log value over everybody's zero row."""

    cpu_ms: float
    is_proved: bool
    gain: float


@dataclass(frozen=True)
class Measured:
    """One instance. `gain` and `bound` (certified) of log value over everybody's zero row; `widths` of brackets of c_i."""

    bids: int
    gpus: int
    rows: int
    solve_ms: float
    all_ms: float
    gain: float
    bound: float
    widths: list[float]
    lp_bound: float | None = None
    others: dict[str, Other] = field(default_factory=dict)

    @property
    def gap(self) -> float:
        """Certified distance to the optimum."""
        return max(0.0, self.bound - self.gain)

    def faults(self) -> list[str]:
        """What cannot be if all bounds hold."""
        found = [f"{n} finds {o.gain:.6f}, above our bound" for n, o in self.others.items() if o.gain > self.bound + SLACK]
        if self.lp_bound is not None and self.gain > self.lp_bound + SLACK:
            found.append(f"we find {self.gain:.6f}, above the bound of the linear program")
        proved = [(n, o.gain) for n, o in self.others.items() if o.is_proved]
        return found + [f"we find {self.gain:.6f}, above the optimum of {n}" for n, gain in proved if self.gain > gain + SLACK]


def measured(auction: Auction, has_others: bool) -> Measured:
    """All figures of one instance."""
    solution, solve_ms = _timed(lambda: solve(auction.bids, auction.supply))
    outcome, all_ms = _timed(lambda: partial_allocation(auction.bids, auction.supply, auction.gangs))
    zero = sum(bid.weight * bid.rows[0].log_value for bid in auction.bids)
    bound, others = None, dict[str, Other]()
    if can_model(auction):
        model = model_of(auction)
        bound = lp_bound(model)
        for name, solver in OTHERS.items() if has_others else ():
            begin = time.process_time()
            answer = solver(model, OTHERS_SECONDS)
            others[name] = Other((time.process_time() - begin) * 1e3, answer.is_proved, answer.gain)
    return Measured(
        bids=len(auction.bids),
        gpus=len(auction.supply.gpus),
        rows=sum(len(bid.rows) for bid in auction.bids),
        solve_ms=solve_ms,
        all_ms=all_ms,
        gain=solution.welfare - zero,
        bound=solution.bound - zero,
        widths=[p.share_max - p.share for p in outcome.payments],
        lp_bound=bound,
        others=others,
    )


def _timed(what: Callable[[], Result]) -> tuple[Result, float]:
    """The result, and the least CPU milliseconds of a few runs; long ones run once."""
    best_ms, left = float("inf"), REPEATS
    while True:
        begin = time.process_time()
        result = what()
        best_ms = min(best_ms, (time.process_time() - begin) * 1e3)
        left -= 1
        if left == 0 or best_ms > LONG_MS:
            return result, best_ms


def p95(values: Sequence[float]) -> float:
    """Of few values, near the largest."""
    return quantiles(values, n=20, method="inclusive")[-1] if len(values) > 1 else values[0]


# ---- tables

HEADINGS: Final = (
    *(
        "CASE",
        "N",
        "BIDS",
        "GPUS",
        "ROWS",
        "SOLVE MS",
        "P95",
        "GAP",
        "MOST",
        "PROVED",
        "ALL PAYMENTS MS",
        "P95",
        "BRACKET",
        "MOST",
    ),
    "BELOW LP",
)
OTHERS_HEADINGS: Final = (
    "CASE",
    "N",
    *(f"{name} {what}" for name in OTHERS for what in ("MS", "RATIO", "PROVED", "EQUAL", "LESS")),
)


def own_cells(name: str, found: Sequence[Measured]) -> list[str]:
    """A line about our own solver."""
    solve_ms, all_ms, gaps = [m.solve_ms for m in found], [m.all_ms for m in found], [m.gap for m in found]
    widths = [width for m in found for width in m.widths] or [0.0]
    below = [m.lp_bound - m.gain for m in found if m.lp_bound is not None]
    return [
        name,
        str(len(found)),
        *(f"{median(values):.0f}" for values in ([m.bids for m in found], [m.gpus for m in found], [m.rows for m in found])),
        *(f"{median(solve_ms):.1f}", f"{p95(solve_ms):.1f}", f"{median(gaps):.4f}", f"{max(gaps):.4f}"),
        f"{sum(gap == 0.0 for gap in gaps)}",
        *(f"{median(all_ms):.0f}", f"{p95(all_ms):.0f}", f"{median(widths):.4f}", f"{max(widths):.4f}"),
        f"{median(below):.4f}" if below else "-",
    ]


def others_cells(name: str, found: Sequence[Measured]) -> list[str]:
    """A line about the other solvers: CPU time, what that is of ours, how many they prove, and ours on those."""
    cells = [name, str(len(found))]
    for other in OTHERS:
        tried = [(m, m.others[other]) for m in found if other in m.others]
        proved = [(m.gain, o.gain) for m, o in tried if o.is_proved]
        if not tried:
            cells += ["-"] * 5
            continue
        less = max((theirs - ours for ours, theirs in proved), default=0.0)
        cells += [
            f"{median(o.cpu_ms for _, o in tried):.0f}",
            f"x{median(o.cpu_ms / m.solve_ms for m, o in tried):.0f}",
            f"{len(proved)}",
            f"{sum(theirs - ours <= SLACK for ours, theirs in proved)}",
            f"{less:.4f}" if less > SLACK else "0",
        ]
    return cells


def verdict(all_found: Sequence[Measured]) -> list[str]:
    """In words: how often others are known to be better."""
    lines = []
    for name in OTHERS:
        tried = [(m.gain, m.others[name]) for m in all_found if name in m.others]
        proved = [(ours, o.gain) for ours, o in tried if o.is_proved]
        equal = sum(theirs - ours <= SLACK for ours, theirs in proved)
        rest = [(ours, o.gain) for ours, o in tried if not o.is_proved]
        ahead = sum(ours > theirs + SLACK for ours, theirs in rest)
        lines.append(
            f"{name} proves {len(proved)} of {len(tried)} optimal within {OTHERS_SECONDS:.0f} s each: on {equal} of them ours "
            f"is that optimum, on {len(proved) - equal} less; of the other {len(rest)} ours is better on {ahead}"
        )
    return lines


def document(found: dict[str, list[Measured]], are_compiled: bool) -> dict[str, Any]:
    """All figures, for programs."""
    about = {
        "cores": os.cpu_count(),
        "processor": machine(),
        "python": platform.python_version(),
        "load": os.getloadavg()[0],
        "are_kernels_compiled": are_compiled,
        "others_seconds_max": OTHERS_SECONDS,
    }
    return {"about": about, "cases": {name: [asdict(one) for one in of_case] for name, of_case in found.items()}}


def run(todo: Sequence[Case]) -> Iterator[tuple[str, Measured]]:
    """Measure, with a bar on a terminal and a line a case in a log."""
    console = Console(file=sys.stderr, markup=False, highlight=False, emoji=False, soft_wrap=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("auctions", total=sum(case.count for case in todo))
        for at, case in enumerate(todo):
            begin, done = time.monotonic(), 0
            for auction in case.auctions():
                if auction.bids and auction.supply.gpus:
                    yield case.name, measured(auction, case.has_others)
                done += 1
                bar.advance(task)
            bar.advance(task, case.count - done)
            console.print(f"[{at + 1}/{len(todo)}] {case.name}: {done} in {time.monotonic() - begin:.0f} s")


def main(arguments: Sequence[str]) -> int:
    """Print the tables, and the machine; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes, two instances each")
    parser.add_argument("--json", type=Path, help="write all figures into this file")
    parser.add_argument("--chart", type=Path, help="draw times and gaps into this SVG file")
    options = parser.parse_args(arguments)
    are_compiled = is_compiled(search.run)
    found: dict[str, list[Measured]] = {}
    for name, one in run(cases(options.quick)):
        found.setdefault(name, []).append(one)
    print_table([(heading, k > 0) for k, heading in enumerate(HEADINGS)], [own_cells(*case) for case in found.items()])
    print()
    rows = [others_cells(name, of_case) for name, of_case in found.items() if any(m.others for m in of_case)]
    print_table([(heading, k > 0) for k, heading in enumerate(OTHERS_HEADINGS)], rows)
    everything = [one for of_case in found.values() for one in of_case]
    print("\n".join(["", *verdict(everything)]))
    print(f"{'compiled kernels' if are_compiled else 'kernels as Python'}; {machine()}")
    if options.json is not None:
        options.json.write_text(json.dumps(document(found, are_compiled), indent=1) + "\n", encoding="utf-8")
    if options.chart is not None:
        from tests.bench.auction_chart import draw

        draw(document(found, are_compiled), options.chart)
    faults = [f"{name}, instance {k}: {fault}" for name, ms in found.items() for k, m in enumerate(ms) for fault in m.faults()]
    print("\n".join(faults), file=sys.stderr, end="\n" if faults else "")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
