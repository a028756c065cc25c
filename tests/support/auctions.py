"""Small random auctions, from a seed or from hypothesis: both roll the same dice."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from hypothesis import strategies as st

from themis_arbiter.core.auction.bid import Bid, Part, Row, Supply
from themis_arbiter.core.topology import Machine, Topology
from themis_arbiter.core.types import GpuId, JobId, Locality, NodeName

Roll = Callable[[int, int], int]  # a whole number from .. to, both included


@dataclass(frozen=True)
class Auction:
    """What partial_allocation takes."""

    bids: tuple[Bid, ...]
    supply: Supply
    gangs: dict[JobId, int]


@dataclass(frozen=True)
class JobDraft:
    """A job before its app bids for it."""

    job_id: JobId
    gang: int
    unit: int
    keep: tuple[GpuId, ...]
    anchor: tuple[GpuId, ...]


def seeded_auction(seed: int, gpus_max: int = 12, apps_max: int = 5, rows_max: int = 8) -> Auction:
    """The random auction of that seed."""
    return make_auction(Random(seed).randint, gpus_max, apps_max, rows_max)


@st.composite
def small_auctions(
    draw: Callable[[st.SearchStrategy[Any]], Any], gpus_max: int = 9, apps_max: int = 5, rows_max: int = 6
) -> Auction:
    """Auctions that shrink towards one app, one machine and rolls of the lowest number."""

    def roll(low: int, high: int) -> int:
        return int(draw(st.integers(low, high)))

    return make_auction(roll, gpus_max, apps_max, rows_max)


def make_auction(roll: Roll, gpus_max: int, apps_max: int, rows_max: int) -> Auction:
    """Machines of 1 to 4 GPUs on two racks, jobs that hold some of them inside or outside the offer, and bids."""
    topology = _topology(roll, gpus_max)
    pool = list(topology.places)
    lost = {pool.pop(roll(0, len(pool) - 1)) for _ in range(roll(0, 2)) if len(pool) > 1}  # leased to nobody here
    bids: list[Bid] = []
    gangs: dict[JobId, int] = {}
    offered = set(pool)
    jobs_of: list[list[JobDraft]] = []
    for a in range(roll(1, apps_max)):
        jobs = [_job(roll, f"app{a}/job{j}", pool) for j in range(roll(1, 3))]
        gangs.update({job.job_id: job.gang for job in jobs})
        offered -= {gpu for job in jobs for gpu in job.anchor}
        jobs_of.append(jobs)
    for a, jobs in enumerate(jobs_of):
        rows = [Row(parts=(), rho=float(roll(5, 16)))]
        for _ in range(roll(0, 2 * rows_max) // 2 or rows_max):
            parts = _parts(roll, jobs, sorted(lost))
            if parts:
                rows.append(Row(parts=parts, rho=roll(1, 40) / 4))
        bids.append(Bid(app_id=f"app{a}", rows=tuple(rows)))
    room: dict[JobId, dict[NodeName, int]] = {}
    for jobs in jobs_of:
        for job in jobs:
            if roll(0, 3) == 3:
                room[job.job_id] = {m.name: roll(0, m.gpus) for m in topology.machines if roll(0, 2)}
    return Auction(tuple(bids), Supply(topology, tuple(sorted(offered)), room), gangs)


def _topology(roll: Roll, gpus_max: int) -> Topology:
    machines: list[Machine] = []
    left = gpus_max
    for k in range(roll(1, 6)):
        size = min(left, (4, 2, 1, 4)[roll(0, 3)])
        left -= size
        if size:
            slot = 2 if size == 4 and roll(0, 1) else 0
            machines.append(Machine(name=f"m{k}", rack=f"r{roll(0, 1)}", gpus=size, gpus_per_slot=slot))
    return Topology(tuple(machines))


def _job(roll: Roll, job_id: JobId, pool: list[GpuId]) -> JobDraft:
    gang = (1, 1, 2, 2, 3, 4)[roll(0, 5)]
    unit = 2 if gang % 2 == 0 and roll(0, 2) == 2 else 1
    held: list[GpuId] = []
    if roll(0, 2) == 2 and len(pool) > gang:
        first = roll(0, len(pool) - gang)
        held = [pool.pop(first) for _ in range(gang)]
    is_anchored = bool(held) and roll(0, 2) == 2
    return JobDraft(job_id, gang, unit, () if is_anchored else tuple(sorted(held)), tuple(sorted(held)) if is_anchored else ())


def _parts(roll: Roll, jobs: list[JobDraft], lost: list[GpuId]) -> tuple[Part, ...]:
    parts: list[Part] = []
    for job in jobs:
        if roll(0, 2) == 2:
            continue
        keep = job.keep if roll(0, 1) else ()
        if lost and roll(0, 19) == 19:
            keep = (lost[0],)  # a lease that the arbiter has taken off the table since
        base = 0 if keep or job.anchor else job.gang
        more = -(-base // job.unit) * job.unit + job.unit * roll(0, 2)
        count = len(keep) + more + len(job.anchor)
        likely = Locality.MACHINE if count <= 4 else Locality.RACK  # a tighter level than this is rarely met
        level = Locality(roll(1, 4)) if roll(0, 3) == 3 else Locality(roll(int(likely), 4))
        if len(keep) + more:
            parts.append(
                Part(
                    job_id=job.job_id,
                    keep=keep,
                    more=more,
                    unit=job.unit,
                    level=level,
                    anchor=job.anchor,
                )
            )
    return tuple(parts)
