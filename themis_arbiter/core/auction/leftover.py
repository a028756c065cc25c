"""Handing out what the auction left: in a given order, gangs whole, incumbents kept where they are.

Two passes, because order and place are different questions. The first says how many GPUs each job gets; the second pins
incumbents to GPUs that they hold, then places the rest as tightly as it can. Where a placement fails (containers larger
than the holes), the job's share goes to the next in line, so the round stays work-conserving.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from themis_arbiter.core.auction.bid import Supply
from themis_arbiter.core.policies.base import MarketJob
from themis_arbiter.core.types import GpuId, JobId, NodeName


@dataclass
class HandOut:
    """One hand-out in progress; `got` is what each job has by now from this round, the auction's part included."""

    supply: Supply
    free: set[GpuId]
    got: dict[JobId, tuple[GpuId, ...]] = field(default_factory=dict)
    given: dict[JobId, tuple[GpuId, ...]] = field(default_factory=dict)

    def run(self, order: Sequence[MarketJob], *, chunked: bool = False) -> None:
        """Give `free` to the jobs in order, each its whole demand (or a gang, then a unit at a time: `chunked`)."""
        barred: set[JobId] = set()
        while True:
            shares = self._shares([j for j in order if j.job_id not in barred], chunked=chunked)
            if not shares:
                return
            failed = self._place(order, shares)
            barred |= failed
            if not failed and not chunked:
                return

    def _has(self, job: MarketJob) -> int:
        return len(job.held) + len(self.got.get(job.job_id, ()))

    def _shares(self, order: Sequence[MarketJob], *, chunked: bool) -> dict[JobId, int]:
        """How many more GPUs each job gets."""
        room, shares = len(self.free), {}
        for job in order:
            has = self._has(job)
            if not job.can_gain or has >= job.wanted:
                continue
            least = job.unit if has >= job.gang else -(-(job.gang - has) // job.unit) * job.unit
            most = (job.wanted - has) // job.unit * job.unit
            if least > min(most, room):
                continue
            shares[job.job_id] = least if chunked else min(most, room // job.unit * job.unit)
            room -= shares[job.job_id]
            if chunked:
                break
        return shares

    def _place(self, order: Sequence[MarketJob], shares: dict[JobId, int]) -> set[JobId]:
        """Place all shares; returns jobs whose share found no place."""
        jobs = [j for j in order if j.job_id in shares]
        pinned: dict[JobId, tuple[GpuId, ...]] = {}
        for job in jobs:
            pinned[job.job_id] = tuple(g for g in job.ending if g in self.free)[: shares[job.job_id]]
            if (shares[job.job_id] - len(pinned[job.job_id])) % job.unit:
                keep = len(pinned[job.job_id]) // job.unit * job.unit
                pinned[job.job_id] = pinned[job.job_id][:keep]
        reserved = {g for gpus in pinned.values() for g in gpus}
        failed: set[JobId] = set()
        for job in jobs:
            rest = shares[job.job_id] - len(pinned[job.job_id])
            beside = (*job.held, *self.got.get(job.job_id, ()), *pinned[job.job_id])
            found = pick(self.supply, self.free - reserved, job, rest, beside) if rest else ()
            if found is None:
                failed.add(job.job_id)
                reserved -= set(pinned[job.job_id])
                continue
            self._give(job.job_id, (*pinned[job.job_id], *found))
        return failed

    def _give(self, job_id: JobId, gpus: Iterable[GpuId]) -> None:
        gpus = tuple(sorted(gpus))
        self.free -= set(gpus)
        self.got[job_id] = tuple(sorted((*self.got.get(job_id, ()), *gpus)))
        self.given[job_id] = tuple(sorted((*self.given.get(job_id, ()), *gpus)))


def pick(supply: Supply, free: set[GpuId], job: MarketJob, count: int, beside: tuple[GpuId, ...]) -> tuple[GpuId, ...] | None:
    """`count` free GPUs for a job, in whole units on each machine, as close together and to `beside` as can be.

    One machine if any has them all (the fullest that does), else within a rack, else anywhere; None where units do not fit.
    """
    places = supply.topology.places
    holes: dict[NodeName, list[GpuId]] = {}
    for name, offered in supply.by_machine.items():
        there = [g for g in offered if g in free]
        size = min(len(there), supply.room_on(job.job_id, name)) // job.unit * job.unit
        if size:
            holes[name] = there[:size]
    near_machines = {places[g].machine for g in beside}
    near_racks = {places[g].rack for g in beside}
    rack_of = {name: places[gpus[0]].rack for name, gpus in holes.items()}
    rack_size: dict[str, int] = {}
    for name, gpus in holes.items():
        rack_size[rack_of[name]] = rack_size.get(rack_of[name], 0) + len(gpus)

    def rank(name: NodeName) -> tuple[bool, bool, bool, bool, int, int, NodeName]:
        """Machines in the order of taking from them: near first, then one that suffices, else the largest."""
        size, rack = len(holes[name]), rack_of[name]
        suffices = size >= count
        return (
            name not in near_machines,
            rack not in near_racks,
            not suffices,
            rack_size[rack] < count,
            size if suffices else -size,
            rack_size[rack],
            name,
        )

    taken: list[GpuId] = []
    racks_begun: set[str] = set()
    while len(taken) < count and holes:
        # Once begun in a rack, go on in it.
        name = min(holes, key=lambda n: (rack_of[n] not in racks_begun if racks_begun else False, *rank(n)))
        taken += holes.pop(name)[: count - len(taken)]
        racks_begun.add(rack_of[name])
    return tuple(taken) if len(taken) == count else None
