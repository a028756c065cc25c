"""Quincy's line: what everybody's waiting costs, and how much the cheapest flow gives to whom.

Jobs that have no GPUs may go anywhere, and those that have some stay where they are for nothing. So while there are gangs
enough for all GPUs, and nobody who runs lacks some for his, the cheapest flow is known without a search: GPUs go where waiting
costs most, less the way there. Where that is the same, holders come first, then the shorter way, then who came first. Else it
is searched for (`roads`), among those who do not stand behind gangs enough for all GPUs.

Most jobs wait, and are the same in many rounds: what their costs are made of is kept as arrays.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from themis_arbiter.core.policies.base import Market, MarketJob
from themis_arbiter.core.policies.roads import GANG_COST, Priced, Tolls, solve_flow
from themis_arbiter.core.types import AppId, Locality, Millis

WAITED_LEASES_MAX: Final = 2_000  # each lease that a job has waited adds 1; and bounds the number of different costs

Counts = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.float64]


class Crowd:
    """Jobs with what their costs are made of, in the order in which they and their apps came."""

    def __init__(self, jobs: Sequence[MarketJob]) -> None:
        """`jobs`: app by app, as each app would serve them."""
        self.jobs = sorted(jobs, key=_came)
        self.came = [_came(job) for job in self.jobs]
        self._arrival_ms: Counts = np.array([ms for ms, _ in self.came], dtype=np.int64)
        self._served_ms: Numbers = np.array([job.attained / job.gang for job in self.jobs], dtype=np.float64)

    def costs(self, market: Market) -> Counts:
        """What a GPU of each job's gang costs while it waits: more with each lease that it has not run since it came."""
        waited = np.maximum(0.0, market.now_ms - self._arrival_ms - self._served_ms) / market.settings.lease_ms
        costs: Counts = GANG_COST + np.minimum(WAITED_LEASES_MAX, waited.astype(np.int64))
        return costs


class Waiting(Crowd):
    """Those who have no GPUs: what a way to some costs each, and how many it takes to begin, 0 where it has no use for any."""

    def __init__(self, jobs: Sequence[MarketJob], tolls: Tolls) -> None:
        """`jobs`: as a crowd's."""
        super().__init__(jobs)
        self.listed, self.tolls = jobs, tolls
        self.ways: Counts = np.array([tolls.toll(job, Locality.CLUSTER) for job in self.jobs], dtype=np.int64)
        self.gangs: Counts = np.array([job.gang if job.can_gain else 0 for job in self.jobs], dtype=np.int64)


def _came(job: MarketJob) -> tuple[Millis, AppId]:
    return job.arrival_ms, job.app_id


@dataclass(frozen=True)
class Line:
    """Everybody in one round."""

    market: Market
    waiting: Waiting
    holders: Crowd  # who have GPUs

    @cached_property
    def ranked(self) -> list[Priced]:
        """All jobs with their costs, the dearest first; of equal ones who came first, in an app those who have GPUs."""
        return [(self._jobs[k], cost) for k, cost in self._by_cost(np.arange(len(self._jobs)))]

    @cached_property
    def flow(self) -> tuple[list[tuple[MarketJob, int]], int]:
        """GPUs of those whom the cheapest flow gives any, in order of rank, and the work that it took to find it."""
        known = self._sorted()
        if known is not None:
            return known, 0
        able = self._contenders()
        found, work = solve_flow(self.market, self.waiting.tolls, able)
        return [(job, found[job.job_id]) for job, _ in able if job.job_id in found], work

    def _sorted(self) -> list[tuple[MarketJob, int]] | None:
        """The cheapest flow where it is a matter of order alone."""
        holders, supply = [job for job in self.holders.jobs if job.can_gain], len(self.market.supply.gpus)
        if any(len(job.held) + len(job.ending) < job.gang for job in holders):
            return None
        own = [max(0, job.gang - len(job.held)) if job.can_gain else 0 for job in self.holders.jobs]
        gangs = np.concatenate((self.waiting.gangs, np.array(own, dtype=np.int64)))
        ways = np.concatenate((self.waiting.ways, np.full(len(own), -1)))
        gains = self._costs - np.maximum(0, ways)
        order = np.lexsort((ways, -gains))
        upto = np.cumsum(gangs[order])
        if not len(order) or upto[-1] < supply:
            return None
        chosen = order[: int(np.searchsorted(upto, supply)) + 1]
        counts = gangs.copy()
        counts[chosen[-1]] -= upto[len(chosen) - 1] - supply
        return [(self._jobs[k], count) for k, _ in self._by_cost(chosen) if (count := int(counts[k]))]

    def _contenders(self) -> list[Priced]:
        """Those whom a cheapest flow may give something, in order of rank."""
        gains = np.where(self.waiting.gangs > 0, self._costs[: len(self.waiting.jobs)] - self.waiting.ways, 0)
        by_gain = np.argsort(-gains)
        enough = int(np.searchsorted(np.cumsum(self.waiting.gangs[by_gain]), len(self.market.supply.gpus)))
        least = gains[by_gain[enough]] if enough < len(gains) else 1
        some = np.concatenate((np.flatnonzero(gains >= least), np.arange(len(gains), len(self._jobs))))
        return [(job, cost) for k, cost in self._by_cost(some) if (job := self._jobs[k]).can_gain]

    @cached_property
    def _jobs(self) -> list[MarketJob]:
        return self.waiting.jobs + self.holders.jobs

    @cached_property
    def _costs(self) -> Counts:
        return np.concatenate((self.waiting.costs(self.market), self.holders.costs(self.market)))

    @cached_property
    def _came(self) -> Numbers:
        """Numbers by which all jobs come in the order in which they and their apps came: holders between those who wait."""
        came, crowd = self.holders.came, self.waiting.came
        places = [bisect_left(crowd, one) - (len(came) - k) / (len(came) + 1) for k, one in enumerate(came)]
        return np.concatenate((np.arange(len(crowd)), np.array(places)))

    def _by_cost(self, some: Counts) -> list[tuple[int, int]]:
        """The numbers of these jobs in order of rank, with their costs."""
        costs = self._costs[some]
        order = np.lexsort((self._came[some], -costs))
        return list(zip(some[order].tolist(), costs[order].tolist(), strict=True))
