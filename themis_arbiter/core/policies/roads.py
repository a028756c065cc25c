"""Quincy's network: which ways lead to GPUs, and what each costs.

From the source an arc brings each job its demand, and two arcs to the sink are for what waits of it. Others lead to machines
where it runs, to their racks and to the cluster's node; from there to racks, from racks to machines, from machines to the sink.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from themis_arbiter.core.policies.base import Market, MarketJob
from themis_arbiter.core.policies.flow import FlowNetwork
from themis_arbiter.core.types import JobId, Locality, NodeName

SPREAD_COST: Final = 10  # of a slowdown by 1 on the way to a place
RESTART_COST: Final = 5  # of a change of GPUs, for a job that has run
GROWTH_COST: Final = 200  # of not growing: above that of any place
GANG_COST: Final = 1_000  # of a gang's waiting, to begin with

Priced: TypeAlias = tuple[MarketJob, int]  # a job with what a GPU of its gang costs while it waits


class Tolls:
    """What ways to places cost in one cluster; of jobs that are alike it is worked out once."""

    def __init__(self, market: Market) -> None:
        self.topology = market.supply.topology
        self._settings = market.settings
        self._apart: dict[tuple[str, int, Locality], int] = {}

    def are_of(self, market: Market) -> bool:
        """Whether that market has the cluster and the settings that these are of."""
        return market.supply.topology is self.topology and market.settings is self._settings

    def toll(self, job: MarketJob, level: Locality) -> int:
        """Of a way to places that far apart: a restart, and what they cost as far as the job's gang could lie closer."""
        alike = (job.model, job.gang, level)
        apart = self._apart.get(alike)
        if apart is None:
            slowdown, best = self._settings.slowdowns.slowdown, self.topology.best_locality(job.gang)
            apart = round(SPREAD_COST * (slowdown(job.model, max(best, level)) / slowdown(job.model, best) - 1))
            apart = self._apart[alike] = min(GROWTH_COST - RESTART_COST - 1, apart)
        return apart + RESTART_COST if job.has_run else apart


def solve_flow(market: Market, tolls: Tolls, jobs: Sequence[Priced]) -> tuple[dict[JobId, int], int]:
    """GPUs of the supply that the cheapest flow gives jobs, none left out, and the work that it took to find it.

    `jobs`: those that have use for any; of ways that cost the same they get the first.
    """
    index, network = _floor_network(market, len(jobs))
    ways = [
        (job.job_id, *_add(network, index, tolls, node, (job, cost))) for node, (job, cost) in enumerate(jobs, index.first_job)
    ]
    network.solve(0, 1)
    flows = network.flows
    got = {job_id: n for job_id, demand, waits in ways if (n := flows[demand] - flows[waits] - flows[waits + 1])}
    return got, network.work


@dataclass(frozen=True, slots=True)
class _Index:
    """Numbers of the network's nodes: 0 the source, 1 the sink, 2 the cluster, then racks, machines, jobs."""

    racks: dict[str, int]
    machines: dict[NodeName, int]

    @property
    def first_job(self) -> int:
        """The first job's number."""
        return 3 + len(self.racks) + len(self.machines)


def _floor_network(market: Market, jobs: int) -> tuple[_Index, FlowNetwork]:
    """The network without jobs, with room for so many."""
    places = market.supply.topology.places
    by_machine = market.supply.by_machine
    rack_of = {name: places[gpus[0]].rack for name, gpus in by_machine.items()}
    racks = {rack: 3 + k for k, rack in enumerate(sorted(set(rack_of.values())))}
    machines = {name: 3 + len(racks) + k for k, name in enumerate(by_machine)}
    index = _Index(racks, machines)
    network = FlowNetwork(index.first_job + jobs)
    for rack in racks.values():
        network.add(2, rack, len(market.supply.gpus), 0)
    for name, gpus in by_machine.items():
        network.add(racks[rack_of[name]], machines[name], len(gpus), 0)
        network.add(machines[name], 1, len(gpus), 0)
    return index, network


def _add(network: FlowNetwork, index: _Index, tolls: Tolls, node: int, priced: Priced) -> tuple[int, int]:
    """The job's arcs: the number of the one that brings its demand, and of the first of two on which it waits."""
    job, cost = priced
    held = len(job.held)
    demand, gang = job.wanted - held, max(0, job.gang - held)
    # Arcs are tried in the order in which they are added: of two ways that cost the same, waiting comes before displacing
    # somebody, who was served before it because he has waited longer or came earlier.
    first = network.add_all((node, 1, gang, cost, node, 1, demand - gang, GROWTH_COST))
    if held or job.ending:
        _add_near(network, index, tolls, node, job)
    return network.add_all((node, 2, demand, tolls.toll(job, Locality.CLUSTER), 0, node, demand, 0)) + 1, first


def _add_near(network: FlowNetwork, index: _Index, tolls: Tolls, node: int, job: MarketJob) -> None:
    """The arcs to its own machines and racks."""
    places, demand = tolls.topology.places, job.wanted - len(job.held)
    own: dict[NodeName, int] = {}
    for gpu in job.ending:
        own[places[gpu].machine] = own.get(places[gpu].machine, 0) + 1
    for name, count in sorted(own.items()):
        network.add(node, index.machines[name], count, 0)
    for rack in sorted({places[g].rack for g in (*job.held, *job.ending)}):
        if rack in index.racks:
            network.add(node, index.racks[rack], demand, tolls.toll(job, Locality.RACK))
