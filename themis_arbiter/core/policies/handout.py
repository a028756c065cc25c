"""Handing out GPUs by a plan: shares first, then places; what finds no place goes to the next in line.

Order and place are different questions. A plan says how many GPUs each job gets (`sharing`), then `placing` says which.
Where a share finds no place, its job is barred and the plan is made again for what is left: the round stays work-conserving.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Final, TypeAlias

from themis_arbiter.core.auction.bid import Placement
from themis_arbiter.core.policies.base import Market, MarketJob
from themis_arbiter.core.policies.placing import place
from themis_arbiter.core.policies.sharing import Sharing
from themis_arbiter.core.types import AppId, GpuId, JobId

PLANS_MAX: Final = 64  # of one hand-out; each but the last bars a job that finds no place

Plan: TypeAlias = Callable[[Sharing], None]


class HandOut:
    """One hand-out in progress; `given` is what each job got in it, `free` what is left."""

    def __init__(self, market: Market, free: Iterable[GpuId], got: Mapping[JobId, tuple[GpuId, ...]] | None = None) -> None:
        self._market = market
        self._got = dict(got or {})  # the auction's part included
        self.free = set(free)
        self.given: dict[JobId, tuple[GpuId, ...]] = {}

    def run(self, plan: Plan, choosers: Collection[JobId] = ()) -> None:
        """Give out what is free by the plan; `choosers` choose their places first."""
        barred: set[JobId] = set()
        for _ in range(PLANS_MAX):
            sharing = Sharing(self._market, self.free, self._got, barred)
            plan(sharing)
            if not sharing.shares:
                return
            shares = [(sharing.jobs[j], count) for j, count in sharing.shares.items()]
            assignment = place(self._market, self.free, shares, self._got, choosers)
            for job_id, gpus in assignment.gpus.items():
                self.give(job_id, gpus)
            if not assignment.failed:
                return
            barred |= assignment.failed

    def run_all(
        self, orders: Iterable[Sequence[MarketJob]], choosers: Collection[JobId] = (), waited_for: Iterable[MarketJob] = ()
    ) -> None:
        """Give out by one order after the other; after one that leaves one of `waited_for` without a gang, nobody is served."""
        for order in orders:
            self.run(in_order(order), choosers)
            if any(len(j.held) + len(self._got.get(j.job_id, ())) < j.gang for j in waited_for):
                return

    def give(self, job_id: JobId, gpus: Iterable[GpuId]) -> None:
        """These free GPUs go to the job."""
        gpus = tuple(sorted(gpus))
        self.free.difference_update(gpus)
        for book in (self._got, self.given):
            book[job_id] = tuple(sorted((*book[job_id], *gpus))) if job_id in book else gpus

    def by_app(self) -> dict[AppId, Placement]:
        """What was given, by app and job."""
        out: dict[AppId, dict[JobId, tuple[GpuId, ...]]] = {}
        for job_id in sorted(self.given):
            out.setdefault(self._market.jobs[job_id].app_id, {})[job_id] = self.given[job_id]
        return dict(sorted(out.items()))


def in_order(order: Sequence[MarketJob]) -> Plan:
    """The plan that gives each app (jobs of one app that follow each other) its whole demand before the next.

    An app fills the gangs of its jobs in order, then gives them back what they run on, then lets them grow, in order: so no
    job's growth takes the gang of another, and who holds what it held stays as it is.
    """

    def plan(sharing: Sharing) -> None:
        for _, group in groupby(order, key=_app_id):
            room = sharing.room
            # Who needs more for a gang than there is gets nothing by any of the steps below.
            jobs = [j for j in group if j.gang - len(j.held) <= room or sharing.has(j)]
            for job in jobs:
                sharing.up_to(job, job.gang)
            for job in jobs:
                if len(job.held) + len(job.ending) > job.gang:
                    sharing.up_to(job, len(job.held) + len(job.ending))
            for job in jobs:
                if job.wanted > job.gang:
                    sharing.up_to(job, job.wanted)
            if sharing.room == 0:
                break

    return plan


_app_id = attrgetter("app_id")
