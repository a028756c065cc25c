"""Quincy (Isard et al., SOSP 2009): one cheapest flow over all jobs and machines decides who runs, who waits, who stays.

    source -> job -> machines where it runs | their racks -> machines | any rack | nowhere -> sink

Each unit of flow is a GPU. Going on on its own machine costs nothing, on another a restart and what lying further apart
costs, waiting costs more the longer the job has waited, and a gang's waiting more than growth's. So long waiters displace
others, and nobody is moved that could stay.

Differences: Quincy's tasks are single; a gang that the flow gives only a part of gets nothing, and its part goes to those who
wait at the highest cost. A flow through a rack does not hold a gang together, so it says how many, and on which of its own
machines a job stays; placing says where. Data locality is replaced by the job's own GPUs: there is no data on machines here.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from themis_arbiter.core.policies.base import Decision, Market, MarketJob
from themis_arbiter.core.policies.flow import FlowNetwork
from themis_arbiter.core.policies.handout import HandOut, in_order
from themis_arbiter.core.policies.record import order_record, plain_decision
from themis_arbiter.core.policies.sharing import Sharing
from themis_arbiter.core.types import JobId, Locality, NodeName

ORDER_BY = "minus what a GPU of its gang costs while it waits"
SPREAD_COST: Final = 10  # of a slowdown by 1 on the way to a place
RESTART_COST: Final = 5  # of a change of GPUs, for a job that has run
GROWTH_COST: Final = 200  # of not growing: above that of any place
GANG_COST: Final = 1_000  # of a gang's waiting, to begin with
WAITED_LEASES_MAX: Final = 2_000  # each lease that a job has waited adds 1; and bounds the number of different costs


class QuincyPolicy:
    """See the module's text."""

    def decide(self, market: Market) -> Decision:
        """One round."""
        jobs = [job for app in market.apps for job in app.in_order]
        costs = waiting_costs(market, jobs)
        keys = [(-cost, job.arrival_ms, job.app_id, k) for k, (cost, job) in enumerate(zip(costs, jobs, strict=True))]
        keys.sort()
        ranked = [(jobs[k], -minus) for minus, _, _, k in keys]
        jobs = [job for job, _ in ranked]
        flows, work = solve_flow(market, [r for r in ranked if r[0].can_gain])

        def plan(sharing: Sharing) -> None:
            served = [(job, len(job.held) + flows[job.job_id]) for job in jobs if job.job_id in flows]
            for job, share in served:
                sharing.up_to(job, min(job.gang, share))
            for job in jobs:  # parts of gangs go to whole ones before anybody grows
                if sharing.room == 0:
                    return
                sharing.up_to(job, job.gang)
            for job, share in served:
                sharing.up_to(job, share)
            in_order(jobs)(sharing)

        hand_out = HandOut(market, market.supply.gpus)
        hand_out.run(plan)

        def whys() -> Iterator[tuple[MarketJob, dict[str, float]]]:
            for job, cost in ranked:
                yield job, {"value": -float(cost), "flow": flows.get(job.job_id, 0)}

        return plain_decision(market, hand_out, order_record(ORDER_BY, len(jobs), whys), work)


def waiting_costs(market: Market, jobs: Sequence[MarketJob]) -> list[int]:
    """What a GPU of each job's gang costs while it waits: more with each lease that the job has not run since it came."""
    now_ms, lease_ms = market.now_ms, market.settings.lease_ms
    waited = [max(0.0, now_ms - job.arrival_ms - job.attained / job.gang) / lease_ms for job in jobs]
    return [GANG_COST + min(WAITED_LEASES_MAX, int(leases)) for leases in waited]


@dataclass(frozen=True, slots=True)
class _Index:
    """Numbers of the network's nodes: 0 the source, 1 the sink, 2 the cluster, then racks, machines, jobs."""

    racks: dict[str, int]
    machines: dict[NodeName, int]

    @property
    def first_job(self) -> int:
        """The first job's number."""
        return 3 + len(self.racks) + len(self.machines)


def solve_flow(market: Market, jobs: Sequence[tuple[MarketJob, int]]) -> tuple[dict[JobId, int], int]:
    """GPUs of the supply that the cheapest flow gives jobs, none left out, and the work that it took to find it.

    `jobs`: each with what a GPU of its gang costs while it waits.
    """
    index, network = _floor_network(market, len(jobs))
    roads = _Roads(market, network, index)
    ways = [(job.job_id, *roads.add(node, job, cost)) for node, (job, cost) in enumerate(jobs, index.first_job)]
    network.solve(0, 1)
    flows = network.flows
    got = {job_id: n for job_id, demand, waits in ways if (n := flows[demand] - flows[waits] - flows[waits + 1])}
    return got, network.work


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


class _Roads:
    """Adds the arcs of jobs; of jobs that run on nothing, which are most, what is alike is worked out once."""

    def __init__(self, market: Market, network: FlowNetwork, index: _Index) -> None:
        self._market = market
        self._network = network
        self._index = index
        self._apart: dict[tuple[str, int, Locality], int] = {}

    def add(self, node: int, job: MarketJob, cost: int) -> tuple[int, int]:
        """The job's arcs: the number of the one that brings its demand, and of the first of two on which it waits."""
        held = len(job.held)
        demand, gang = job.wanted - held, max(0, job.gang - held)
        restart = RESTART_COST if job.has_run else 0
        # Arcs are tried in the order in which they are added: of two ways that cost the same, waiting comes before displacing
        # somebody, who was served before it because he has waited longer or came earlier.
        waits = (node, 1, gang, cost, node, 1, demand - gang, GROWTH_COST)
        anywhere = (node, 2, demand, restart + self._spread(job, Locality.CLUSTER), 0, node, demand, 0)
        if not (held or job.ending):
            first = self._network.add_all(waits + anywhere)
            return first + 3, first
        first = self._network.add_all(waits)
        self._add_near(node, job, demand, restart)
        return self._network.add_all(anywhere) + 1, first

    def _add_near(self, node: int, job: MarketJob, demand: int, restart: int) -> None:
        """The arcs to its own machines and racks."""
        places, index = self._market.supply.topology.places, self._index
        own: dict[NodeName, int] = {}
        for gpu in job.ending:
            own[places[gpu].machine] = own.get(places[gpu].machine, 0) + 1
        for name, count in sorted(own.items()):
            self._network.add(node, index.machines[name], count, 0)
        apart = self._spread(job, Locality.RACK)
        for rack in sorted({places[g].rack for g in (*job.held, *job.ending)}):
            if rack in index.racks:
                self._network.add(node, index.racks[rack], demand, restart + apart)

    def _spread(self, job: MarketJob, level: Locality) -> int:
        """What lying that far apart costs the job, as far as its gang could lie closer."""
        alike = (job.model, job.gang, level)
        found = self._apart.get(alike)
        if found is None:
            slowdown = self._market.settings.slowdowns.slowdown
            best = self._market.supply.topology.best_locality(job.gang)
            apart = round(SPREAD_COST * (slowdown(job.model, max(best, level)) / slowdown(job.model, best) - 1))
            found = self._apart[alike] = min(GROWTH_COST - RESTART_COST - 1, apart)
        return found
