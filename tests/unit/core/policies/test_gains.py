"""Policies that give step after step, and those that place or give up first: small markets worked out by hand."""

import pytest

from tests.support.markets import HOUR, NOW_MS, app, cluster, got, job, market, ranks
from themis_arbiter.core.policies import make_policy
from themis_arbiter.core.policies.carbyne import need
from themis_arbiter.core.policies.filling import EPOCH_LEASES, OptimusPolicy, SlaqPolicy

FOUR = cluster(("m0", "r0", 4))
SIX = cluster(("m0", "r0", 4), ("m1", "r1", 2))


def test_drf_gives_the_next_gang_to_the_least_share() -> None:
    wide = app(*(job(f"a/{k}", 1, arrival_ms=NOW_MS - 9 * HOUR) for k in range(6)))
    narrow = app(*(job(f"b/{k}", 1) for k in range(2)))
    late = app(job("c/0", 1, arrival_ms=NOW_MS))
    # One each in order of arrival, then the first again.
    assert got(make_policy("drf").decide(market(FOUR, wide, narrow, late))) == {"a/0": 1, "a/1": 1, "b/0": 1, "c/0": 1}


def test_drf_counts_weights() -> None:
    heavy = app(*(job(f"a/{k}", 1) for k in range(4)), weight=3.0)
    light = app(*(job(f"b/{k}", 1) for k in range(4)))
    assert sorted(got(make_policy("drf").decide(market(FOUR, heavy, light)))) == ["a/0", "a/1", "a/2", "b/0"]


def test_drf_counts_memory_where_the_job_says_what_it_needs() -> None:
    hungry = app(*(job(f"a/{k}", 1, memory_mb=60_000) for k in range(4)))  # 60 % of the memory each
    modest = app(*(job(f"b/{k}", 1, memory_mb=1_000) for k in range(4)))  # 25 % of the GPUs each
    arena = market(FOUR, hungry, modest, memory_mb=100_000)
    assert sorted(got(make_policy("drf").decide(arena))) == ["a/0", "b/0", "b/1", "b/2"]
    unknown = market(FOUR, hungry, modest)  # of memory nothing is known: GPUs alone count
    assert sorted(got(make_policy("drf").decide(unknown))) == ["a/0", "a/1", "b/0", "b/1"]


def test_drf_counts_gpus_that_a_job_keeps() -> None:
    keeper = app(job("a/1", 9, held=("m0:0", "m0:1"), gang=2), job("a/2", 9, gang=1), job("a/3", 9, gang=1))
    other = app(*(job(f"b/{k}", 1) for k in range(3)))
    decision = make_policy("drf").decide(market(FOUR, keeper, other))
    assert got(decision) == {"b/0": 1, "b/1": 1}
    assert {e["app_id"]: e["value"] for e in decision.record["order"]} == {"a": 0.5, "b": 0.0}


def test_optimus_serves_gangs_by_the_completion_time_they_save() -> None:
    # A lease (5 min) earlier: of 5 min + 15 min that is 1/4 for one GPU; of 5 + 60 / 2 it is 1/7 for two, 1/14 for each.
    short = app(job("a/1", 0.25, gang=1))
    long = app(job("b/1", 1.0, gang=2))
    decision = make_policy("optimus").decide(market(cluster(("m0", "r0", 2)), long, short))
    assert got(decision) == {"a/1": 1}
    assert [e["value"] for e in decision.record["order"]] == pytest.approx([1 / 4, 1 / 14])


def test_optimus_evens_out_growth_of_equal_jobs_whatever_is_left_of_them() -> None:
    # From a to a + 1 GPUs saves 1 / (a + 1) of the completion time.
    jobs = [app(job(f"{a}/1", hours, gang=1, wanted=4)) for a, hours in (("a", 1), ("b", 40))]
    assert got(make_policy("optimus").decide(market(FOUR, *jobs))) == {"a/1": 2, "b/1": 2}
    assert OptimusPolicy().gain(market(FOUR), job("a/1", gang=1), has=2, step=1) == pytest.approx(1 / 3)


def test_slaq_serves_whose_loss_falls_fastest() -> None:
    fresh = app(job("a/1", 10, done=0.0))
    old = app(job("b/1", 2, done=8.0 * HOUR))
    decision = make_policy("slaq").decide(market(cluster(("m0", "r0", 1)), old, fresh))
    assert got(decision) == {"a/1": 1}
    # One GPU for 1/12 h of 10 h: 1 - 1 / (1 + 9 / 120), as a share of the whole fall of 0.9.
    assert decision.record["order"][0]["value"] == pytest.approx((1 - 1 / (1 + 9 / 120)) / 0.9)


def test_slaq_leaves_who_runs_its_gang_until_an_epoch_ends() -> None:
    lease_ms = 300_000
    old = app(job("a/1", 20, gang=2, wanted=4, done=8.0 * HOUR, ending=("m0:0", "m0:1", "m0:2", "m0:3")))
    fresh = app(job("b/1", 9, gang=2), job("b/2", 10, gang=2))
    for lease, shares in ((1, {"a/1": 2, "b/1": 2}), (11, {"a/1": 2, "b/1": 2}), (EPOCH_LEASES, {"b/1": 2, "b/2": 2})):
        arena = market(FOUR, old, fresh, now_ms=(360 + lease) * lease_ms - 60_000)
        assert got(make_policy("slaq").decide(arena)) == shares, lease


def test_slaq_decides_as_before_where_as_much_goes_to_each() -> None:
    runs = app(job("a/1", 20, gang=3, done=8.0 * HOUR, ending=("m0:0", "m0:1", "m0:2")))
    policy, wide = SlaqPolicy(), app(job("b/1", 10, gang=2))
    before = policy.decide(market(FOUR, runs, wide))
    assert got(before) == {"a/1": 3}
    later = market(FOUR, runs, wide, now_ms=NOW_MS + 300_000)
    assert policy.decide_after(later, before).leftovers is before.leftovers
    narrow = app(job("b/1", 10, gang=1))
    assert got(policy.decide_after(market(FOUR, runs, narrow), before)) == {"a/1": 3, "b/1": 1}


def test_slaq_takes_the_traces_curve_where_there_is_one() -> None:
    flat = job("a/1", 10, done=0.0, loss_curve=(1.0, 0.1, 0.0))
    steep = job("b/1", 10, done=0.5 * HOUR, loss_curve=(5.0, 99.0, 3.0))
    arena = market(cluster(("m0", "r0", 1)), app(flat), app(steep))
    assert got(make_policy("slaq").decide(arena)) == {"b/1": 1}
    constant = job("c/1", 1, loss_curve=(1.0, 0.0, 2.0))
    assert SlaqPolicy().gain(arena, constant, 0, 1) == 0.0


def test_gandiva_lets_who_runs_go_on_and_serves_the_best_placed_first() -> None:
    runs = app(job("a/1", 9, gang=2, ending=("m0:0", "m0:1"), arrival_ms=NOW_MS - HOUR, model="slow"))
    # Three GPUs together are nowhere left: spread over racks its speed would be half.
    first = app(job("b/1", 9, gang=3, model="slow", arrival_ms=NOW_MS - 5 * HOUR))
    second = app(job("c/1", 9, gang=2, model="slow", arrival_ms=NOW_MS - 2 * HOUR))
    decision = make_policy("gandiva").decide(market(SIX, runs, first, second))
    assert decision.gpus_by_job() == {"a/1": ("m0:0", "m0:1"), "c/1": ("m0:2", "m0:3")}
    assert {e["job_id"]: e["value"] for e in decision.record["order"]} == {"a/1": 1.0, "c/1": 1.0, "b/1": 0.0}


def test_gandiva_serves_by_arrival_those_who_do_not_mind_where() -> None:
    first = app(job("b/1", 9, gang=5, arrival_ms=NOW_MS - 5 * HOUR))
    second = app(job("c/1", 9, gang=2, arrival_ms=NOW_MS - 2 * HOUR))
    assert got(make_policy("gandiva").decide(market(SIX, first, second))) == {"b/1": 5}


def test_gandiva_shrinks_who_has_grown_for_those_who_wait() -> None:
    grown = app(job("a/1", 9, gang=1, wanted=4, ending=("m0:0", "m0:1", "m0:2", "m0:3")))
    waits = app(job("b/1", 9, gang=2))
    assert got(make_policy("gandiva").decide(market(FOUR, grown, waits))) == {"a/1": 2, "b/1": 2}


def test_gandiva_migrates_a_job_that_is_spread() -> None:
    spread = app(job("a/1", 9, gang=2, ending=("m0:0", "m1:0"), model="slow"))
    decision = make_policy("gandiva").decide(market(SIX, spread))
    assert len({g.split(":")[0] for g in decision.gpus_by_job()["a/1"]}) == 1


def test_carbyne_gives_up_what_it_does_not_need_yet() -> None:
    # a: 2 GPUs are its fair share; 2 GPU-hours left, fair finish in 9 h: it can wait. b is due in an hour and needs its 2.
    patient = app(job("a/1", 2, gang=2, wanted=2), t_independent_ms=10.0 * HOUR)
    pressed = app(job("b/1", 3, gang=2, wanted=4), t_independent_ms=2.0 * HOUR)
    quick = app(job("c/1", 0.1, gang=2), t_independent_ms=10.0 * HOUR, arrival_ms=NOW_MS)
    arena = market(FOUR, patient, pressed, quick)
    decision = make_policy("carbyne").decide(arena)
    assert got(decision) == {"b/1": 2, "c/1": 2}
    assert {e["app_id"]: e["value"] for e in decision.record["order"]} == {"a": 0, "b": 2, "c": 0}
    assert ranks(decision) == ["c/1", "a/1", "b/1"]


@pytest.mark.parametrize(
    ("hours_left", "due_in_hours", "needed"),
    [
        (4.0, 9.0, 0),  # 2 GPUs for 8.9 hours are plenty
        (4.0, 2.0, 2),  # it needs both GPUs all the time
        (3.85, 2.0, 1),  # 2 x (2 h - 5 min) is 3.83 GPU-hours: a little is missing, one GPU for a lease is enough
        (3.8, 2.0, 0),
        (9.0, 1.0, 2),  # late: it keeps all
        (9.0, -1.0, 2),
    ],
)
def test_carbynes_need(hours_left: float, due_in_hours: float, needed: int) -> None:
    one = app(job("a/1", hours_left, gang=1, wanted=2, restart_ms=0), t_independent_ms=(1.0 + due_in_hours) * HOUR)
    if due_in_hours < 0:
        one = app(job("a/1", hours_left, gang=1, wanted=2, arrival_ms=NOW_MS - 4 * HOUR), t_independent_ms=3.0 * HOUR)
    assert need(market(FOUR, one), one, 2) == needed
