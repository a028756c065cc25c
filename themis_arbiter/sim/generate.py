"""Workloads made from a few facts and a seed: the paper's two, and others by load, burst, models, gangs and tuning style.

Quantities are *stratified*: of n values each nth part of the distribution gets one, in random order. So medians and shares come
out right for every seed, not only on average, and one seed differs from another in who gets what.

Every choice draws from a stream of its own named after it, so that asking for other gangs does not change the sizes of apps.
The result depends on the specification alone: no clock, no set order, no hash.
"""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from statistics import NormalDist, median
from typing import Final, TypeVar

from themis_arbiter.sim.convert import DECIMALS, TraceRow
from themis_arbiter.sim.generate_curves import Curve, stop_shares, synthetic_curves

APPS_MAX: Final = 1_000_000
JOBS_MAX: Final = 5_000_000
JOBS_PER_APP_MAX: Final = 100  # the paper's largest
STYLES: Final = ("single", "parallel", "halving", "curves")
HOUR_S: Final = 3_600.0

# What the paper says of both workloads, as quantiles. Service: GPU hours of an app's whole jobs.
SERVICE_GPU_H: Final = ((0.0, 2.0), (0.1, 8.0), (0.5, 264.0), (0.74, 359.0), (0.88, 471.0), (0.96, 604.0), (1.0, 733.0))
JOBS_PER_APP: Final = ((0.0, 1.0), (0.1, 1.0), (0.5, 77.0), (1.0, 100.0))
TASK_HOURS: Final = ((0.0, 0.5), (0.1, 1.3), (0.5, 3.75), (0.9, 7.6), (1.0, 14.0))
MEAN_GAP_S: Final = 18 * HOUR_S
GANGS: Final[Mapping[str, Mapping[int, float]]] = {"w1": {1: 0.7, 2: 0.3}, "w2": {1: 0.23, 2: 0.16, 4: 0.61}}
# The paper names kinds of models, not models: these are a third network-bound, as the studies with it assume.
MODELS: Final[Mapping[str, float]] = {
    "vgg16": 0.15,
    "vgg11": 0.1,
    "vgg19": 0.04,
    "alexnet": 0.01,
    "googlenet": 0.37,
    "resnet50": 0.17,
    "resnet152": 0.13,
    "inception3": 0.03,
}
WORKLOADS: Final = tuple(GANGS)
BURST: Final = 0.8  # with the gap below: half of all apps come within 3 minutes of the one before
BURST_GAP_S: Final = 183.0
NOISE: Final = 0.4  # sigma of the log of a job's duration around its app's, workload 1

T = TypeVar("T", str, int)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadSpec:
    """What to generate. Mixes are shares, of jobs for gangs and of apps for models and styles; they are scaled to sum to 1.

    `load` is GPU-seconds of work over GPUs times the span of arrivals; None: arrivals as far apart as in the paper.
    `burst` is the share of apps that come a mean of `burst_gap_s` after the one before.
    """

    workload: str = "w1"
    apps: int = 85
    gpus: int = 256
    load: float | None = None
    seed: int = 0
    burst: float = BURST
    burst_gap_s: float = BURST_GAP_S
    models: Mapping[str, float] = field(default_factory=lambda: MODELS)
    gangs: Mapping[int, float] | None = None
    styles: Mapping[str, float] = field(default_factory=lambda: {"parallel": 1.0})
    halving_eta: int = 2
    curves: Mapping[str, tuple[Curve, ...]] | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be generated. Errors: ValueError."""
        _check(self.workload in WORKLOADS, f"--workload {self.workload}: there are {', '.join(WORKLOADS)}")
        _check(2 <= self.apps <= APPS_MAX, f"--apps {self.apps}: from 2 to {APPS_MAX}")
        _check(self.gpus >= 1, f"--gpus {self.gpus}: at least 1")
        _check(self.load is None or 0 < self.load < math.inf, f"--load {self.load}: above 0")
        _check(0 <= self.burst < 1, f"--burst {self.burst}: a share, at least 0 and below 1")
        _check(0 < self.burst_gap_s < math.inf, f"--burst-gap {self.burst_gap_s}: seconds, above 0")
        _check(self.halving_eta >= 2, f"--eta {self.halving_eta}: at least 2")
        for what, mix in (("models", self.models), ("gangs", self.gangs or {1: 1.0}), ("styles", self.styles)):
            is_mix = bool(mix) and all(0 <= share < math.inf for share in mix.values()) and sum(mix.values()) > 0
            _check(is_mix, f"--{what}: shares must be at least 0, with some above 0")
        _check(all(1 <= g <= self.gpus for g in self.gangs or ()), f"--gangs: each from 1 to the cluster's {self.gpus} GPUs")
        _check(set(self.styles) <= set(STYLES), f"--styles: there are {', '.join(STYLES)}")


def _check(holds: bool, problem: str) -> None:
    if not holds:
        raise ValueError(problem)


@dataclass(frozen=True, slots=True)
class _App:
    """An app before its jobs are drawn. `hours`: its typical job's duration; None: each job's is drawn by itself."""

    name: str
    style: str
    gang: int
    jobs: int
    hours: float | None
    model: str


def generate(spec: WorkloadSpec) -> tuple[TraceRow, ...]:
    """The workload's jobs by arrival, app and job. Errors: ValueError where it would be too large."""
    apps = _apps(spec)
    if sum(a.jobs for a in apps) > JOBS_MAX:
        raise ValueError(f"more than {JOBS_MAX} jobs; ask for fewer apps")
    drawn = [_jobs(spec, app) for app in apps]
    work_gpu_s = sum(j.work_gpu_s for jobs in drawn for j in jobs)
    arrivals_s = _arrivals_s(spec, work_gpu_s)
    return tuple(
        TraceRow(
            **{name: getattr(job, name) for name in ("app_id", "job_id", "n_gpus", "duration_s", "model", "stop_after_s")},
            arrival_s=round(arrival_s, DECIMALS),
        )
        for jobs, arrival_s in zip(drawn, arrivals_s, strict=True)
        for job in jobs
    )


def load_of(jobs: Sequence[TraceRow], gpus: int) -> float:
    """GPU-seconds of work over GPUs times the span of arrivals; 0 where all arrive at once."""
    arrivals_s = [j.arrival_s for j in jobs]
    span_s = max(arrivals_s, default=0.0) - min(arrivals_s, default=0.0)
    return sum(j.work_gpu_s for j in jobs) / (gpus * span_s) if span_s > 0 else 0.0


# --- apps -------------------------------------------------------------------------------------------------------------


def _apps(spec: WorkloadSpec) -> list[_App]:
    """Each app's service by its rank, then its gang and number of jobs.

    In workload 1 the number of jobs goes by the same rank, and durations follow: so the facts about service, jobs and durations
    all hold. In workload 2 they cannot, since 77 jobs of 3 GPUs for 3.75 h are three times the service: there service and
    durations hold and the number of jobs gives way.
    """
    ranks = _stratified(spec, "size", spec.apps)
    services = [_quantile(SERVICE_GPU_H, u) for u in ranks]
    styles = _dealt(spec, "style", spec.styles, [1] * spec.apps)
    models = _dealt(spec, "model", spec.models, [1] * spec.apps)
    mix = spec.gangs or GANGS[spec.workload]
    if spec.workload == "w1":
        counts = [max(1, round(_quantile(JOBS_PER_APP, u))) for u in ranks]
        gangs = _dealt(spec, "gang", mix, counts)
    else:
        gangs = _dealt(spec, "gang", {g: g * share for g, share in mix.items()}, services)
        counts = [_jobs_for(s, g) for s, g in zip(services, gangs, strict=True)]
    digits = len(str(spec.apps - 1))
    apps: list[_App] = []
    for k, style in enumerate(styles):
        jobs = 1 if style == "single" else counts[k]
        hours = services[k] / (jobs * gangs[k]) if spec.workload == "w1" and style != "single" else None
        apps.append(_App(f"app{k:0{digits}d}", style, gangs[k], jobs, hours, models[k]))
    return apps


def _jobs_for(service_gpu_h: float, gang: int) -> int:
    """How many jobs of the usual duration make up a service."""
    mean_hours = sum((v0 + v1) / 2 * (u1 - u0) for (u0, v0), (u1, v1) in pairwise(TASK_HOURS))
    return min(JOBS_PER_APP_MAX, max(1, round(service_gpu_h / (gang * mean_hours))))


def _jobs(spec: WorkloadSpec, app: _App) -> list[TraceRow]:
    """An app's jobs, all arriving at 0."""
    draw = _stream(spec, f"jobs/{app.name}")
    hours = _hours(app, _shuffled_strata(app.jobs, draw))
    kept = _kept_shares(spec, app, draw)
    digits = max(2, len(str(app.jobs - 1)))
    jobs: list[TraceRow] = []
    for k, (job_hours, share) in enumerate(zip(hours, kept, strict=True)):
        duration_s = max(1.0, round(HOUR_S * job_hours, 1))
        stop_after_s = max(0.1, round(duration_s * share, 1)) if share < 1 else None
        jobs.append(
            TraceRow(
                app_id=app.name,
                job_id=f"{app.name}-{k:0{digits}d}",
                arrival_s=0.0,
                n_gpus=app.gang,
                duration_s=duration_s,
                model=app.model,
                stop_after_s=stop_after_s,
            )
        )
    return jobs


def _hours(app: _App, strata: Sequence[float]) -> list[float]:
    """Each job's duration in hours. Where the tuner stops jobs by comparing them, they are trained alike: all have one."""
    if app.hours is None:
        hours = [_quantile(TASK_HOURS, u) for u in strata]
    else:
        hours = [app.hours * math.exp(NOISE * NormalDist().inv_cdf(u)) for u in strata]
    return [median(hours)] * app.jobs if app.style in {"halving", "curves"} else hours


def _kept_shares(spec: WorkloadSpec, app: _App, draw: random.Random) -> list[float]:
    """For each job the share of its duration that the tuner lets it run."""
    match app.style:
        case "halving":
            return _halving_shares(app.jobs, spec.halving_eta, draw)
        case "curves":
            if spec.curves is None:
                return stop_shares(synthetic_curves(app.jobs, draw))
            group = spec.curves[draw.choice(sorted(spec.curves))]
            return stop_shares([group[draw.randrange(len(group))] for _ in range(app.jobs)])
        case _:
            return [1.0] * app.jobs


def _halving_shares(jobs: int, eta: int, draw: random.Random) -> list[float]:
    """Successive halving: of n jobs one in `eta` goes on after each rung, and each rung is `eta` times as long."""
    ranks = list(range(jobs))
    draw.shuffle(ranks)
    rungs = 0
    while eta ** (rungs + 1) <= jobs:
        rungs += 1
    shares = [1.0] * jobs
    for rung in range(rungs):
        for k, rank in enumerate(ranks):
            if jobs // eta ** (rung + 1) <= rank < max(1, jobs // eta**rung):
                shares[k] = 1 / eta ** (rungs - rung)
    return shares


# --- arrivals ---------------------------------------------------------------------------------------------------------


def _arrivals_s(spec: WorkloadSpec, work_gpu_s: float) -> list[float]:
    """When each app arrives. The first comes at 0, the last at the span's end.

    To meet the span the gaps between bursts are stretched and those inside left as they are, unless the bursts alone would fill
    more than half of it: then all are scaled alike.
    """
    gaps = spec.apps - 1
    span_s = gaps * MEAN_GAP_S if spec.load is None else work_gpu_s / (spec.gpus * spec.load)
    inside = min(gaps - 1, round(spec.burst * gaps))
    draw = _stream(spec, "arrivals")
    short = [-math.log1p(-u) * spec.burst_gap_s for u in _shuffled_strata(inside, draw)]
    long = [-math.log1p(-u) for u in _shuffled_strata(gaps - inside, draw)]
    if sum(short) > span_s / 2:
        short = [gap * span_s / 2 / sum(short) for gap in short]
    scale = (span_s - sum(short)) / sum(long)
    mixed = [*short, *(gap * scale for gap in long)]
    draw.shuffle(mixed)
    return list(accumulate(mixed, initial=0.0))


# --- chance -----------------------------------------------------------------------------------------------------------


def _stream(spec: WorkloadSpec, name: str) -> random.Random:
    return random.Random(f"{spec.seed}/{name}")  # by the text's digest: equal everywhere


def _stratified(spec: WorkloadSpec, name: str, count: int) -> list[float]:
    return _shuffled_strata(count, _stream(spec, name))


def _shuffled_strata(count: int, draw: random.Random) -> list[float]:
    """`count` numbers in (0, 1), one from each count-th part, in random order."""
    values = [(k + min(max(draw.random(), 0.01), 0.99)) / count for k in range(count)]
    draw.shuffle(values)
    return values


def _dealt(spec: WorkloadSpec, name: str, mix: Mapping[T, float], sizes: Sequence[float]) -> list[T]:
    """A value of the mix for each app, so that values get their shares of the sum of `sizes`; the largest apps choose first."""
    total, wanted = sum(sizes), sum(mix.values())
    left = {value: total * share / wanted for value, share in mix.items() if share > 0}
    order = list(range(len(sizes)))
    _stream(spec, name).shuffle(order)
    order.sort(key=lambda k: -sizes[k])
    dealt: dict[int, T] = {}
    for k in order:
        value = max(left, key=lambda v: (left[v], str(v)))
        left[value] -= sizes[k]
        dealt[k] = value
    return [dealt[k] for k in range(len(sizes))]


def _quantile(points: Sequence[tuple[float, float]], u: float) -> float:
    """The value at quantile `u` of a distribution given by points, straight between them."""
    for (u0, v0), (u1, v1) in pairwise(points):
        if u <= u1:
            return v0 + (v1 - v0) * (u - u0) / (u1 - u0)
    return points[-1][1]
