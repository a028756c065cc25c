"""What is in a trace: apps, jobs, gangs, work, arrivals, and the load that it puts on a cluster."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from themis_arbiter.core.fluid_types import Types
from themis_arbiter.core.gpu_speeds import reach_of, speed_on
from themis_arbiter.core.topology import Topology
from themis_arbiter.core.types import GpuSpeeds, NodeName
from themis_arbiter.sim.clusterfile import Capacity
from themis_arbiter.sim.stock import Stock
from themis_arbiter.sim.trace import Trace, TraceJob

QUANTILES: Final = (("p10", 0.1), ("median", 0.5), ("p90", 0.9), ("max", 1.0))
SHOWN_MAX: Final = 20  # gang sizes and models told by themselves; the rest are one entry
HOUR_S: Final = 3_600.0
REST: Final = "(others)"
UNIONS_MAX: Final = 256  # of sets of types; past it the rest is not looked at


def trace_stats(
    trace: Trace, topology: Topology | None = None, capacity: Mapping[NodeName, Capacity] | None = None
) -> dict[str, Any]:
    """Figures of a trace as plain numbers and mappings; units are in the names. Quantiles are by nearest rank.

    Load is GPU-seconds of work over GPUs times the span of app arrivals; None where there is no cluster or no span. Where jobs
    declare speeds by GPU type it is that of the scarcest types: of what can run on some types only, over these.
    """
    apps = trace.apps()
    jobs = trace.jobs
    starts_s = sorted(own[0].arrival_s for own in apps.values())
    gaps_s = [later - earlier for earlier, later in pairwise(starts_s)]
    span_s = starts_s[-1] - starts_s[0]
    work_gpu_s = sum(j.work_gpu_s for j in jobs)
    return {
        "rows": trace.rows,
        "bad_rows": trace.bad_rows,
        "apps": len(apps),
        "jobs": len(jobs),
        "span_h": span_s / HOUR_S,
        "work_gpu_h": work_gpu_s / HOUR_S,
        "largest_gang": max(j.gang for j in jobs),
        "elastic_jobs": sum(j.max_gpus > j.gang for j in jobs),
        "jobs_per_app": quantiles([len(own) for own in apps.values()]),
        "duration_h": quantiles([j.duration_s / HOUR_S for j in jobs]),
        "work_gpu_h_per_app": quantiles([sum(j.work_gpu_s for j in own) / HOUR_S for own in apps.values()]),
        "arrival_gap_s": {**quantiles(gaps_s), "mean": sum(gaps_s) / len(gaps_s)} if gaps_s else {},
        "jobs_by_gang": _counted(Counter(str(j.gang) for j in jobs), key=int),
        "jobs_by_model": _counted(Counter(j.model or "(none)" for j in jobs)),
        "users": len({j.user for j in jobs} - {""}),
        "queues": len({j.queue for j in jobs} - {""}),
        "cluster": None if topology is None else _on_cluster(jobs, topology, capacity or {}, span_s),
    }


def _on_cluster(
    jobs: Sequence[TraceJob], topology: Topology, capacity: Mapping[NodeName, Capacity], span_s: float
) -> dict[str, Any]:
    stock = Stock(topology, capacity)
    work_s = _work_s(jobs, topology)
    return {
        "gpus": topology.gpu_count,
        "machines": len(topology.machines),
        "racks": len({m.rack for m in topology.machines}),
        "load": work_s / span_s if span_s > 0 else None,
        "work_h_of_whole_cluster": work_s / HOUR_S,
        "jobs_too_large": sum(j.gang > stock.room(j) for j in jobs),
    }


def _work_s(jobs: Sequence[TraceJob], topology: Topology) -> float:
    """Seconds in which the work could be done at best, were it divisible: of the set of types that needs longest.

    Each job at its best there is for it; those that may have no GPU of the cluster are left out.
    """
    types = topology.gpus_by_type
    gpu_s: dict[int, float] = {}  # by the types that the jobs can use, as bits
    masks: dict[GpuSpeeds, int] = {}
    for job in jobs:
        if job.gpu_speeds not in masks:
            can = [speed_on(job.gpu_speeds, name) > 0.0 for name, _ in types]
            masks[job.gpu_speeds] = sum(1 << k for k, is_usable in enumerate(can) if is_usable)
        reach = reach_of(job.gpu_speeds, job.gang, job.max_gpus, types)
        mask = masks[job.gpu_speeds]
        gpu_s[mask] = gpu_s.get(mask, 0.0) + reach.gpu_time(job.work_gpu_s)
    unions: set[int] = set()
    for mask in sorted(gpu_s):
        unions |= {mask} | {mask | union for union in unions if len(unions) < UNIONS_MAX}
    return max([_over(union, gpu_s, types) for union in unions if union], default=0.0)


def _over(union: int, gpu_s: Mapping[int, float], types: Types) -> float:
    """GPU time of what can run on these types only, over their GPUs."""
    gpus = sum(count for k, (_, count) in enumerate(types) if union >> k & 1)
    return sum(time for mask, time in gpu_s.items() if mask and mask & ~union == 0) / gpus


def quantiles(values: Sequence[float]) -> dict[str, float]:
    """Quantiles by nearest rank; empty for no values."""
    ordered = sorted(values)
    if not ordered:
        return {}
    return {name: ordered[max(0, -int(-share * len(ordered) // 1) - 1)] for name, share in QUANTILES}


def _counted(counts: Counter[str], key: type[int] | None = None) -> dict[str, int]:
    """Counts of the most frequent, by name (or as whole numbers), and of the rest together."""
    top = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
    shown = dict(sorted(top[:SHOWN_MAX], key=lambda entry: key(entry[0]) if key else 0))
    rest = sum(count for _, count in top[SHOWN_MAX:])
    return {**shown, REST: rest} if rest else shown
