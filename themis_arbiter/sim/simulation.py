"""`themis simulate` from files to files: read what is named, replay it, write the run's folder."""

import gc
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from themis_arbiter.adapters.journal import FileJournal
from themis_arbiter.core.settings import Settings
from themis_arbiter.core.speedup import SlowdownModel
from themis_arbiter.core.topology import Topology
from themis_arbiter.core.types import AppId, NodeName
from themis_arbiter.ports import Journal
from themis_arbiter.sim.clusterfile import Capacity, read_whole_cluster
from themis_arbiter.sim.figures import AppFigures, app_figures, nearest_rank, summary
from themis_arbiter.sim.made_with import digest, made_with
from themis_arbiter.sim.outputs import write_run
from themis_arbiter.sim.run_folder import JOURNAL, PART, ROUNDS, fresh
from themis_arbiter.sim.setkeys import default_lease_s, make_settings
from themis_arbiter.sim.shares import read_shares
from themis_arbiter.sim.sim_jobs import Physics
from themis_arbiter.sim.simulate import Inputs, Misreport, Replayed, replay, told_rejected
from themis_arbiter.sim.stock import Stock
from themis_arbiter.sim.trace import Trace, TraceError, TraceJob, read_trace, unknown_models

BAD_ROWS_TOLD_MAX: Final = 100  # lines on stderr; the count says how many there were
GC_THRESHOLD: Final = 200_000
PERIODS_MAX_UNTOLD: Final = 100_000  # of a lease; more take hours

Tell = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Request:
    """What to simulate. Times in seconds; None: the policy's own default."""

    trace: Path
    cluster: Path
    slowdowns: SlowdownModel | None = None  # None: no models file was named
    models: str = ""  # its name, for messages
    policy: str = "themis"
    lease_s: float | None = None
    fairness_knob: float | None = None
    restart_cost_s: float = 0.0
    rho_floor_s: float = 600.0
    shares: Path | None = None
    estimate_error: float = 0.0
    misreports: tuple[Misreport, ...] = ()
    sets: Mapping[str, Any] = field(default_factory=dict)
    is_strict: bool = False
    seed: int = 0
    has_journal: bool = False  # whether the arbiter's journal is written too


@dataclass(frozen=True, slots=True)
class Loaded:
    """The files of a request, read; and what was wrong with the trace's bad rows is told."""

    trace: Trace
    topology: Topology
    slowdowns: SlowdownModel
    weights: dict[AppId, float] | None
    capacity: Mapping[NodeName, Capacity] = field(default_factory=dict)
    files: Mapping[str, tuple[str, str | None] | None] = field(default_factory=dict)  # path and SHA-256, by flag


def load(request: Request, tell: Tell) -> Loaded:
    """Read the inputs. Errors: TraceError, one line."""
    told = 0

    def tell_bad_row(line: str) -> None:
        nonlocal told
        told += 1
        if told <= BAD_ROWS_TOLD_MAX:
            tell(line)

    cluster = read_whole_cluster(request.cluster)
    trace = read_trace(request.trace, strict=request.is_strict, tell=tell_bad_row, note=tell)
    if told > BAD_ROWS_TOLD_MAX:
        tell(f"{request.trace}: and {told - BAD_ROWS_TOLD_MAX} more bad rows")
    if trace.bad_rows:
        tell(f"{request.trace}: {trace.rows} rows, {trace.bad_rows} bad and left out, {len(trace.jobs)} used")
    slowdowns = request.slowdowns
    if slowdowns is None:
        if any(job.model for job in trace.jobs):
            tell(f"{request.trace}: names models, and without --models none of them is slowed by distance")
        slowdowns = SlowdownModel()
    else:
        unknown = unknown_models(trace.jobs, slowdowns.by_model)
        if unknown:
            names = ", ".join(ascii(name)[:60] for name in unknown[:5])
            raise TraceError(f"{request.trace}: models not in {request.models}: {names}; add their rows")
    weights = read_shares(request.shares, trace.apps()) if request.shares is not None else None
    for line in _notes(request, trace.jobs, Stock(cluster.topology, cluster.capacity), cluster.topology.gpu_count):
        tell(line)
    named: dict[str, Path | str | None] = {
        "trace": request.trace,
        "cluster": request.cluster,
        "models": request.models,
        "shares": request.shares,
    }
    files = {name: (str(path), digest(Path(path))) if path else None for name, path in named.items()}
    return Loaded(trace, cluster.topology, slowdowns, weights, cluster.capacity, files)


def _notes(request: Request, jobs: Sequence[TraceJob], stock: Stock, gpus: int) -> Iterator[str]:
    """What whoever starts the run should know of it."""
    large = [job for job in jobs if job.gang > stock.room(job)]
    fitting = [job for job in jobs if job.gang <= stock.room(job)]
    if not fitting:
        return  # the run itself is refused
    if large:
        yield (
            f"{request.trace}: {len(large)} jobs want more than the cluster can give them and are left out "
            f"(rejected_jobs in summary.json): {told_rejected(large, stock)}"
        )
    lease_s = request.lease_s or default_lease_s(request.policy)
    last_s = max(job.arrival_s + job.work_gpu_s / job.max_gpus for job in fitting)
    span_s = max(last_s - fitting[0].arrival_s, sum(job.work_gpu_s for job in fitting) / gpus)
    if span_s / lease_s > PERIODS_MAX_UNTOLD:
        yield (
            f"{request.trace}: lasts {span_s / lease_s:,.0f} leases of {lease_s:g} s or more, which takes long; "
            "a longer --lease or a part of the trace takes less"
        )


def settings_of(request: Request) -> Settings:
    """The arbiter's settings. Errors: TraceError where they contradict each other."""
    return make_settings(
        request.policy,
        lease_s=request.lease_s,
        restart_cost_s=request.restart_cost_s,
        rho_floor_s=request.rho_floor_s,
        knob=request.fairness_knob,
        sets=request.sets,
    )


def simulate(request: Request, loaded: Loaded, folder: Path, progress: Tell | None = None) -> dict[str, Any]:
    """Replay and write `folder`, all files but the report; returns the summary. Errors: TraceError, OSError."""
    settings = settings_of(request)
    inputs = Inputs(
        trace=loaded.trace,
        topology=loaded.topology,
        slowdowns=loaded.slowdowns,
        capacity=loaded.capacity,
        settings=settings,
        seed=request.seed,
        weights=loaded.weights,
        estimate_error=request.estimate_error,
        misreports=request.misreports,
    )
    # A replay makes millions of short-lived values and hardly a cycle: looking for those often costs a tenth of its time.
    gc.set_threshold(GC_THRESHOLD)
    with fresh(folder):
        replayed = _replay_into(folder, inputs, progress, has_journal=request.has_journal)
        physics = Physics(loaded.topology, loaded.slowdowns, settings.restart_cost_ms)
        apps = app_figures(
            replayed.jobs, replayed.weights, loaded.topology.gpu_count, request.rho_floor_s, loaded.topology.gpus_by_type
        )
        found = _summary(request, replayed, apps, physics) | {
            "made_with": made_with(
                settings, loaded.files, request.sets, request.misreports, request.estimate_error, request.rho_floor_s
            )
        }
        write_run(folder, replayed.jobs, apps, found, dict(replayed.weights) if loaded.weights is not None else None)
    return found


def _replay_into(folder: Path, inputs: Inputs, progress: Tell | None, *, has_journal: bool) -> Replayed:
    """Replay with the files that grow while it runs beside their places, then move them there."""
    names = (ROUNDS, JOURNAL) if has_journal else (ROUNDS,)
    beside = {name: folder / f"{name}{PART}" for name in names}

    def open_journal(settings: Settings) -> Journal:
        return FileJournal(beside[JOURNAL], settings)

    more: dict[str, Any] = {"open_journal": open_journal} if has_journal else {}
    with beside[ROUNDS].open("w", encoding="utf-8", errors="surrogatepass", newline="") as records:
        replayed = replay(inputs, records, progress=progress, **more)
    for name, path in beside.items():
        path.replace(folder / name)
    return replayed


def _summary(request: Request, replayed: Replayed, apps: Sequence[AppFigures], physics: Physics) -> dict[str, Any]:
    walls = sorted(replayed.round_wall_ms)
    return {
        "policy": request.policy,
        "seed": request.seed,
        **summary(apps, replayed.jobs, replayed.weights, physics, request.rho_floor_s),
        "rejected_jobs": [list(job.key) for job in replayed.rejected],
        "reserved_gpu_seconds": replayed.reserved_gpu_s,
        "rounds": replayed.rounds,
        "auction_ms": {"p50": round(nearest_rank(walls, 0.5), 3), "p95": round(nearest_rank(walls, 0.95), 3)},
        "wall_s": round(replayed.wall_s, 3),
    }


def processors() -> int:
    """Processors that this process may use."""
    return max(1, len(os.sched_getaffinity(0)))
