"""The flow solver against a plain twin, and Quincy's network by hand."""

from random import Random

import numpy as np
import pytest

from tests.support.markets import HOUR, NOW_MS, app, cluster, got, job, market
from tests.support.naive_flow import cheapest_flow
from themis_arbiter.core.kernels import flowing
from themis_arbiter.core.policies import make_policy
from themis_arbiter.core.policies.flow import FlowNetwork
from themis_arbiter.core.policies.quincy import GANG_COST, GROWTH_COST, solve_flow, waiting_costs

FOUR = cluster(("m0", "r0", 2), ("m1", "r0", 2))


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


def test_waiting_costs_more_with_every_lease_that_a_job_did_not_run() -> None:
    arena = market(FOUR)
    hour = 12  # leases
    assert waiting_costs(arena, [job("a/1", arrival_ms=NOW_MS - HOUR)]) == [GANG_COST + hour]
    assert waiting_costs(arena, [job("a/1", arrival_ms=NOW_MS - HOUR, attained=0.5 * HOUR)]) == [GANG_COST + hour // 2]
    assert waiting_costs(arena, [job("a/1", arrival_ms=NOW_MS - HOUR, gang=2, attained=2.0 * HOUR)]) == [GANG_COST]


def test_quincy_serves_who_has_waited_longest() -> None:
    long = app(job("a/1", 9, gang=3, arrival_ms=NOW_MS - 5 * HOUR))
    short = app(job("b/1", 1, gang=3, arrival_ms=NOW_MS - 1 * HOUR))
    decision = make_policy("quincy").decide(market(FOUR, long, short))
    assert got(decision) == {"a/1": 3}
    assert [e["value"] for e in decision.record["order"]] == [-1060.0, -1012.0]
    assert decision.record["work"] > 0


def test_quincy_displaces_a_job_only_for_one_that_has_waited_a_restart_longer() -> None:
    on = ("m0:0", "m0:1", "m1:0", "m1:1")
    holder = app(job("a/1", 9, gang=4, ending=on, arrival_ms=NOW_MS - 2 * HOUR))  # waits at 1024, stays at 0
    for minutes, winner in ((120, "a/1"), (140, "a/1"), (160, "b/1")):  # 1024, 1028, 1032: a new place costs nothing yet
        waiter = app(job("b/1", 9, gang=4, arrival_ms=NOW_MS - minutes * 60_000, has_run=True))  # a restart costs 5
        assert got(make_policy("quincy").decide(market(FOUR, holder, waiter))) == {winner: 4}, minutes


def test_growth_yields_to_a_gang_and_takes_what_nobody_else_wants() -> None:
    wide = job("a/1", 9, gang=1, wanted=9, arrival_ms=NOW_MS - 9 * HOUR)
    small = job("b/1", 9, gang=2, arrival_ms=NOW_MS)
    arena = market(FOUR, app(wide), app(small))
    flows, _ = solve_flow(arena, list(zip([wide, small], waiting_costs(arena, [wide, small]), strict=True)))
    assert flows == {"a/1": 2, "b/1": 2}
    assert got(make_policy("quincy").decide(arena)) == {"a/1": 2, "b/1": 2}
    assert GROWTH_COST < GANG_COST


def test_a_gang_that_the_flow_would_split_gets_nothing() -> None:
    first = app(job("a/1", 9, gang=3, arrival_ms=NOW_MS - 9 * HOUR))
    second = app(job("b/1", 9, gang=2, arrival_ms=NOW_MS - 5 * HOUR))
    third = app(job("c/1", 9, gang=1, arrival_ms=NOW_MS))
    # Of four GPUs the flow gives 3 to a and one to b; b's gang is two, so that one goes on to c.
    assert got(make_policy("quincy").decide(market(FOUR, first, second, third))) == {"a/1": 3, "c/1": 1}
