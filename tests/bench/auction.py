"""How long auctions take, how near the optimum they are known to be, and what HiGHS and CP-SAT make of the same ones.

    python -m tests.bench.auction [--quick] [--chart FILE]

Sizes are those of `tests.support.large_auctions`; `recorded` are rounds of a simulated run under `paper`.
CPU time of one core, warm, the least of three runs for each instance, from bids to named GPUs.
"""

import argparse
import io
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from typing import Final, TypeVar

from tests.bench.auction_models import Answer, Model, by_cp_sat, by_highs, can_model, model_of
from tests.support.auctions import Auction
from tests.support.large_auctions import cluster_of, large_auction
from tests.support.recorded import read_round
from tests.support.replays import Records
from themis_arbiter.cli.tables import print_table
from themis_arbiter.core.auction.payment import partial_allocation
from themis_arbiter.core.auction.solver import prepare, solve
from themis_arbiter.core.settings import Settings
from themis_arbiter.core.speedup import SlowdownModel
from themis_arbiter.sim.generate import WorkloadSpec, generate
from themis_arbiter.sim.simulate import Inputs, replay
from themis_arbiter.sim.trace import Trace, TraceJob

Result = TypeVar("Result")

REPEATS: Final = 3
LONG_MS: Final = 1_000.0
OTHERS_SECONDS: Final = 10.0
WELFARE_SLACK: Final = 1e-6  # of other solvers' own tolerances
RECORDED_MAX: Final = 8  # rounds of the simulated run: those with the most rows
RECORDED_APPS: Final = 8
QUICK: Final = 3  # cases and instances of a quick run

# Size, bidders, share on offer, instances, whether other solvers try as well.
CASES: Final = (
    ("A", 8, 0.1, 10, True),
    ("A", 8, 1.0, 10, True),
    ("B", 17, 0.1, 8, True),
    ("B", 17, 1.0, 8, True),
    ("B", 85, 0.1, 4, False),
    ("B", 85, 1.0, 4, False),
    ("C", 100, 0.1, 3, False),
    ("C", 100, 1.0, 3, False),
    ("C", 500, 0.1, 2, False),
    ("C", 500, 1.0, 2, False),
    ("D", 500, 0.1, 2, False),
    ("D", 500, 1.0, 2, False),
    ("D", 1000, 0.1, 2, False),
    ("D", 1000, 1.0, 2, False),
)


@dataclass
class Figures:
    """What was measured of one case, by instance."""

    name: str
    bids: list[int] = field(default_factory=list)
    gpus: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    solve_ms: list[float] = field(default_factory=list)
    all_ms: list[float] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    widths: list[float] = field(default_factory=list)
    others: dict[str, list[tuple[float, bool, float]]] = field(default_factory=dict)  # ms, proved, our welfare less theirs

    def measure(self, auction: Auction, has_others: bool) -> None:
        """One more instance."""
        self.bids.append(len(auction.bids))
        self.gpus.append(len(auction.supply.gpus))
        self.rows.append(sum(len(bid.rows) for bid in auction.bids))
        solution, ms = _timed(lambda: solve(auction.bids, auction.supply))
        self.solve_ms.append(ms)
        self.gaps.append(solution.gap)
        outcome, ms = _timed(lambda: partial_allocation(auction.bids, auction.supply, auction.gangs))
        self.all_ms.append(ms)
        self.widths += [p.share_max - p.share for p in outcome.payments]
        if not (has_others and can_model(auction)):
            return
        zero = sum(bid.weight * bid.rows[0].log_value for bid in auction.bids)
        for name, solver in OTHERS.items():
            begin = time.process_time()
            answer = solver(model_of(auction), OTHERS_SECONDS)
            spent_ms = (time.process_time() - begin) * 1e3
            self.others.setdefault(name, []).append((spent_ms, answer.is_proved, solution.welfare - zero - answer.gain))

    def cells(self) -> list[str]:
        """A line of the table."""
        cells = [
            self.name,
            f"{median(self.bids):.0f}/{median(self.gpus):.0f}/{median(self.rows):.0f}",
            f"{median(self.solve_ms):.1f}",
            f"{_p95(self.solve_ms):.1f}",
            f"{median(self.gaps):.4f}",
            f"{max(self.gaps):.4f}",
            f"{sum(g == 0.0 for g in self.gaps)}/{len(self.gaps)}",
            f"{median(self.all_ms):.0f}",
            f"{_p95(self.all_ms):.0f}",
            f"{median(self.widths):.4f}" if self.widths else "-",
            f"{max(self.widths):.4f}" if self.widths else "-",
        ]
        for name in OTHERS:
            tried = self.others.get(name, [])
            if tried:
                ratio = median(ms for ms, _, _ in tried) / median(self.solve_ms)
                proved = [by for _, is_proved, by in tried if is_proved]
                worse = sum(by < -WELFARE_SLACK for by in proved)
                cells.append(f"x{ratio:.0f}, {len(proved)}/{len(tried)} proved, {worse} better than ours")
            else:
                cells.append("-")
        return cells


OTHERS: Final[dict[str, Callable[[Model, float], Answer]]] = {"HiGHS": by_highs, "CP-SAT": by_cp_sat}
HEADINGS: Final = (
    *("CASE", "BIDS/GPUS/ROWS", "SOLVE MS", "P95", "GAP", "MOST", "PROVED", "ALL PAYMENTS MS", "P95", "BRACKET", "MOST"),
    *OTHERS,
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


def _p95(values: Sequence[float]) -> float:
    return quantiles(values, n=20, method="inclusive")[-1] if len(values) > 1 else values[0]


def recorded() -> Iterator[Auction]:
    """Rounds of a simulated run of the paper's first workload on size B under `paper`."""
    rows = generate(WorkloadSpec(apps=RECORDED_APPS, load=1.6, seed=1))
    jobs = [
        TraceJob(
            app_id=row.app_id,
            job_id=row.job_id,
            arrival_s=row.arrival_s,
            gang=row.n_gpus,
            max_gpus=row.max_gpus or row.n_gpus,
            duration_s=row.duration_s,
            model=row.model,
        )
        for row in rows
    ]
    told = Records()
    inputs = Inputs(
        trace=Trace(tuple(sorted(jobs, key=lambda j: (j.arrival_s, j.key)))),
        topology=cluster_of("B"),
        slowdowns=SlowdownModel(by_model={}, default=(1.0, 1.0, 1.1, 1.3)),
        settings=Settings(policy="paper"),
    )
    replay(inputs, io.StringIO(), open_journal=lambda _: told)
    rounds = [read_round(record) for record in told.records if len(record["bids"]) > 1]
    rounds.sort(key=lambda one: -sum(len(bid.rows) for bid in one.bids))
    for one in rounds[:RECORDED_MAX]:
        yield Auction(one.bids, one.supply, one.gangs)


def measured(quick: bool) -> Iterator[Figures]:
    """The figures of each case, as they come."""
    for size, bidders, share, instances, has_others in CASES[: QUICK if quick else None]:
        figures = Figures(f"{size}-{bidders} {share:.0%}")
        for seed in range(QUICK if quick else instances):
            auction = large_auction(size, bidders, share, seed)
            if auction.bids and auction.supply.gpus:
                figures.measure(auction, has_others)
        yield figures
    figures = Figures("recorded")
    for auction in recorded():
        figures.measure(auction, has_others=True)
    yield figures


def draw(all_figures: Sequence[Figures], path: Path) -> None:
    """Times by the number of rows, with those of other solvers."""
    from matplotlib import rcParams
    from matplotlib.figure import Figure

    rcParams["svg.hashsalt"] = "auction"
    figure = Figure(figsize=(8, 5))
    axes = figure.subplots()
    rows = [median(f.rows) for f in all_figures]
    axes.scatter(rows, [median(f.solve_ms) for f in all_figures], label="solve")
    axes.scatter(rows, [median(f.all_ms) for f in all_figures], label="solve and all payments")
    for name in OTHERS:
        tried = [(median(f.rows), median(ms for ms, _, _ in f.others[name])) for f in all_figures if name in f.others]
        axes.scatter([x for x, _ in tried], [y for _, y in tried], marker="x", label=f"{name}, solve only")
    axes.axhline(354, color="grey", linestyle=":", label="the paper's median on 64 GPUs (Gurobi)")
    axes.set(xscale="log", yscale="log", xlabel="rows of all bids", ylabel="CPU milliseconds (median)")
    axes.legend()
    axes.grid(visible=True, alpha=0.3)
    figure.savefig(path, metadata={"Date": None})


def main(arguments: Sequence[str]) -> None:
    """Print the table, and the machine."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="three cases, three instances each")
    parser.add_argument("--chart", type=Path, help="draw the times into this SVG file")
    options = parser.parse_args(arguments)
    are_compiled = prepare()
    all_figures = []
    for figures in measured(options.quick):
        all_figures.append(figures)
        print("  ".join(figures.cells()), file=sys.stderr, flush=True)  # what is measured so far, if the rest takes long
    print_table([(heading, k > 0) for k, heading in enumerate(HEADINGS)], [figures.cells() for figures in all_figures])
    load = os.getloadavg()[0]
    kernels = "compiled kernels" if are_compiled else "kernels as Python"
    print(f"{kernels}; {os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}, load {load:.1f}")
    if options.chart is not None:
        draw(all_figures, options.chart)


if __name__ == "__main__":
    main(sys.argv[1:])
