"""Who has waited too long: the guard's starving, what is kept back for them, and aging under `paper`."""

from dataclasses import replace

import pytest

from tests.support.markets import HOUR, NOW_MS, app, cluster, got, job, market, ranks
from themis_arbiter.core.auction.bid import WEIGHT_MAX
from themis_arbiter.core.policies import make_policy
from themis_arbiter.core.policies.base import Market, MarketApp
from themis_arbiter.core.settings import PaperRules, Settings
from themis_arbiter.core.types import CoreError

FOUR = cluster(("m0", "r0", 4))
GRID_MS = 300_000
END_MS = NOW_MS // GRID_MS * GRID_MS  # a grid end


def came(hours_ago: float, name: str, hours: float, t_hours: float, now_ms: int = NOW_MS, **more: int) -> MarketApp:
    """One job; its regret is (hours ago + a little + hours / its gang) / t_hours."""
    arrived = now_ms - round(hours_ago * HOUR)
    return app(job(f"{name}/1", hours, arrival_ms=arrived, **more), t_independent_ms=t_hours * HOUR)


def test_who_starves_goes_first_by_arrival_then_the_urgent_by_fair_time() -> None:
    large = came(4.0, "large", 4.0, 3.0, gang=4)  # regret above 5 / 3
    later = came(3.0, "later", 1.0, 2.0)  # above 4 / 2, but it came later
    urgent = came(0.5, "short", 0.6, 1.0)  # 1.1 and the shortest fair time
    calm = came(1.0, "calm", 0.1, 9.0)
    arena = market(FOUR, large, later, urgent, calm, settings=Settings(large_gang=2.0))  # which would be owed a first lease
    decision = make_policy("guard").decide(arena)
    assert ranks(decision) == ["large/1", "later/1", "short/1", "calm/1"]
    assert got(decision) == {"large/1": 4}
    assert decision.record["order_by"].startswith("starving jobs by their app's arrival, then urgent jobs")
    patient = replace(arena, settings=replace(arena.settings, starving_above=9.0))
    decision = make_policy("guard").decide(patient)
    assert ranks(decision) == ["short/1", "later/1", "large/1", "calm/1"]
    assert decision.record["order_by"].startswith("urgent jobs")
    assert got(decision) == {"short/1": 1, "later/1": 1, "calm/1": 1}


def test_nobody_starves_who_is_not_urgent() -> None:
    with pytest.raises(CoreError, match="who starves is urgent"):
        Settings(urgent_above=2.0, starving_above=0.5)


def test_themis_asks_the_first_who_starves_alone() -> None:
    large = came(4.0, "large", 4.0, 3.0, gang=4)
    others = [came(3.0, f"o{k}", 2.0, 2.0) for k in range(3)]
    decision = make_policy("themis").decide(market(FOUR, large, *others))
    assert [b["app_id"] for b in decision.record["bids"]] == ["large"]
    assert got(decision) == {"large/1": 4}
    too_large = came(4.0, "large", 4.0, 3.0, gang=5)
    decision = make_policy("themis").decide(market(FOUR, too_large, *others))
    assert [b["app_id"] for b in decision.record["bids"]] == ["o0"]  # what it cannot use is not offered to it
    assert got(decision) == {"o0/1": 1, "o1/1": 1, "o2/1": 1}


@pytest.mark.parametrize("policy", ["guard", "themis"])
@pytest.mark.parametrize(
    ("left_s", "is_kept_back"), [(200, False), (101, False), (100, True), (61, True), (60, False), (1, False)]
)
def test_what_would_miss_the_next_grid_round_is_kept_for_who_starves(policy: str, left_s: int, is_kept_back: bool) -> None:
    """Notice 60 s and restart 40 s: a lease given with 61 to 100 s left goes on to the end after the next."""
    now_ms = END_MS - left_s * 1000
    starving = came(4.0, "large", 4.0, 3.0, now_ms, gang=5)
    small = came(0.1, "small", 0.1, 9.0, now_ms)
    arena = market(FOUR, starving, small, now_ms=now_ms)
    assert got(make_policy(policy).decide(arena)) == ({} if is_kept_back else {"small/1": 1})
    assert got(make_policy(policy).decide(market(FOUR, small, now_ms=now_ms))) == {"small/1": 1}  # nobody starves
    fits = came(4.0, "large", 4.0, 3.0, now_ms, gang=2)
    assert got(make_policy(policy).decide(market(FOUR, fits, small, now_ms=now_ms))) == {"large/1": 2, "small/1": 1}


def aged(aging: float, *apps: MarketApp) -> Market:
    settings = Settings(policy="paper", lease_ms=600_000, fairness_knob=0.0, paper=PaperRules(aging=aging))
    return market(FOUR, *apps, settings=settings)


def test_aging_weighs_bids_by_the_leases_lost_waiting() -> None:
    waits = came(1.0, "a", 4.0, 2.0, gang=4)  # six leases of ten minutes
    had = app(job("b/1", 1.0, gang=2, arrival_ms=NOW_MS - HOUR, attained=1.0 * HOUR), t_independent_ms=2.0 * HOUR)
    bids = make_policy("paper").decide(aged(2.0, waits, had)).record["bids"]
    assert [b["weight"] for b in bids] == pytest.approx([7.0**2, 4.0**2])  # half an hour on its two GPUs is not lost
    bids = make_policy("paper").decide(aged(0.0, waits, had)).record["bids"]
    assert [b["weight"] for b in bids] == [1.0, 1.0]
    old = came(1e6, "a", 4.0, 2.0)
    assert make_policy("paper").decide(aged(8.0, old)).record["bids"][0]["weight"] == WEIGHT_MAX


def test_aging_turns_the_auction_for_a_gang_that_has_waited() -> None:
    gang = came(10.0, "gang", 4.0, 20.0, gang=4)
    small = [came(0.5, f"s{k}", 0.5, 1.0) for k in range(4)]
    assert set(got(make_policy("paper").decide(aged(0.0, gang, *small)))) == {f"s{k}/1" for k in range(4)}
    assert got(make_policy("paper").decide(aged(3.0, gang, *small))) == {"gang/1": 4}


@pytest.mark.parametrize("aging", [-1.0, 8.5, float("nan")])
def test_aging_has_bounds(aging: float) -> None:
    with pytest.raises(CoreError, match="aging"):
        PaperRules(aging=aging)
