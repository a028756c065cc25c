"""The flow solver against a plain twin."""

from random import Random

import numpy as np
import pytest

from tests.support.naive_flow import cheapest_flow
from themis_arbiter.core.kernels import flowing
from themis_arbiter.core.policies.flow import FlowNetwork


@pytest.mark.parametrize("seed", range(150))
def test_the_flow_is_the_largest_and_the_cheapest(seed: int) -> None:
    chance = Random(seed)
    nodes = chance.randint(2, 9)
    arcs = [
        (tail, head, chance.randint(0, 6), chance.choice([0, 0, 1, 2, 5, 9]))
        for _ in range(chance.randint(1, 24))
        for tail, head in [(chance.randrange(nodes), chance.randrange(nodes))]
        if tail != head
    ]
    network = FlowNetwork(nodes)
    numbers = [network.add(*arc) for arc in arcs]
    total = network.solve(0, nodes - 1)
    cost = sum(arc[3] * network.flows[number] for arc, number in zip(arcs, numbers, strict=True))
    assert (total, cost) == cheapest_flow(nodes, arcs, 0, nodes - 1)
    for node in range(1, nodes - 1):
        entering = sum(network.flows[k] for arc, k in zip(arcs, numbers, strict=True) if arc[1] == node)
        leaving = sum(network.flows[k] for arc, k in zip(arcs, numbers, strict=True) if arc[0] == node)
        assert entering == leaving


def test_machine_code_and_python_find_the_same_flow_by_the_same_work() -> None:
    chance = Random(1)
    for jobs in (3, 40, 200):
        arcs = [(2, 1, jobs // 2, 0)]
        for node in range(3, 3 + jobs):
            arcs += [(node, 1, 4, 1_000 + chance.randint(0, 90)), (node, 2, 6, chance.choice([0, 5])), (0, node, 6, 0)]
        network, flat = FlowNetwork(3 + jobs), np.array(arcs, dtype=np.int64).ravel()
        for arc in arcs:
            network.add(*arc)
        flows = np.zeros(len(arcs), dtype=np.int64)
        assert flowing.cheapest_flow(flat, flows, 3 + jobs, 0, 1, 0, 10**6) == (network.solve(0, 1), network.work)
        assert flows.tolist() == network.flows


def test_when_the_work_runs_out_the_flow_is_the_cheapest_of_its_size() -> None:
    network = FlowNetwork(4)
    cheap, dear = network.add(0, 1, 3, 1), network.add(0, 2, 3, 7)
    network.add(1, 3, 3, 0)
    network.add(2, 3, 3, 0)
    assert network.solve(0, 3, work_max=1) == 3
    assert (network.flows[cheap], network.flows[dear]) == (3, 0)
    assert network.solve(0, 3) == 3
    assert network.flows[dear] == 3
