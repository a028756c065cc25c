"""Policies that are an order: small markets worked out by hand, one for each rule."""

from dataclasses import replace

import pytest

from tests.support.markets import HOUR, NOW_MS, app, cluster, got, job, market, ranks
from themis_arbiter.core.policies import POLICIES, make_policy
from themis_arbiter.core.settings import Settings
from themis_arbiter.core.types import CoreError

FOUR = cluster(("m0", "r0", 4))

NOBODY_LARGE = Settings(large_gang=2.0)  # so nobody is owed a first lease (test_owed.py)


def hours_ago(hours: float) -> int:
    return NOW_MS - round(hours * HOUR)


def test_fifo_serves_apps_by_arrival_whatever_they_need() -> None:
    old = app(job("z/1", 50, gang=2, arrival_ms=hours_ago(3)), job("z/2", 1, gang=2, arrival_ms=hours_ago(1)))
    new = app(job("a/1", 0.1, arrival_ms=hours_ago(2)))
    decision = make_policy("fifo").decide(market(FOUR, new, old))
    assert ranks(decision) == ["z/1", "z/2", "a/1"]
    assert got(decision) == {"z/1": 2, "z/2": 2}


def test_fifo_lets_a_small_gang_pass_a_large_one_that_finds_no_room() -> None:
    first = app(job("a/1", 5, gang=3, arrival_ms=hours_ago(3)))
    large = app(job("b/1", 5, gang=2, arrival_ms=hours_ago(2)))
    small = app(job("c/1", 5, gang=1, arrival_ms=hours_ago(1)))
    assert got(make_policy("fifo").decide(market(FOUR, first, large, small))) == {"a/1": 3, "c/1": 1}


def test_las_serves_who_has_had_least_for_its_weight() -> None:
    rich = app(job("a/1", 1, gang=3), attained=6.0 * HOUR)
    poor = app(job("b/1", 9, gang=3), attained=2.0 * HOUR)
    heavy = app(job("c/1", 9, gang=3), attained=6.0 * HOUR, weight=4.0)  # 1.5 GPU-hours for its weight
    decision = make_policy("las").decide(market(FOUR, rich, poor, heavy))
    assert ranks(decision) == ["c/1", "b/1", "a/1"]
    assert [e["value"] / HOUR for e in decision.record["order"]] == [1.5, 2.0, 6.0]
    assert got(decision) == {"c/1": 3}


def test_las_counts_the_app_not_the_job() -> None:
    wide = app(job("a/1", 1, gang=4), job("a/2", 1, gang=4), attained=3.0 * HOUR)
    narrow = app(job("b/1", 1, gang=4, attained=1.0 * HOUR))
    assert got(make_policy("las").decide(market(FOUR, wide, narrow))) == {"b/1": 4}


def test_tiresias_has_two_queues_and_arrival_inside_them() -> None:
    old = app(job("a/1", 1, attained=2.0 * HOUR, arrival_ms=hours_ago(9)))
    tried = app(job("b/1", 1, attained=0.9 * HOUR, arrival_ms=hours_ago(1)))
    fresh = app(job("c/1", 1, attained=0.0, arrival_ms=hours_ago(0.5)))
    older = app(job("d/1", 1, attained=1.0 * HOUR, arrival_ms=hours_ago(10)))
    arena = market(FOUR, old, tried, fresh, older)
    # Pure LAS would put the fresh job before the tried one; here both are in the first queue and arrival decides.
    assert ranks(make_policy("tiresias").decide(arena)) == ["b/1", "c/1", "d/1", "a/1"]
    arena = market(FOUR, old, tried, fresh, older, settings=Settings(first_queue_max=0.5 * HOUR))
    assert ranks(make_policy("tiresias").decide(arena)) == ["c/1", "d/1", "a/1", "b/1"]


def test_tiresias_serves_jobs_of_one_app_apart() -> None:
    mixed = app(job("a/1", 1, attained=5.0 * HOUR, gang=4), job("a/2", 1, attained=0.0, gang=2))
    other = app(job("b/1", 1, attained=0.5 * HOUR, gang=2))
    decision = make_policy("tiresias").decide(market(FOUR, mixed, other))
    assert ranks(decision) == ["a/2", "b/1", "a/1"]
    assert got(decision) == {"a/2": 2, "b/1": 2}


def test_srtf_asks_for_time_and_srsf_for_gpu_time() -> None:
    wide = app(job("a/1", 8, gang=4))  # 2 hours, 8 GPU-hours
    narrow = app(job("b/1", 3, gang=1))  # 3 hours, 3 GPU-hours
    arena = market(FOUR, wide, narrow)
    srtf, srsf = make_policy("srtf").decide(arena), make_policy("srsf").decide(arena)
    assert got(srtf) == {"a/1": 4}
    assert got(srsf) == {"b/1": 1}
    assert [e["value"] / HOUR for e in srtf.record["order"]] == [2.0, 3.0]
    assert [e["value"] / HOUR for e in srsf.record["order"]] == [3.0, 8.0]


def test_srtf_takes_an_apps_longest_job() -> None:
    long = app(job("a/1", 1), job("a/2", 7))
    short = app(job("b/1", 6), job("b/2", 6))
    assert ranks(make_policy("srtf").decide(market(FOUR, long, short)))[:2] == ["b/1", "b/2"]


def test_srsf_gives_an_app_its_whole_demand_gangs_before_growth() -> None:
    first = app(job("a/1", 2, gang=1, wanted=4), job("a/2", 1, gang=2))
    second = app(job("b/1", 9, gang=1))
    # a/1 wants all four, but a/2's gang comes before a/1's growth; nothing is left for b.
    assert got(make_policy("srsf").decide(market(FOUR, first, second))) == {"a/1": 2, "a/2": 2}


def test_strawman_serves_the_worst_rho_held_gpus_counted_in() -> None:
    # a: 4 h since arrival, 4 GPU-hours on the 1 GPU it keeps: rho (4 + 4) / 2 = 4. b: (1 + a lease + 2) / 2 = 1.54.
    late = app(job("a/1", 4, wanted=2, held=("m0:0",), arrival_ms=hours_ago(4)))
    fine = app(job("b/1", 2, gang=1, wanted=3))
    decision = make_policy("strawman").decide(market(FOUR, late, fine))
    assert ranks(decision) == ["a/1", "b/1"]
    assert [-e["value"] for e in decision.record["order"]] == pytest.approx([4.0, (1 + 1 / 12 + 2) / 2])
    assert got(decision) == {"a/1": 1, "b/1": 2}


def test_strawman_does_not_care_who_holds_what_is_on_offer() -> None:
    late = app(job("a/1", 4, gang=4, arrival_ms=hours_ago(4)))
    holder = app(job("b/1", 4, gang=4, ending=("m0:0", "m0:1", "m0:2", "m0:3")))
    assert got(make_policy("strawman").decide(market(FOUR, late, holder))) == {"a/1": 4}


def test_guard_serves_the_urgent_by_fair_time_and_all_others_by_remaining_work() -> None:
    # Regret = (1 h since arrival + a tick + 40 s + remaining / GPUs) / T; at T = 2 h the bar of 1.02 is 2.04 h.
    urgent = app(job("a/1", 2, gang=2), t_independent_ms=2.0 * HOUR)  # 2.03 h / 2 h = 1.01: not yet
    later = app(job("b/1", 4, gang=2), t_independent_ms=2.7 * HOUR)  # 3.03 / 2.7 = 1.12
    sooner = app(job("c/1", 2.5, gang=2), t_independent_ms=1.95 * HOUR)  # 2.28 / 1.95 = 1.17
    easy = app(job("d/1", 0.5, gang=2), t_independent_ms=9.0 * HOUR)
    decision = make_policy("guard").decide(market(FOUR, urgent, later, sooner, easy, settings=NOBODY_LARGE))
    assert ranks(decision) == ["c/1", "b/1", "d/1", "a/1"]
    assert [e["is_urgent"] for e in decision.record["order"]] == [True, True, False, False]
    assert [round(e["regret"], 2) for e in decision.record["order"]] == [1.17, 1.12, 0.14, 1.01]
    assert got(decision) == {"b/1": 2, "c/1": 2}


def test_guard_lets_the_urgent_choose_before_incumbents_that_are_not() -> None:
    topology = cluster(("m0", "r0", 2), ("m1", "r0", 1), ("m2", "r0", 1))
    calm = app(job("a/1", 300, gang=2, ending=("m0:0", "m0:1"), restart_ms=150_000), t_independent_ms=900.0 * HOUR)
    urgent = app(job("b/1", 8, gang=2, model="slow", arrival_ms=hours_ago(9)))
    # On m0 the new gang does 2 x 300 GPU-s in a lease, spread over the rack 2 x 300 / 1.6: 225 less. The holder of m0 would
    # lose 2 x 150 by moving, more than that, but less than four times as much, which is what an urgent job counts for.
    decision = make_policy("guard").decide(market(topology, calm, urgent, settings=NOBODY_LARGE))
    assert decision.gpus_by_job() == {"a/1": ("m1:0", "m2:0"), "b/1": ("m0:0", "m0:1")}
    relaxed = replace(urgent, t_independent_ms=100.0 * HOUR)
    decision = make_policy("guard").decide(market(topology, calm, relaxed, settings=NOBODY_LARGE))
    assert decision.gpus_by_job() == {"a/1": ("m0:0", "m0:1"), "b/1": ("m1:0", "m2:0")}


def test_themis_without_anybody_urgent_is_the_guard() -> None:
    calm = [app(job(f"{a}/1", k + 1.0, gang=2), t_independent_ms=90.0 * HOUR) for k, a in enumerate("abc")]
    themis, guard = make_policy("themis").decide(market(FOUR, *calm)), make_policy("guard").decide(market(FOUR, *calm))
    assert themis.gpus_by_job() == guard.gpus_by_job()
    assert themis.record["bids"] == []
    assert got(themis) == {"a/1": 2, "b/1": 2}


@pytest.mark.parametrize("is_recall", [False, True])
def test_an_app_bids_for_its_urgent_jobs_only(is_recall: bool) -> None:
    jobs = [job("a/1", 60.0, gang=2), *(job(f"a/{k}", 6.0, gang=2) for k in range(2, 6))]  # the long one decides when it ends
    calm = app(job("b/1", 120.0, gang=2, ending=("m0:0", "m0:1")), t_independent_ms=90.0 * HOUR)
    arena = market(FOUR, app(*jobs, t_independent_ms=29.0 * HOUR), calm, settings=Settings(starving_above=1e9, large_gang=2.0))
    decision = make_policy("themis").decide(replace(arena, is_recall=is_recall))
    (bid,) = decision.record["bids"]
    assert {part["job_id"] for row in bid["rows"] for part in row["parts"]} == {"a/1"}
    assert sum(map(len, decision.wins["a"].values())) == 2
    assert got(decision) == ({"a/1": 2, "b/1": 2} if is_recall else {"a/1": 2, "a/2": 2})


@pytest.mark.parametrize(("urgent", "asked"), [(5, 3), (20, 10), (40, 16)])
def test_themis_asks_the_first_half_by_the_guards_order_and_not_too_many(urgent: int, asked: int) -> None:
    topology = cluster(*((f"m{k}", "r0", 4) for k in range(20)))
    times = [1.0 + (7 * k % urgent) / urgent for k in range(urgent)]
    # Work grows with the square of the fair time, so the regret is highest where that is longest.
    apps = [app(job(f"a{k:02}/1", 20 * t * t, gang=2), t_independent_ms=t * HOUR) for k, t in enumerate(times)]
    decision = make_policy("themis").decide(market(topology, *apps, settings=Settings(starving_above=1e9)))
    first = sorted(apps, key=lambda a: a.t_independent_ms)[:asked]
    assert [b["app_id"] for b in decision.record["bids"]] == sorted(a.app_id for a in first)
    assert len(got(decision)) == urgent  # the others are served after the auction


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_a_policy_says_what_its_order_is_by(name: str) -> None:
    decision = make_policy(name).decide(market(FOUR, app(job("a/1", 2)), app(job("b/1", 3))))
    assert len(str(decision.record["order_by"])) > 10
    assert len(decision.record["order"]) == 2
    assert got(decision) == {"a/1": 1, "b/1": 1}


def test_a_policy_that_does_not_exist_is_named_with_those_that_do() -> None:
    with pytest.raises(CoreError, match=r"no policy is called 'lottery'; there are .*fifo.*themis"):
        make_policy("lottery")


def test_restart_cost_of_nothing_lets_everything_grow() -> None:
    incumbent = app(job("a/1", 9, gang=1, wanted=4, ending=("m0:0",), restart_ms=0))
    assert got(make_policy("srsf").decide(market(FOUR, incumbent))) == {"a/1": 4}
