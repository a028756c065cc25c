"""How many GPUs each job gets, before the question which: gangs whole, growth in units and only where it repays.

A `Sharing` counts down the GPUs on offer while a policy's plan gives them away, demands in an order (`up_to`) or a step at a
time (`step`): a job's first step makes its gang, later ones add a unit.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from heapq import heapify, heappop, heappush
from math import floor
from typing import TypeAlias

from themis_arbiter.core.policies.base import Market, MarketJob
from themis_arbiter.core.policies.pools import Pools
from themis_arbiter.core.types import GpuId, JobId

Key: TypeAlias = tuple[float, ...]


class Sharing:
    """The shares of one hand-out: `shares` in the order of giving, `room` GPUs left to give."""

    def __init__(
        self,
        market: Market,
        free: Collection[GpuId],
        got: Mapping[JobId, tuple[GpuId, ...]] | None = None,
        barred: Collection[JobId] = (),
    ) -> None:
        self._lease_ms = market.settings.lease_ms
        self._got = got or {}
        self._barred = barred
        self.room = len(free)
        self._pools = Pools(market, free) if market.is_typed else None
        self.shares: dict[JobId, int] = {}
        self.jobs: dict[JobId, MarketJob] = {}

    @property
    def is_blank(self) -> bool:
        """Whether nothing was given yet, and nobody is barred."""
        return not (self.shares or self._got or self._barred)

    def room_for(self, job: MarketJob) -> int:
        """GPUs left that this job may have: where jobs are bound to GPU types, such as leave a place to all promised ones."""
        return self.room if self._pools is None else min(self.room, self._pools.room(job))

    def has(self, job: MarketJob) -> int:
        """GPUs that the job has by now, the ending ones only where they were given to it again."""
        has = len(job.held) + self.shares.get(job.job_id, 0)
        return has + len(self._got.get(job.job_id, ())) if self._got else has

    def step(self, job: MarketJob) -> int:
        """GPUs that the job's next step takes, whether or not there is room; 0 where it has none."""
        has = self.has(job)
        if has >= job.wanted or not job.can_gain or job.job_id in self._barred:
            return 0
        if has < job.gang:
            least = -(-(job.gang - has) // job.unit) * job.unit
        elif has == len(job.held) + len(job.ending):
            least = self._growth_min(job, has)
        else:
            least = job.unit
        return least if has + least <= job.wanted else 0

    def give(self, job: MarketJob, count: int) -> None:
        """The job gets so many more."""
        assert 0 < count <= self.room, f"{count} GPUs for {job.job_id}, {self.room} are left"
        self.jobs[job.job_id] = job
        self.shares[job.job_id] = self.shares.get(job.job_id, 0) + count
        self.room -= count
        if self._pools is not None:
            self._pools.promise(job, count)

    def up_to(self, job: MarketJob, most: int) -> None:
        """The job gets so many in all, or as many of them as there is room for and use in, or nothing."""
        target = min(most, job.wanted)
        if self.has(job) >= target:  # so it is for most, three times a round
            return
        while 0 < (step := self.step(job)) <= self.room_for(job) and self.has(job) + step <= target:
            has, now = self.has(job), len(job.held) + len(job.ending)
            bulk = min(target - has, self.room_for(job)) // job.unit * job.unit
            if has < now:  # beyond what it runs on, growth has to repay
                bulk = min(bulk, (now - has) // job.unit * job.unit)
            self.give(job, max(step, bulk))

    def _growth_min(self, job: MarketJob, has: int) -> int:
        """The least growth that repays the restart it costs, within a lease and while the job lasts."""
        if not job.has_run or (job.restart_ms == 0 and job.lost == 0):
            return job.unit
        # On b GPUs in place of a it does more within a time h where b (h - restart) - lost > a h.
        h = min(float(self._lease_ms), job.remaining / has)
        if h <= job.restart_ms:
            return job.wanted + job.unit
        more = (has * h + job.lost) / (h - job.restart_ms) - has
        return (floor(more / job.unit) + 1) * job.unit


Steps: TypeAlias = Sequence[tuple[Key, int]]  # keys of the next steps of jobs, each with the job's position


def first_steps(
    sharing: Sharing, jobs: Sequence[MarketJob], key: Callable[[MarketJob, int, int], Key], most: int | None = None
) -> Steps:
    """The next step of every job that has one (of at most so many GPUs): key(job, GPUs it has, GPUs of the step)."""
    steps = [(sharing.step(job), k) for k, job in enumerate(jobs)]
    return [(key(jobs[k], sharing.has(jobs[k]), step), k) for step, k in steps if step and (most is None or step <= most)]


def fill(
    sharing: Sharing, jobs: Sequence[MarketJob], key: Callable[[MarketJob, int, int], Key], first: Steps | None = None
) -> None:
    """Give step after step to the job of the least key(job, GPUs it has, GPUs of its next step), ties to the first.

    `first`: `first_steps` of a sharing in which nothing was given and nobody was barred, where they are known.
    """
    if sharing.room == 0:
        return
    heap = list(first if first is not None and sharing.is_blank else first_steps(sharing, jobs, key, sharing.room))
    heapify(heap)
    while heap and sharing.room:
        _, k = heappop(heap)
        job = jobs[k]
        step = sharing.step(job)
        if 0 < step <= sharing.room_for(job):
            sharing.give(job, step)
            if following := sharing.step(job):
                heappush(heap, (key(job, sharing.has(job), following), k))
