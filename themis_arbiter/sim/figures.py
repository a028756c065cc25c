"""What a replay amounts to: per app against its ideal fluid share, and the summary (contracts.md). Seconds and GPU-seconds."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, Final

from themis_arbiter.core.fluid import FluidApp, FluidShare
from themis_arbiter.core.fluid_types import Types, share_rate
from themis_arbiter.core.types import AppId
from themis_arbiter.sim.idle import idle_gpu_seconds
from themis_arbiter.sim.lower_bound import max_rho_lower_bound
from themis_arbiter.sim.sim_jobs import Physics, SimulatedJob
from themis_arbiter.sim.trace import FairApp, fair_app

RHO_FAIR: Final = 1.0
RHO_NEARLY_FAIR: Final = 1.05


@dataclass(frozen=True, slots=True, kw_only=True)
class AppFigures:
    """One app's line in apps.csv."""

    app_id: AppId
    arrival_s: float
    finish_s: float
    t_independent_s: float
    n_avg: float
    rho: float
    rho_own: float
    rho_paper: float
    gpu_seconds: float
    restarts: int

    @property
    def t_shared_s(self) -> float:
        """Time it took."""
        return self.finish_s - self.arrival_s


def held_gpu_s(job: SimulatedJob) -> float:
    """GPU-seconds in its hands, restarts included."""
    return sum((run.end_ms - run.start_ms) * len(run.gpus) for run in job.runs) / 1000.0


def finish_s(job: SimulatedJob) -> float:
    """When it was done."""
    assert job.finish_ms is not None
    return job.finish_ms / 1000.0


def app_figures(
    jobs: Iterable[SimulatedJob], weights: Mapping[AppId, float], gpus: int, rho_floor_s: float, types: Types = ()
) -> tuple[AppFigures, ...]:
    """Apps by name; `types` are the GPUs by type, where the cluster has any."""
    by_app: dict[AppId, list[SimulatedJob]] = {}
    for job in jobs:
        by_app.setdefault(job.spec.app_id, []).append(job)
    fair = {a: fair_app(a, tuple(j.spec for j in by_app[a]), weights[a], types) for a in sorted(by_app)}
    ends = {a: max(finish_s(j) for j in by_app[a]) for a in fair}
    ideal = fair_finishes(fair.values(), gpus, types)
    present = _Presence([(fair[a].arrival_s, ends[a]) for a in fair])
    out = []
    for app_id, app in fair.items():
        shared = ends[app_id] - app.arrival_s
        n_avg = max(1.0, present.between(app.arrival_s, ends[app_id]) / max(1e-3, shared))
        whole = gpus if not app.speeds else share_rate(app.speeds, types, 1.0, 1.0, float(gpus))
        own = max(app.longest_s, app.work_gpu_s * n_avg / whole)
        paper = n_avg * app.work_gpu_s / min(whole, app.max_demand)
        t_independent = ideal[app_id] - app.arrival_s
        out.append(
            AppFigures(
                app_id=app_id,
                arrival_s=app.arrival_s,
                finish_s=ends[app_id],
                t_independent_s=t_independent,
                n_avg=n_avg,
                rho=shared / max(t_independent, rho_floor_s),
                rho_own=shared / max(own, rho_floor_s),
                rho_paper=shared / max(paper, rho_floor_s),
                gpu_seconds=sum(held_gpu_s(j) for j in by_app[app_id]),
                restarts=sum(j.restarts for j in by_app[app_id]),
            )
        )
    return tuple(out)


def fair_finishes(apps: Iterable[FairApp], gpus: int, types: Types = ()) -> dict[AppId, float]:
    """Finish of every app under the ideal fluid share, from the whole trace at once."""
    share = FluidShare(rewind_ms=0)
    share.set_gpus(float(gpus), 0, types)
    for app in sorted(apps, key=lambda a: (a.arrival_s, a.app_id)):
        at_ms = round(app.arrival_s * 1000.0)
        share.advance(at_ms)
        share.join(
            FluidApp(
                app_id=app.app_id,
                arrival_ms=at_ms,
                work=app.work_gpu_s * 1000.0,
                left=app.work_gpu_s * 1000.0,
                parallelism=app.parallelism,
                weight=app.weight,
                speeds=app.speeds,
            )
        )
    return {app_id: end / 1000.0 for app_id, end in share.fair_finishes().items()}


class _Presence:
    """How many apps there are, integrated over time."""

    def __init__(self, stays: Sequence[tuple[float, float]]) -> None:
        changes: dict[float, int] = {}
        for start, end in stays:
            changes[start] = changes.get(start, 0) + 1
            changes[end] = changes.get(end, 0) - 1
        self._times = sorted(changes)
        self._sums, self._counts = [0.0], [changes[self._times[0]]]
        for before, at in zip(self._times, self._times[1:], strict=False):
            self._sums.append(self._sums[-1] + self._counts[-1] * (at - before))
            self._counts.append(self._counts[-1] + changes[at])

    def _up_to(self, at: float) -> float:
        k = bisect_right(self._times, at) - 1
        return self._sums[k] + self._counts[k] * (at - self._times[k])

    def between(self, start: float, end: float) -> float:
        """App-seconds in that time."""
        return self._up_to(end) - self._up_to(start)


def nearest_rank(ordered: Sequence[float], share: float) -> float:
    """The percentile of sorted values by nearest rank; 0 of none."""
    return ordered[max(0, min(len(ordered), ceil(share * len(ordered))) - 1)] if ordered else 0.0


def summary(
    apps: Sequence[AppFigures],
    jobs: Sequence[SimulatedJob],
    weights: Mapping[AppId, float],
    physics: Physics,
    rho_floor_s: float,
) -> dict[str, Any]:
    """The figures of summary.json that hang on the replay alone."""
    rho = sorted(a.rho for a in apps)
    times = sorted(a.t_shared_s for a in apps)
    first, last = min(a.arrival_s for a in apps), max(a.finish_s for a in apps)
    gpus, span = physics.topology.gpu_count, last - first
    idle = idle_gpu_seconds(jobs, gpus)
    fair = {a.app_id: max(rho_floor_s, a.t_independent_s) for a in apps}
    by_app: dict[AppId, list[SimulatedJob]] = {a.app_id: [] for a in apps}
    for job in jobs:
        by_app[job.spec.app_id].append(job)
    shapes = [fair_app(a, tuple(j.spec for j in by_app[a]), weights[a], physics.topology.gpus_by_type) for a in by_app]
    return {
        "n_apps": len(apps),
        "n_jobs": len(jobs),
        "max_rho": rho[-1],
        "p95_rho": nearest_rank(rho, 0.95),
        "median_rho": nearest_rank(rho, 0.5),
        "frac_rho_le_1": sum(r <= RHO_FAIR for r in rho) / len(rho),
        "frac_rho_le_1_05": sum(r <= RHO_NEARLY_FAIR for r in rho) / len(rho),
        "max_rho_lower_bound": max_rho_lower_bound(shapes, fair, gpus),
        "jain": sum(rho) ** 2 / (len(rho) * sum(r * r for r in rho)),
        "avg_jct_s": sum(times) / len(times),
        "p99_jct_s": nearest_rank(times, 0.99),
        "makespan_s": span,
        "gpu_hours": sum(a.gpu_seconds for a in apps) / 3600.0,
        "placement_score": _placement_score(jobs, physics),
        "restarts": sum(a.restarts for a in apps),
        "idle_while_demand": idle / (span * gpus) if span > 0 else 0.0,
    }


def _placement_score(jobs: Iterable[SimulatedJob], physics: Physics) -> float:
    """Mean over GPU time held of the speed kept against the best placement: 1 where nothing was lost to distance."""
    held = kept = 0.0
    for job in jobs:
        for run in job.runs:
            time_ms = run.end_ms - run.start_ms
            held += time_ms * len(run.gpus)
            kept += time_ms * physics.slowdowns.speed(job.spec.model, run.gpus, physics.topology)
    return kept / held if held > 0 else 1.0
