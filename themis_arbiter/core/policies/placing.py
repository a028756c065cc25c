"""Which GPUs each job gets, once it is settled how many: incumbents keep theirs, moves repay, the rest is best fit.

1. GPUs whose lease ends stay with their holder, as many as its share is: renewed, nothing restarts. Most rounds end here:
   whose share is all that ends, and as close as can be, is settled before any hole is looked at.
2. The rest is placed largest first, each as tightly as can be. Where a job's share finds no place so (containers larger than
   the holes), all are placed again in the policy's order, so that nobody loses its place to one behind it, and at last
   without pinning those behind.
3. A job that is slowed where it is moves to a tighter place if that repays the restart within a lease.

That is done in a few ways (jobs that may choose first before incumbents stay; everything afresh) where some job is slowed or
may choose first, and the one with the most useful GPU time in the coming lease is taken, restarts deducted.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from themis_arbiter.core.bidding import tightest
from themis_arbiter.core.policies.base import Market, MarketJob
from themis_arbiter.core.policies.holes import Holes
from themis_arbiter.core.types import GpuId, JobId, Locality

CHOOSER_WEIGHT: Final = 4.0  # an urgent job's GPU time counts so much more (mechanism.md, section 6, rule 5)
ROUNDING: Final = 1e-9  # a share of useful time: what is better by less is not better

Shares: TypeAlias = Sequence[tuple[MarketJob, int]]  # in the policy's order: so many GPUs of the supply
Got: TypeAlias = Mapping[JobId, tuple[GpuId, ...]]  # GPUs of this round that jobs have already


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """GPUs of jobs, jobs whose share found no place, and whether one has its GPUs further apart than need be."""

    gpus: Mapping[JobId, tuple[GpuId, ...]]
    failed: frozenset[JobId]
    is_slowed: bool


def place(market: Market, free: set[GpuId], shares: Shares, got: Got, choosers: Collection[JobId] = ()) -> Assignment:
    """Give every job its share out of `free`; `choosers` may take places from incumbents that are none."""
    best = _assign(market, free, shares, got, pin_first=None)
    if not best.is_slowed:
        return best
    best_useful = _useful(market, best, shares, got, choosers)
    are_mixed = 0 < sum(job.job_id in choosers for job, _ in shares) < len(shares)
    for pin_first in (choosers, ()) if are_mixed else ((),):
        other = _assign(market, free, shares, got, pin_first=pin_first)
        useful = _useful(market, other, shares, got, choosers)
        if len(other.failed) <= len(best.failed) and useful > best_useful * (1 + ROUNDING):
            best, best_useful = other, useful
    return best


def _assign(market: Market, free: set[GpuId], shares: Shares, got: Got, pin_first: Collection[JobId] | None) -> Assignment:
    """One way of placing. `pin_first`: None, all keep what they hold; else these do, choose, and then the others keep."""

    def desk(stay: Mapping[JobId, tuple[GpuId, ...]]) -> "_Desk":
        rest = set(free).difference(*stay.values()) if stay else free
        return _Desk(market, Holes(market.supply, rest, market.settings.slowdowns, got), got, dict(stay))

    settled: dict[JobId, tuple[GpuId, ...]] = {}
    if pin_first is None:
        settled = {job.job_id: job.ending for job, count in shares if _is_settled(market, free, job, count, got)}
        groups = [(True, [s for s in shares if s[0].job_id not in settled] if settled else list(shares))]
        if len(settled) == len(shares):
            return Assignment(gpus=settled, failed=frozenset(), is_slowed=False)
    else:
        groups = [
            (True, [s for s in shares if s[0].job_id in pin_first]),
            (bool(pin_first), [s for s in shares if s[0].job_id not in pin_first]),
        ]
    placed = desk(settled)
    for is_pinned, group in groups:
        placed.settle(group, is_pinned=is_pinned, is_largest_first=True)
    if placed.failed:
        placed = desk(settled)
        for is_pinned, group in groups:
            placed.settle(group, is_pinned=is_pinned, is_largest_first=False)
    if placed.failed:
        placed = desk({})
        for share in shares:
            placed.settle([share], is_pinned=True, is_largest_first=False)
    return placed.assignment()


def _is_settled(market: Market, free: set[GpuId], job: MarketJob, count: int, got: Got) -> bool:
    """Whether the job's share is just what it holds and ends, all of it there, and nowhere would it be faster."""
    speeds = market.speeds(job)
    if speeds is not None and speeds.slowest((*job.held, *job.ending)) < speeds.best(len(job.held) + count):
        return False
    if count != len(job.ending) or not free.issuperset(job.ending):
        return False
    gpus = (*job.held, *got.get(job.job_id, ()), *job.ending) if job.held or got else job.ending
    topology = market.supply.topology
    level, best = topology.locality(gpus), topology.best_locality(len(gpus))
    slowdown = market.settings.slowdowns.slowdown
    return level <= best or slowdown(job.model, level) <= slowdown(job.model, best)


@dataclass
class _Desk:
    """Places shares one by one."""

    market: Market
    holes: Holes
    got: Got
    taken: dict[JobId, tuple[GpuId, ...]] = field(default_factory=dict)
    failed: set[JobId] = field(default_factory=set)
    declined: set[JobId] = field(default_factory=set)  # jobs that would be slower with some of their share
    is_slowed: bool = False
    jobs: dict[JobId, MarketJob] = field(default_factory=dict)  # of the shares that it was asked to settle

    def assignment(self) -> Assignment:
        """What has been placed."""
        taken = {j: gpus for j, gpus in self._at_home().items() if gpus}
        return Assignment(gpus=taken, failed=frozenset(self.failed | self.declined), is_slowed=self.is_slowed)

    def _at_home(self) -> dict[JobId, tuple[GpuId, ...]]:
        """What was taken, with the GPUs of each slot dealt out anew: who was on one of them is on it again.

        GPUs of a slot are as good as each other, so a job that is placed afresh on a machine where it runs need not move.
        """
        movers = [j for j in self.jobs.values() if not set(j.ending).issubset(self.taken.get(j.job_id, j.ending))]
        movers = [j for j in movers if self.taken[j.job_id]]
        if not movers:
            return self.taken
        places = self.market.supply.topology.places
        owner = {gpu: job_id for job_id, gpus in self.taken.items() for gpu in gpus}
        dealt = {job_id: set(gpus) for job_id, gpus in self.taken.items()}
        for job in movers:
            mine = dealt[job.job_id]
            for own in job.ending:
                other = owner.get(own)
                if own in mine or (other is None and own not in self.holes):
                    continue
                cell = (places[own].machine, places[own].slot)
                alike = [g for g in mine.difference(job.ending) if (places[g].machine, places[g].slot) == cell]
                if not alike:
                    continue
                away = min(alike)
                mine.symmetric_difference_update((own, away))
                owner[own] = job.job_id
                del owner[away]
                if other is not None:
                    dealt[other].symmetric_difference_update((own, away))
                    owner[away] = other
        return {job_id: tuple(sorted(gpus)) for job_id, gpus in dealt.items()}

    def settle(self, shares: Shares, *, is_pinned: bool, is_largest_first: bool) -> None:
        """Place these shares: what jobs hold stays with them (`is_pinned`), the rest in order or the largest first."""
        for job, count in shares:
            self.jobs[job.job_id] = job
            if is_pinned:
                self._pin(job, count)
        order = shares
        if is_largest_first:
            # Of equally large ones those first that lose most by lying apart.
            order = sorted(shares, key=lambda s: (len(self.taken.get(s[0].job_id, ())) - s[1], -self._loss_apart(s[0])))
        for job, count in order:
            self._settle(job, count)

    def _loss_apart(self, job: MarketJob) -> float:
        slowdown = self.market.settings.slowdowns.slowdown
        apart = slowdown(job.model, Locality.CLUSTER) / slowdown(job.model, Locality.SLOT)
        speeds = self.market.speeds(job)
        return apart if speeds is None or not speeds.levels else apart * speeds.levels[0] / speeds.levels[-1]

    def _pin(self, job: MarketJob, count: int) -> None:
        """The job keeps what it holds, as far as its share goes and it is still there."""
        there = tuple(g for g in job.ending if g in self.holes)
        keep = tightest(there, self._beside(job), min(count, len(there)), self.market.supply, self.market.speeds(job))
        if (count - len(keep)) % job.unit:
            keep = keep[: len(keep) // job.unit * job.unit]
        self.holes.take(keep)
        self.taken[job.job_id] = keep

    def _settle(self, job: MarketJob, count: int) -> None:
        kept, beside = self.taken.get(job.job_id, ()), self._beside(job)
        rest = count - len(kept)
        speed = best_speed(self.market, job, len(beside) + count)
        if rest == 0 and self._speed(job, (*beside, *kept)) >= speed:
            return
        found = self._find(job, rest, (*beside, *kept)) if rest else ()
        stay = None if found is None else (*kept, *found)
        if kept and (stay is None or self._speed(job, (*beside, *stay)) < speed):
            self.holes.give_back(kept)
            fresh = self._find(job, count, beside)
            self.holes.take(kept)
            if fresh is not None and self._is_better(job, beside, fresh, stay):
                self.holes.give_back(kept)
                self.holes.take(fresh)
                self._set(job, fresh, speed)
                return
        if found is None:
            self._fail(job, kept, rest, speed)
            return
        self.holes.take(found)
        self._set(job, (*kept, *found), speed)

    def _find(self, job: MarketJob, count: int, beside: tuple[GpuId, ...]) -> tuple[GpuId, ...] | None:
        """`count` GPUs for it beside those; or as many of them as make it fastest, where slower ones would hold up the gang."""
        speeds = self.market.speeds(job)
        if speeds is None:
            return self.holes.find(job, count, beside)
        best: tuple[GpuId, ...] | None = None
        best_speed = self._speed(job, beside) if len(beside) >= job.gang else 0.0
        if best_speed:
            best = ()
        counts = [min(count, self.holes.capacity(job, least) // job.unit * job.unit) for least in speeds.levels]
        for some in dict.fromkeys(counts):
            found = self.holes.find(job, some, beside) if some and len(beside) + some >= job.gang else None
            if found is not None and (speed := self._speed(job, (*beside, *found))) > best_speed * (1 + ROUNDING):
                best, best_speed = found, speed
        if best is not None and len(best) < count:
            self.declined.add(job.job_id)
        return best

    def _set(self, job: MarketJob, gpus: tuple[GpuId, ...], speed: float) -> None:
        self.taken[job.job_id] = tuple(sorted(gpus))
        self.is_slowed |= self._speed(job, (*self._beside(job), *gpus)) < speed

    def _is_better(
        self, job: MarketJob, beside: tuple[GpuId, ...], fresh: tuple[GpuId, ...], stay: tuple[GpuId, ...] | None
    ) -> bool:
        """Whether it does more in the coming lease on `fresh` than where it would `stay`."""
        if stay is None:
            return True
        return useful_time(self.market, job, (*beside, *fresh)) > useful_time(self.market, job, (*beside, *stay))

    def _fail(self, job: MarketJob, kept: tuple[GpuId, ...], rest: int, speed: float) -> None:
        """No place for its share: it gets as much of it as has one, if that makes a gang; else nothing."""
        self.failed.add(job.job_id)
        rest = min(rest, self.holes.capacity(job))
        if len(self._beside(job)) + len(kept) + rest < job.gang:
            self.holes.give_back(kept)
            self.taken[job.job_id] = ()
            return
        found = self._find(job, rest, (*self._beside(job), *kept)) if rest else ()
        assert found is not None, f"{rest} GPUs have a place for {job.job_id}"
        self.holes.take(found)
        self._set(job, (*kept, *found), speed)

    def _beside(self, job: MarketJob) -> tuple[GpuId, ...]:
        return (*job.held, *self.got.get(job.job_id, ()))

    def _speed(self, job: MarketJob, gpus: tuple[GpuId, ...]) -> float:
        speed = self.market.settings.slowdowns.speed(job.model, gpus, self.market.supply.topology)
        return speed * self.market.slowest(job, gpus)


def best_speed(market: Market, job: MarketJob, count: int) -> float:
    """GPU-ms of work a ms of the job on so many GPUs where they lie as close as this cluster allows."""
    best = market.supply.topology.best_locality(count)
    return market.settings.slowdowns.speed_at(job.model, count, best, best) * market.fastest(job, count)


def useful_time(market: Market, job: MarketJob, gpus: tuple[GpuId, ...]) -> float:
    """Work in GPU-ms that the job gets done in one lease on these GPUs, less what a change of them costs."""
    speed = market.settings.slowdowns.speed(job.model, gpus, market.supply.topology) * market.slowest(job, gpus)
    is_new = job.has_run and set(gpus) != {*job.held, *job.ending}
    restart_ms, lost = (job.restart_ms, job.lost) if is_new else (0, 0.0)
    return min(job.remaining, speed * max(0, market.settings.lease_ms - restart_ms) - lost)


def _useful(market: Market, one: Assignment, shares: Shares, got: Got, choosers: Collection[JobId]) -> float:
    total = 0.0
    for job, _ in shares:
        gpus = (*job.held, *got.get(job.job_id, ()), *one.gpus.get(job.job_id, ()))
        weight = CHOOSER_WEIGHT if job.job_id in choosers else 1.0
        total += weight * useful_time(market, job, gpus) if len(gpus) >= job.gang else 0.0
    return total
