"""Quincy (Isard et al., SOSP 2009): one cheapest flow over all jobs and machines decides who runs, who waits, who stays.

    source -> job -> machines where it runs | their racks -> machines | any rack | nowhere -> sink

Each unit of flow is a GPU. Going on on its own machine costs nothing, on another a restart and what lying further apart
costs, waiting costs more the longer the job has waited, and a gang's waiting more than growth's. So long waiters displace
others, and nobody is moved that could stay.

Differences: Quincy's tasks are single; a gang that the flow gives only a part of gets nothing, and its part goes to those who
wait at the highest cost. A flow through a rack does not hold a gang together, so it says how many, and on which of its own
machines a job stays; placing says where. Data locality is replaced by the job's own GPUs: there is no data on machines here.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from themis_arbiter.core.policies.base import Decision, Market, MarketJob
from themis_arbiter.core.policies.flow import FlowNetwork
from themis_arbiter.core.policies.handout import HandOut, in_order
from themis_arbiter.core.policies.order import arranged
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
        jobs = [job for _, job in arranged(market.apps)]
        jobs.sort(key=lambda j: (-waiting_cost(market, j), j.arrival_ms, j.app_id))
        flows, work = solve_flow(market, [j for j in jobs if j.can_gain])

        def plan(sharing: Sharing) -> None:
            shares = {j.job_id: len(j.held) + flows.get(j.job_id, 0) for j in jobs}
            for job in jobs:
                sharing.up_to(job, min(job.gang, shares[job.job_id]))
            for job in jobs:  # parts of gangs go to whole ones before anybody grows
                sharing.up_to(job, job.gang)
            for job in jobs:
                sharing.up_to(job, shares[job.job_id])
            in_order(jobs)(sharing)

        hand_out = HandOut(market, market.supply.gpus)
        hand_out.run(plan)

        def whys() -> Iterator[tuple[MarketJob, dict[str, float]]]:
            for j in jobs:
                yield j, {"value": -float(waiting_cost(market, j)), "flow": flows.get(j.job_id, 0)}

        return plain_decision(market, hand_out, order_record(ORDER_BY, len(jobs), whys), work)


def waiting_cost(market: Market, job: MarketJob) -> int:
    """What a GPU of the job's gang costs while it waits: more with each lease that the job has not run since it came."""
    ran_ms = job.attained / job.gang
    waited = max(0.0, market.now_ms - job.arrival_ms - ran_ms) / market.settings.lease_ms
    return GANG_COST + min(WAITED_LEASES_MAX, int(waited))


@dataclass(frozen=True, slots=True)
class _Index:
    """Numbers of the network's nodes: 0 the source, 1 the sink, then the cluster, racks, machines, jobs."""

    racks: dict[str, int]
    machines: dict[NodeName, int]
    jobs: dict[JobId, int]

    @property
    def count(self) -> int:
        """How many nodes there are."""
        return 3 + len(self.racks) + len(self.machines) + len(self.jobs)


def solve_flow(market: Market, jobs: list[MarketJob]) -> tuple[dict[JobId, int], int]:
    """GPUs of the supply that the cheapest flow gives each job, and the work that it took to find it."""
    places = market.supply.topology.places
    by_machine = market.supply.by_machine
    rack_of = {name: places[gpus[0]].rack for name, gpus in by_machine.items()}
    racks = {rack: 3 + k for k, rack in enumerate(sorted(set(rack_of.values())))}
    machines = {name: 3 + len(racks) + k for k, name in enumerate(by_machine)}
    index = _Index(racks, machines, {j.job_id: 3 + len(racks) + len(machines) + k for k, j in enumerate(jobs)})
    network = FlowNetwork(index.count)
    for rack in racks.values():
        network.add(2, rack, len(market.supply.gpus), 0)
    for name, gpus in by_machine.items():
        network.add(racks[rack_of[name]], machines[name], len(gpus), 0)
        network.add(machines[name], 1, len(gpus), 0)
    arcs = {job.job_id: _add_job(market, network, index, job) for job in jobs}
    network.solve(0, 1)
    got = {job_id: network.flow(demand) - sum(map(network.flow, waits)) for job_id, (demand, *waits) in arcs.items()}
    return got, network.work


def _add_job(market: Market, network: FlowNetwork, index: _Index, job: MarketJob) -> list[int]:
    """The job's arcs; returns the one that brings its demand and those on which it waits."""
    places = market.supply.topology.places
    node = index.jobs[job.job_id]
    demand = job.wanted - len(job.held)
    gang = max(0, job.gang - len(job.held))
    slowdown = market.settings.slowdowns.slowdown
    best = market.supply.topology.best_locality(job.gang)
    restart = RESTART_COST if job.has_run else 0
    own: dict[NodeName, int] = {}
    for gpu in job.ending:
        own[places[gpu].machine] = own.get(places[gpu].machine, 0) + 1
    near = {places[g].rack for g in (*job.held, *job.ending)}
    # Arcs are tried in the order in which they are added: of two ways that cost the same, waiting comes before displacing
    # somebody, who was served before it because he has waited longer or came earlier.
    waits = [
        network.add(node, 1, gang, waiting_cost(market, job)),
        network.add(node, 1, demand - gang, GROWTH_COST),
    ]
    for name, count in sorted(own.items()):
        network.add(node, index.machines[name], count, 0)
    for level, targets in (
        (max(best, Locality.RACK), [index.racks[r] for r in sorted(near) if r in index.racks]),
        (Locality.CLUSTER, [2]),
    ):
        apart = round(SPREAD_COST * (slowdown(job.model, level) / slowdown(job.model, best) - 1))
        for target in targets:
            network.add(node, target, demand, restart + min(GROWTH_COST - RESTART_COST - 1, apart))
    return [network.add(0, node, demand, 0), *waits]
