"""Finish-time fairness of what an app would end with (paper, 4.3; decisions in mechanism.md, section 5).

Everything is an estimate made with the allocation held until completion: T_shared = time since arrival + time left.
"""

from collections.abc import Iterable, Mapping
from math import ceil
from typing import TypeAlias

from themis_arbiter.core.policies.base import Market, MarketApp, MarketJob
from themis_arbiter.core.settings import Settings
from themis_arbiter.core.types import GpuSpeeds, JobId, Locality, Millis

# GPUs in all, their locality, whether the set is a new one, and the speed of the slowest by its type
Allocation: TypeAlias = Mapping[JobId, tuple[int, Locality, bool, float]]


def job_speed(market: Market, job: MarketJob, gpu_count: int, level: Locality, type_speed: float | None = None) -> float:
    """GPU-ms of work a ms on so many GPUs at that level, the slowest of that speed; None: the fastest that there are."""
    best = market.supply.topology.best_locality(gpu_count)
    speed = market.settings.slowdowns.speed_at(job.model, gpu_count, level, best)
    return speed * (market.fastest(job, gpu_count) if type_speed is None else type_speed)


Served: TypeAlias = tuple[float, float, float]  # a job's speed, work that it does again, ms until it would be done by itself


def served(
    market: Market, job: MarketJob, gpu_count: int, level: Locality, is_new: bool, type_speed: float | None = None
) -> Served:
    """What a job makes of so many GPUs, at least one."""
    s = job_speed(market, job, gpu_count, level, type_speed)
    restart, again = (job.restart_ms, job.lost) if is_new and job.has_run else (0, 0.0)
    return s, again, restart + (job.remaining + again) / s


def as_held(market: Market, app: MarketApp) -> Allocation:
    """What the app's jobs have in any case, those that have a gang."""
    locality = market.supply.topology.locality
    return {j.job_id: (len(j.held), locality(j.held), False, market.slowest(j, j.held)) for j in app.jobs if j.is_whole}


def time_left(market: Market, app: MarketApp, allocation: Allocation) -> float:
    """Milliseconds until the app's last job ends on `allocation`; jobs without GPUs take over from those that end."""
    has = [(job, allocation[job.job_id]) for job in app.jobs if job.job_id in allocation]
    return time_left_of(market, app, [served(market, job, *gpus) for job, gpus in has if gpus[0]])


def time_left_of(market: Market, app: MarketApp, jobs: Iterable[Served]) -> float:
    """The same; `jobs`: what those that have GPUs make of them, in the app's order."""
    speed = longest = lost = 0.0
    for s, again, alone_ms in jobs:
        speed += s
        lost += again
        longest = max(longest, alone_ms)
    if speed == 0.0:
        return time_left_unserved(market, app)
    return max(longest, (app.remaining + lost) / speed)


def time_left_unserved(market: Market, app: MarketApp) -> float:
    """The same where it gets nothing now: one lease later on one gang (finite, so that products and orders exist)."""
    best = market.supply.topology.best_locality
    alike = {(j.model, j.gang, j.gpu_speeds): j for j in app.jobs}
    speed = max([job_speed(market, j, j.gang, best(j.gang)) for j in alike.values()])
    restart = max([j.restart_ms for j in app.jobs if j.has_run], default=0)
    lost = sum([j.lost for j in app.jobs])
    return market.settings.lease_ms + restart + (app.remaining + lost) / speed


def rho_of(market: Market, app: MarketApp, left_ms: float) -> float:
    """Rho of an app that would end `left_ms` from now."""
    return max(1.0, market.now_ms - app.arrival_ms + left_ms) / app.t_independent_ms


def regrets_of(market: Market) -> dict[JobId, float]:
    """By job, the rho that its app ends with if the job is passed over once more (mechanism.md, section 6, rule 2).

    Jobs are told apart by model, GPUs and, where they run, the distance of these; most wait. The speed is that of its fastest
    GPU type, whichever it runs on: else who runs on the slow one would be urgent and take the fast one from who is not, to be
    urgent in turn, and both would move with every lease.
    """
    topology = market.supply.topology
    speeds: dict[tuple[str, int, GpuSpeeds, Locality], float] = {}
    later_ms = next_chance_ms(market.settings)
    found: dict[JobId, float] = {}
    for app in market.apps:
        passed_ms, t_independent_ms = market.now_ms - app.arrival_ms + later_ms, app.t_independent_ms
        for job in app.jobs:
            count = max(job.wanted, job.gang)
            level = topology.best_locality(count)
            if job.ending or job.held:
                runs_on = (*job.held, *job.ending) if job.held else job.ending
                level = max(level, topology.locality(runs_on)) if len(runs_on) >= job.gang else level
            alike = (job.model, count, job.gpu_speeds, level)
            speed = speeds.get(alike)
            if speed is None:
                speed = speeds[alike] = job_speed(market, job, count, level)
            found[job.job_id] = (passed_ms + job.remaining / speed) / t_independent_ms
    return found


def next_chance_ms(settings: Settings) -> Millis:
    """How much later a job that is passed over would be done: until it may be served again, and its start."""
    return (settings.tick_ms if settings.recall else settings.lease_ms) + settings.restart_cost_ms


def wait_until_urgent(settings: Settings, t_independent_ms: float, left_ms: float) -> Millis:
    """How long after its app's arrival a waiting job with `left_ms` to run has a regret that is urgent."""
    return ceil(settings.urgent_above * t_independent_ms - left_ms - next_chance_ms(settings)) + 1
