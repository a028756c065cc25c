"""Quincy's line and network by hand, and the flow that needs no search against the one that is searched for."""

from dataclasses import replace

import pytest

from tests.support.markets import HOUR, NOW_MS, app, cluster, got, job, jobs_of, market, random_market
from themis_arbiter.core.policies import make_policy
from themis_arbiter.core.policies.base import Market, MarketJob
from themis_arbiter.core.policies.line import Crowd, Line, Waiting
from themis_arbiter.core.policies.quincy import QuincyPolicy
from themis_arbiter.core.policies.roads import GANG_COST, GROWTH_COST, Tolls, solve_flow
from themis_arbiter.core.types import JobId, Locality

FOUR = cluster(("m0", "r0", 2), ("m1", "r0", 2))
SEEDS = range(400)
EARLIER_MS = 5 * 300_000  # a few leases


def line_of(arena: Market) -> Line:
    jobs = [j for a in arena.apps for j in a.in_order]
    waiting = Waiting([j for j in jobs if not j.has_gpus], Tolls(arena))
    return Line(arena, waiting, Crowd([j for j in jobs if j.has_gpus]))


def searched(line: Line) -> dict[JobId, int]:
    """What the flow over everybody gives."""
    return solve_flow(line.market, line.waiting.tolls, [one for one in line.ranked if one[0].can_gain])[0]


def saved(line: Line, flow: dict[JobId, int]) -> int:
    """What a flow saves of the cost of waiting, ways deducted, where holders get no more than what they hold."""
    total = 0
    for one, cost in line.ranked:
        count, gang = flow.get(one.job_id, 0), max(0, one.gang - len(one.held))
        total += cost * min(count, gang) + GROWTH_COST * max(0, count - gang)
        total -= 0 if one.has_gpus else count * line.waiting.tolls.toll(one, Locality.CLUSTER)
    return total


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_known_without_a_search_is_a_cheapest_flow(seed: int) -> None:
    line = line_of(random_market(seed))
    flow, work = line.flow
    found, theirs = {j.job_id: count for j, count in flow}, searched(line)
    assert sum(found.values()) == sum(theirs.values())
    if work == 0:
        assert all(found.get(j.job_id, 0) <= len(j.ending) for j in line.holders.jobs)
        assert saved(line, found) >= saved(line, theirs)
    else:
        assert found == theirs  # nobody who counts was left out


def test_both_ways_to_a_flow_are_taken() -> None:
    works = [line_of(random_market(seed)).flow[1] for seed in SEEDS]
    assert 40 < sum(work == 0 for work in works) < len(works) - 40


@pytest.mark.parametrize("seed", range(60))
def test_a_round_after_one_in_which_nothing_happened_is_decided_as_any(seed: int) -> None:
    before = random_market(seed)
    policy = QuincyPolicy()
    first = policy.decide(before)
    now = replace(before, now_ms=before.now_ms + EARLIER_MS, round_no=seed + 1)
    after, anew = policy.decide_after(now, first), QuincyPolicy().decide(now)
    assert after.leftovers == anew.leftovers
    assert dict(after.record) == dict(anew.record)


def test_waiting_costs_more_with_every_lease_that_a_job_did_not_run() -> None:
    def cost(one: MarketJob) -> int:
        return int(Crowd([one]).costs(market(FOUR))[0])

    hour = 12  # leases
    assert cost(job("a/1", arrival_ms=NOW_MS - HOUR)) == GANG_COST + hour
    assert cost(job("a/1", arrival_ms=NOW_MS - HOUR, attained=0.5 * HOUR)) == GANG_COST + hour // 2
    assert cost(job("a/1", arrival_ms=NOW_MS - HOUR, gang=2, attained=2.0 * HOUR)) == GANG_COST


def test_the_dearest_come_first_then_who_came_first_and_of_an_app_who_runs() -> None:
    old, early, late = (job(name, arrival_ms=NOW_MS - t * HOUR) for name, t in (("a/1", 3), ("c/1", 2), ("b/1", 1)))
    waits, runs = (job(f"d/{k}", arrival_ms=NOW_MS - HOUR, ending=on) for k, on in ((1, ()), (2, ("m0:0",))))
    line = line_of(market(FOUR, app(old), app(late), app(early), app(waits, runs)))
    assert [j.job_id for j, _ in line.ranked] == ["a/1", "c/1", "b/1", "d/2", "d/1"]


def test_quincy_serves_who_has_waited_longest() -> None:
    long = app(job("a/1", 9, gang=3, arrival_ms=NOW_MS - 5 * HOUR))
    short = app(job("b/1", 1, gang=3, arrival_ms=NOW_MS - 1 * HOUR))
    decision = make_policy("quincy").decide(market(FOUR, long, short))
    assert got(decision) == {"a/1": 3}
    assert [e["value"] for e in decision.record["order"]] == [-1060.0, -1012.0]
    assert [e["flow"] for e in decision.record["order"]] == [3, 1]
    assert decision.record["work"] == 0


def test_quincy_displaces_a_job_only_for_one_that_has_waited_a_restart_longer() -> None:
    on = ("m0:0", "m0:1", "m1:0", "m1:1")
    holder = app(job("a/1", 9, gang=4, ending=on, arrival_ms=NOW_MS - 2 * HOUR))  # waits at 1024, stays at 0
    for minutes, winner in ((120, "a/1"), (140, "a/1"), (160, "b/1")):  # 1024, 1028, 1032: a new place costs nothing yet
        waiter = app(job("b/1", 9, gang=4, arrival_ms=NOW_MS - minutes * 60_000, has_run=True))  # a restart costs 5
        assert got(make_policy("quincy").decide(market(FOUR, holder, waiter))) == {winner: 4}, minutes


def test_of_equally_dear_ones_nobody_is_displaced_and_then_who_came_first_is_served() -> None:
    first, second, third = (job(f"{k}/1", 9, gang=2, arrival_ms=NOW_MS - 2 * HOUR) for k in "abc")
    assert got(make_policy("quincy").decide(market(FOUR, app(first), app(second), app(third)))) == {"a/1": 2, "b/1": 2}
    runs = replace(third, ending=("m0:0", "m0:1"))
    assert got(make_policy("quincy").decide(market(FOUR, app(first), app(second), app(runs)))) == {"a/1": 2, "c/1": 2}


def test_growth_yields_to_a_gang_and_takes_what_nobody_else_wants() -> None:
    wide = job("a/1", 9, gang=1, wanted=9, arrival_ms=NOW_MS - 9 * HOUR)
    small = job("b/1", 9, gang=2, arrival_ms=NOW_MS)
    arena = market(FOUR, app(wide), app(small))
    assert [(j.job_id, count) for j, count in line_of(arena).flow[0]] == [("a/1", 2), ("b/1", 2)]
    assert line_of(arena).flow[1] > 0
    assert got(make_policy("quincy").decide(arena)) == {"a/1": 2, "b/1": 2}
    assert GROWTH_COST < GANG_COST


def test_a_gang_that_the_flow_would_split_gets_nothing() -> None:
    first = app(job("a/1", 9, gang=3, arrival_ms=NOW_MS - 9 * HOUR))
    second = app(job("b/1", 9, gang=2, arrival_ms=NOW_MS - 5 * HOUR))
    third = app(job("c/1", 9, gang=1, arrival_ms=NOW_MS))
    # Of four GPUs the flow gives 3 to a and one to b; b's gang is two, so that one goes on to c.
    assert got(make_policy("quincy").decide(market(FOUR, first, second, third))) == {"a/1": 3, "c/1": 1}


def test_lines_are_made_anew_where_the_cluster_is_another() -> None:
    policy = QuincyPolicy()
    for topology in (FOUR, cluster(("m0", "r0", 2), ("m1", "r1", 2))):
        arena = market(topology, app(job("a/1", 9, gang=4, model="slow", arrival_ms=NOW_MS)))
        policy.decide(arena)
        assert policy._waiting is not None
        assert policy._waiting.ways.tolist() == [Tolls(arena).toll(jobs_of(arena)["a/1"], Locality.CLUSTER)]
