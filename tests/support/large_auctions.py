"""Random auctions of the sizes that solvers are measured on, from a seed.

A: 64 GPUs on 20 machines (the paper's testbed); B: 256 GPUs in 8 racks of machines of 4, 2 and 1 (its simulated cluster); C and
D: 2,048 and 16,384 GPUs on machines of 8. Apps have one job of a gang of 1, 2, 4 or 8; rho is (elapsed + restart + work * S /
k) over T_id. Most hold GPUs, placed by best fit in random order. With a share of 1 every lease ends and all GPUs are on offer;
with less, leases of apps drawn at random end until so much is on offer, and those bid who hold nothing or whose lease ends.
"""

from dataclasses import dataclass
from random import Random
from typing import Final

from tests.support.auctions import Auction
from themis_arbiter.core.auction.bid import Bid, Part, Row, Supply
from themis_arbiter.core.topology import Machine, Topology
from themis_arbiter.core.types import GpuId, Locality

RESTART_MS: Final = 45_000
LEASE_MS: Final = 600_000
HOLDERS: Final = 0.75  # share of apps that try to hold something
SIZES: Final = {"A": 64, "B": 256, "C": 2_048, "D": 16_384}


@dataclass
class Draft:
    """An app before it bids."""

    name: str
    gang: int
    wanted: int
    work_ms: float  # serial
    elapsed_ms: float
    t_independent_ms: float
    slowdowns: dict[Locality, float]
    held: tuple[GpuId, ...] = ()

    def rho(self, gpus: int, level: Locality, *, is_new: bool) -> float:
        """What it would end with."""
        time = self.work_ms * self.slowdowns[level] / min(gpus, self.wanted)
        return (self.elapsed_ms + (RESTART_MS if is_new else 0) + time) / self.t_independent_ms

    @property
    def rho_of_nothing(self) -> float:
        """One lease later on one gang."""
        return (self.elapsed_ms + LEASE_MS + RESTART_MS + self.work_ms / self.gang) / self.t_independent_ms


def cluster_of(size: str) -> Topology:
    """The machines of a size."""
    if size == "A":
        sizes = [[4] * 3 + [2] * 2 for _ in range(4)]
    elif size == "B":
        sizes = [[4] * 6 + [2] * 3 + [1] * 2 for _ in range(8)]
    else:
        sizes = [[8] * 16 for _ in range(SIZES[size] // 128)]
    machines = [
        Machine(name=f"r{r:03}m{k:02}", rack=f"r{r:03}", gpus=gpus)
        for r, rack in enumerate(sizes)
        for k, gpus in enumerate(rack)
    ]
    return Topology(tuple(machines))


def large_auction(size: str, apps: int, share: float, seed: int) -> Auction:
    """The auction of that seed."""
    chance = Random(f"{seed}/{size}/{apps}/{share}")
    topology = cluster_of(size)
    drafts = [_draft(chance, f"app{k:04}", apps, topology.gpu_count) for k in range(apps)]
    free = {m.name: list(m.gpu_ids()) for m in topology.machines}
    for draft in chance.sample(drafts, round(HOLDERS * apps)):
        draft.held = _hold(chance, draft, free, topology)
    if share >= 1.0:
        offered, bidders = set(topology.places), drafts
    else:
        offered, bidders = set[GpuId](), [d for d in drafts if not d.held]
        for draft in chance.sample([d for d in drafts if d.held], sum(1 for d in drafts if d.held)):
            if len(offered) + len(draft.held) <= share * topology.gpu_count:
                offered |= set(draft.held)
                bidders.append(draft)
    bids = tuple(_bid(draft, len(offered)) for draft in sorted(bidders, key=lambda d: d.name))
    gangs = {f"{draft.name}/j": draft.gang for draft in bidders}
    return Auction(bids, Supply(topology, tuple(sorted(offered))), gangs)


def _draft(chance: Random, name: str, apps: int, gpus: int) -> Draft:
    gang = chance.choice([1, 1, 1, 2, 2, 4, 4, 8])
    wanted = gang * chance.choice([1, 2, 4, 8, 16])
    work_ms = chance.lognormvariate(2.0, 1.2) * 3_600_000 * gang
    rack = 1.0 + chance.uniform(0.02, 0.4)
    t_alone = work_ms / min(wanted, max(gang, gpus // apps))
    return Draft(
        name,
        gang,
        wanted,
        work_ms,
        chance.expovariate(1.0) * t_alone,
        max(600_000.0, t_alone),
        {Locality.MACHINE: 1.0, Locality.RACK: rack, Locality.CLUSTER: rack * (1.0 + chance.uniform(0.02, 0.36))},
    )


def _hold(chance: Random, draft: Draft, free: dict[str, list[GpuId]], topology: Topology) -> tuple[GpuId, ...]:
    """GPUs for some gangs of the app, on the fullest machines that hold a gang, else spread; none where too few are left."""
    count = draft.gang * chance.choice([1, 1, 2])
    held: list[GpuId] = []
    while len(held) < min(count, draft.wanted):
        able = [m for m in free if len(free[m]) >= draft.gang]
        if able:
            machine = min(able, key=lambda m: (len(free[m]), m))
            held += [free[machine].pop(0) for _ in range(draft.gang)]
            continue
        if held or sum(map(len, free.values())) < draft.gang:
            break
        for machine in sorted(free):
            while free[machine] and len(held) < draft.gang:
                held.append(free[machine].pop(0))
    return tuple(sorted(held)) if len(held) >= draft.gang else ()


def _bid(draft: Draft, offered: int) -> Bid:
    """Doubling numbers of gangs and those between, at each level, what is held kept or not."""
    rows = [Row(parts=(), rho=draft.rho_of_nothing)]
    counts = sorted({draft.gang * k for k in (1, 2, 3, 4, 6, 8, 12, 16)} | ({len(draft.held)} if draft.held else set()))
    for count in counts:
        if count > min(draft.wanted, offered):
            break
        for level in (Locality.MACHINE, Locality.RACK, Locality.CLUSTER):
            if level == Locality.MACHINE and count > 8:
                continue
            for keep in dict.fromkeys((draft.held[:count], ())):
                rows += _row(draft, count, level, keep)
    better = [row for row in rows[1:] if row.rho < rows[0].rho]
    return Bid(app_id=draft.name, rows=(rows[0], *sorted(better, key=lambda r: (r.gpu_count, r.rho))[:63]))


def _row(draft: Draft, count: int, level: Locality, keep: tuple[GpuId, ...]) -> list[Row]:
    """The row, if what is kept lies as close as that."""
    machines = {gpu.split(":")[0] for gpu in keep}
    own = Locality.MACHINE if len(machines) <= 1 else Locality.RACK if len({m[:4] for m in machines}) == 1 else Locality.CLUSTER
    if own > level or (len(keep) == count and own != level):
        return []
    part = Part(job_id=f"{draft.name}/j", keep=keep, more=count - len(keep), level=level)
    return [Row(parts=(part,), rho=draft.rho(count, level, is_new=keep != draft.held or count != len(keep)))]
