"""How fast a trace replays, and what a stream of jobs costs that lasts 1, 2, 4, 8 times as long.

    python -m tests.bench.simulator [--policies a,b] [--times 1,2,4,8] [--runs 3]
    python -m tests.bench.simulator --trace T.csv --cluster C.yaml [--models M.csv] [--restart-cost 40] [--policies a,b]

The stream is the generated workload 1 at load 0.8 on 64 GPUs; after its span it comes again under other names, so the load is
the same at every length. Every replay has a process of its own. Times are CPU time of the replay, decision records written,
report and tables not; an event is a step of the engine.
"""

import argparse
import gc
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Final

from tests.bench.lease_book import machine, peak_mb
from themis_arbiter.cli.tables import print_table
from themis_arbiter.core.effects import Effect
from themis_arbiter.core.events import Event
from themis_arbiter.core.types import CoreError
from themis_arbiter.server.models import read_models
from themis_arbiter.sim.convert import TraceRow, write_trace
from themis_arbiter.sim.generate import WorkloadSpec, generate
from themis_arbiter.sim.setkeys import make_settings
from themis_arbiter.sim.simulate import Inputs, replay
from themis_arbiter.sim.simulation import GC_THRESHOLD, Request, load

GPUS: Final = 64
LOAD: Final = 0.8
APPS: Final = 8
CLUSTER: Final = f"racks: [{{count: 2, machines: [{{count: {GPUS // 16}, gpus: 8, gpus_per_slot: 4}}]}}]\n"
POLICIES: Final = ("fifo", "las", "srsf", "drf", "guard", "themis")
TIMES: Final = (1, 2, 4, 8)
RUNS: Final = 1
RESTART_COST_S: Final = 40.0


@dataclass(frozen=True, slots=True)
class Measured:
    """What one replay took."""

    jobs: int
    events: int
    rounds: int
    cpu_s: float
    peak_mb: int


class _Count:
    """A journal that only counts."""

    def __init__(self) -> None:
        self.events = 0

    def record(self, event: Event, effects: Iterable[Effect]) -> None:
        """One more."""
        self.events += 1

    def flush(self) -> None:
        """Nothing waits."""

    def close(self) -> None:
        """Nothing is open."""


def stream(times: int) -> tuple[TraceRow, ...]:
    """The stream, so many times as long."""
    once = generate(WorkloadSpec(apps=APPS, gpus=GPUS, load=LOAD))
    span_s = sum(row.work_gpu_s for row in once) / (GPUS * LOAD)
    return tuple(
        replace(row, app_id=f"{row.app_id}-{k}", job_id=f"{row.job_id}-{k}", arrival_s=row.arrival_s + k * span_s, model="")
        for k in range(times)
        for row in once
    )


def measure(request: Request) -> Measured:
    """Replay in this process."""
    gc.set_threshold(GC_THRESHOLD)
    loaded = load(request, lambda line: print(line, file=sys.stderr))
    settings = make_settings(
        request.policy,
        lease_s=request.lease_s,
        restart_cost_s=request.restart_cost_s,
        rho_floor_s=request.rho_floor_s,
        knob=request.fairness_knob,
        sets=request.sets,
    )
    inputs = Inputs(trace=loaded.trace, topology=loaded.topology, slowdowns=loaded.slowdowns, settings=settings)
    count = _Count()
    with tempfile.TemporaryFile("w", encoding="utf-8", errors="surrogatepass") as records:
        began_s = time.process_time()
        replayed = replay(inputs, records, open_journal=lambda _: count)
        cpu_s = time.process_time() - began_s
    return Measured(len(replayed.jobs), count.events, replayed.rounds, cpu_s, peak_mb())


def measure_apart(requests: Sequence[Request]) -> Iterator[Measured]:
    """Each in a new process, one after the other."""
    with ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        for request in requests:
            yield pool.submit(measure, request).result()


def scaling(policies: Sequence[str], times: Sequence[int], runs: int) -> list[list[str]]:
    """A row for each policy and length: the median of `runs`, and what a job takes next to the shortest stream's."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="themis-bench-") as name:
        folder = Path(name)
        (folder / "cluster.yaml").write_text(CLUSTER)
        for k in times:
            write_trace(folder / f"{k}.csv", stream(k))
        for policy in policies:
            first: float | None = None
            for k in times:
                request = Request(
                    trace=folder / f"{k}.csv",
                    cluster=folder / "cluster.yaml",
                    policy=policy,
                    restart_cost_s=RESTART_COST_S,
                )
                found = list(measure_apart([request] * runs))
                each = sorted(m.cpu_s for m in found)
                per_job = median(each) / found[0].jobs
                first = first or per_job
                rows.append(
                    [
                        policy,
                        f"{k}x",
                        *_numbers(found[0], median(each)),
                        f"{each[0]:.1f}-{each[-1]:.1f}",
                        f"{per_job * 1e3:.2f}",
                        f"{per_job / first:.2f}",
                    ]
                )
    return rows


def _numbers(one: Measured, cpu_s: float) -> list[str]:
    counts = (one.jobs, one.events, one.rounds)
    return [*map(str, counts), f"{cpu_s:.1f}", f"{one.events / cpu_s:.0f}", str(one.peak_mb)]


COLUMNS: Final = tuple((title, True) for title in ("JOBS", "EVENTS", "ROUNDS", "CPU S", "EVENTS/S", "PEAK MB"))


def main(arguments: Sequence[str] | None = None) -> None:
    """See the module's text."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.simulator", description="Measure replays.")
    parser.add_argument("--policies", default=",".join(POLICIES))
    parser.add_argument("--times", default=",".join(map(str, TIMES)), help="lengths of the generated stream")
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--trace", type=Path, help="measure this trace in place of the generated stream")
    parser.add_argument("--cluster", type=Path)
    parser.add_argument("--models", type=Path)
    parser.add_argument("--restart-cost", type=float, default=RESTART_COST_S)
    wanted = parser.parse_args(arguments)
    policies = [name for name in wanted.policies.split(",") if name]
    if wanted.trace is None:
        rows = scaling(policies, [int(k) for k in wanted.times.split(",")], wanted.runs)
        columns = (("POLICY", False), ("STREAM", False), *COLUMNS, ("SPREAD", True), ("MS A JOB", True), ("OF 1X", True))
        print_table(columns, rows)
    else:
        if wanted.cluster is None:
            raise CoreError("a trace needs its cluster: --cluster")
        request = Request(
            trace=wanted.trace,
            cluster=wanted.cluster,
            slowdowns=read_models(wanted.models)[0] if wanted.models else None,
            models=str(wanted.models or ""),
            restart_cost_s=wanted.restart_cost,
        )
        found = measure_apart([replace(request, policy=policy) for policy in policies])
        rows = [[policy, *_numbers(m, m.cpu_s)] for policy, m in zip(policies, found, strict=True)]
        print_table((("POLICY", False), *COLUMNS), rows)
    print(machine())


if __name__ == "__main__":
    main()
