"""Large gangs that are owed their first lease."""

from dataclasses import replace

import pytest

from tests.support.markets import HOUR, NOW_MS, app, cluster, got, job, market, ranks
from themis_arbiter.core.policies import make_policy
from themis_arbiter.core.policies.base import MarketApp
from themis_arbiter.core.policies.owed import owed_a_lease
from themis_arbiter.core.settings import Settings
from themis_arbiter.core.types import CoreError

EIGHT = cluster(("m0", "r0", 8))
LEASE = 1 / 12  # hours


def gang(name: str, came_h: float, t_h: float, n: int = 4, hours: float = 8.0, has_run: bool = False) -> MarketApp:
    """One job with `hours` of GPU time to do: its share is hours / t_h GPUs."""
    arrived = NOW_MS - round(came_h * HOUR)
    one = job(f"{name}/1", hours, arrival_ms=arrived, gang=n)
    return app(replace(one, has_run=has_run), t_independent_ms=t_h * HOUR)


def owed(*apps: MarketApp, settings: Settings | None = None) -> list[str]:
    arena = market(EIGHT, *apps, settings=settings) if settings else market(EIGHT, *apps)
    return [j.job_id for j in owed_a_lease(arena)]


def test_a_gang_is_owed_a_lease_one_lease_after_its_share_has_paid_for_it() -> None:
    """A share of 1 GPU pays for 4 GPUs over a lease within 4 leases; the fifth is the one that is waited for."""
    assert owed(gang("a", 4.99 * LEASE, 8.0)) == []
    assert owed(gang("a", 5.01 * LEASE, 8.0)) == ["a/1"]
    assert owed(gang("a", 4.01 * LEASE, 8.0), settings=Settings(owed_leases=0.0)) == ["a/1"]
    assert owed(gang("a", 2.51 * LEASE, 4.0), settings=Settings(owed_leases=0.5)) == ["a/1"]


def test_of_less_work_than_a_lease_its_share_must_pay_for_all_of_it_only() -> None:
    assert owed(gang("a", 1.51 * LEASE, 4.0, hours=LEASE), settings=Settings(owed_leases=0.0)) == []
    assert owed(gang("a", 4.01, 4.0, hours=LEASE), settings=Settings(owed_leases=0.0)) == ["a/1"]


def test_who_has_run_or_is_no_large_gang_is_owed_nothing() -> None:
    long_ago = 2.0
    assert owed(gang("a", long_ago, 8.0)) == ["a/1"]
    assert owed(gang("a", long_ago, 8.0, has_run=True)) == []
    assert owed(gang("a", long_ago, 8.0, n=1)) == []  # an eighth
    assert owed(gang("a", long_ago, 8.0, n=1), settings=Settings(large_gang=0.125)) == ["a/1"]
    assert owed(gang("a", long_ago, 8.0, n=8), settings=Settings(large_gang=1.5)) == []


def test_what_an_app_is_owed_pays_for_one_of_its_gangs_after_the_other() -> None:
    """A share of 2 GPUs pays for 4 over a lease in 2 leases, for the next 4 in 4; what the app has had counts against it."""
    arrived = NOW_MS - round(4.01 * LEASE * HOUR)
    jobs = [job(f"a/{k}", 4.0, arrival_ms=arrived, gang=4) for k in range(3)]
    three = app(*jobs, t_independent_ms=6.0 * HOUR)
    at_once = Settings(owed_leases=0.0)
    assert owed(three, settings=at_once) == ["a/0", "a/1"]
    assert owed(replace(three, attained=2.0 * LEASE * HOUR), settings=at_once) == ["a/0"]
    assert owed(replace(three, attained=5.0 * LEASE * HOUR), settings=at_once) == []


def test_the_longest_owed_comes_first_and_before_who_starves() -> None:
    starving = app(job("old/1", 4.0, arrival_ms=NOW_MS - 9 * HOUR, gang=1), t_independent_ms=5.0 * HOUR)
    newer, older = gang("newer", 1.0, 8.0), gang("older", 1.5, 8.0)
    arena = market(EIGHT, starving, newer, older)
    decision = make_policy("guard").decide(arena)
    assert ranks(decision) == ["older/1", "newer/1", "old/1"]
    assert got(decision) == {"older/1": 4, "newer/1": 4}
    assert decision.record["order_by"].startswith(
        "large gangs that are owed a first lease, the longest owed first, then starving"
    )
    assert [e.get("before_all") for e in decision.record["order"]] == ["owed", "owed", "starving"]
    decision = make_policy("guard").decide(market(EIGHT, newer, older))
    assert "starving" not in decision.record["order_by"]


def test_themis_asks_the_longest_owed_alone() -> None:
    urgent = [app(job(f"u{k}/1", 1.0, arrival_ms=NOW_MS - HOUR), t_independent_ms=1.8 * HOUR) for k in range(4)]
    decision = make_policy("themis").decide(market(EIGHT, gang("large", 1.0, 8.0), *urgent))
    assert [b["app_id"] for b in decision.record["bids"]] == ["large"]
    assert got(decision) == {"large/1": 4, **{f"u{k}/1": 1 for k in range(4)}}


@pytest.mark.parametrize(
    ("large_gang", "owed_leases"), [(0.0, 1.0), (-1.0, 1.0), (0.25, -0.1), (float("nan"), 1.0), (0.25, float("nan"))]
)
def test_bars_without_sense_are_refused(large_gang: float, owed_leases: float) -> None:
    with pytest.raises(CoreError, match="large_gang must be above 0"):
        Settings(large_gang=large_gang, owed_leases=owed_leases)
