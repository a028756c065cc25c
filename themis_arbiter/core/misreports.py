"""Lies of a bidder, and what comes of them by its true table: for the audit of single rounds (`themis audit`).

A lie is told in the bid only. Who is called, what others bid and to whom leftovers go stay as they were, as does what the
app's rho is measured against: that scales all its rows alike, and no auction is changed by it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from themis_arbiter.core.auction.bid import Bid, Placement
from themis_arbiter.core.bidding import build_bid, tightest
from themis_arbiter.core.policies.base import Market, MarketApp, MarketJob
from themis_arbiter.core.rho import Allocation, job_speed, rho_of, time_left
from themis_arbiter.core.speedup import Slowdowns
from themis_arbiter.core.types import GpuId, JobId, Locality
from themis_arbiter.core.workload import believed_work, work_left


class About(StrEnum):
    """What a bidder may lie about."""

    WORK = "work"  # declared serial work of each of its jobs, what is done of it included
    SLOWDOWN = "slowdown"  # S - 1 of its models at every level
    PARALLELISM = "parallelism"  # GPUs that each of its jobs can use


FACTORS: Final = (0.2, 0.6, 0.8, 0.9, 1.1, 1.2, 1.4, 1.8)  # of the truth: 10, 20, 40 and 80 % off, down and up
LIED_MODEL: Final = " as told in a bid"  # ends the names of models that only a lie knows


@dataclass(frozen=True, slots=True)
class Lie:
    """What it is about, and what is told for each unit of truth."""

    about: About
    factor: float


def all_lies(about: About) -> tuple[Lie, ...]:
    """The lies of one kind that are tried."""
    return tuple(Lie(about, factor) for factor in FACTORS)


def lied_bid(market: Market, app: MarketApp, lie: Lie) -> Bid:
    """The bid that the app would make if this were the truth."""
    if lie.about is About.WORK:
        return build_bid(market, replace(app, jobs=tuple(_other_work(j, lie.factor) for j in app.jobs)))
    if lie.about is About.PARALLELISM:
        return build_bid(market, replace(app, jobs=tuple(_other_parallelism(j, lie.factor) for j in app.jobs)))
    known = market.settings.slowdowns
    told: dict[str, Slowdowns] = dict(known.by_model)
    for model in {j.model for j in app.jobs}:
        slot, machine, rack, cluster = (1.0 + (s - 1.0) * lie.factor for s in known.by_model.get(model, known.default))
        told[model + LIED_MODEL] = slot, machine, rack, cluster
    settings = replace(market.settings, slowdowns=replace(known, by_model=told))
    jobs = tuple(replace(j, model=j.model + LIED_MODEL) for j in app.jobs)
    return build_bid(replace(market, settings=settings), replace(app, jobs=jobs))


def true_rho(market: Market, app: MarketApp, got: Placement) -> float:
    """Rho by the app's true table, if it gets these GPUs of the supply beside those it holds."""
    return rho_of(market, app, time_left(market, app, _allocation(market, app, got)))


def ending_rho(market: Market, app: MarketApp, got: Placement) -> float:
    """The same, but no job without GPUs is done sooner than if it ran from now on.

    Tables take it that such jobs share what those leave that end. Honest bids serve the longest jobs first, so it is all one
    to them; a lie about work may bring others to the front, and would seem to gain by leaving the longest out.
    """
    allocation = _allocation(market, app, got)
    left_ms = time_left(market, app, allocation)
    for job in app.jobs:
        if job.job_id not in allocation:
            count = max(job.gang, job.wanted)
            speed = job_speed(market, job, count, market.supply.topology.best_locality(count))
            left_ms = max(left_ms, job.remaining / speed)
    return rho_of(market, app, left_ms)


def _allocation(market: Market, app: MarketApp, got: Placement) -> Allocation:
    """What its jobs have then; one with less than its gang has nothing."""
    return {j.job_id: _used(market, j, got.get(j.job_id, ())) for j in app.jobs if _count(j, got) >= j.gang}


def _count(job: MarketJob, got: Mapping[JobId, tuple[GpuId, ...]]) -> int:
    return len(job.held) + len(got.get(job.job_id, ()))


def _used(market: Market, job: MarketJob, got: tuple[GpuId, ...]) -> tuple[int, Locality, bool, float]:
    """What the job runs on of its GPUs: no more than it can use, the closest of them."""
    has = tuple(sorted((*job.held, *got)))
    if len(has) > max(job.wanted, job.gang):
        most = max(job.wanted, job.gang)
        has = tightest(has, (), most - (most - job.gang) % job.unit, market.supply, market.speeds(job))
    is_new = set(has) != {*job.held, *job.ending}
    return len(has), market.supply.topology.locality(has), is_new and bool(got), market.slowest(job, has)


def _other_work(job: MarketJob, factor: float) -> MarketJob:
    told = believed_work(factor * (job.done + job.remaining), job.done)
    return replace(job, remaining=work_left(told, job.done))


def _other_parallelism(job: MarketJob, factor: float) -> MarketJob:
    """Never less than it holds or than its gang, which its containers tell."""
    told = round(job.wanted * factor)
    return replace(job, wanted=max(job.gang, len(job.held), told))
