"""Where the paper is silent: each rule of `PaperRules` on small markets."""

from dataclasses import replace
from typing import Any

from tests.support.markets import HOUR, app, cluster, got, job, market
from themis_arbiter.core.policies import make_policy
from themis_arbiter.core.policies.base import Market, MarketApp
from themis_arbiter.core.settings import Filter, Leftover, PaperRules, Settings, Tie, TimeAlone

TWO = cluster(("m0", "r0", 2))


def paper(*apps: MarketApp, round_no: int = 1, **rules: Any) -> Market:
    return replace(market(TWO, *apps, settings=Settings(policy="paper", paper=PaperRules(**rules))), round_no=round_no)


def bidders(arena: Market) -> list[str]:
    return [bid["app_id"] for bid in make_policy("paper").decide(arena).record["bids"]]


def late(name: str, hours: float, **more: Any) -> MarketApp:
    """It has two hours alone in the fluid share and came an hour ago."""
    return app(job(f"{name}/1", hours, **more), work=hours * HOUR)


def test_the_filter_asks_a_fraction_or_all_that_are_badly_off() -> None:
    # n_avg is 2, so by the paper's T_id rho is (1 h + a lease + hours) / (2 x hours): above 1 for the short ones.
    apps = [late("a", 9.0), late("b", 0.5), late("c", 0.7), late("d", 8.0), late("e", 7.0)]
    assert bidders(paper(*apps)) == ["b"]
    assert bidders(paper(*apps, filter=Filter.ADAPTIVE)) == ["b", "c"]
    assert bidders(paper(*apps[3:], filter=Filter.ADAPTIVE)) == ["e"]  # nobody is: at least so many as the fraction


def test_t_id_is_the_papers_or_the_fluid_shares() -> None:
    apps = [replace(late("a", 2.0), t_independent_ms=HOUR), replace(late("b", 1.0), t_independent_ms=4.0 * HOUR)]
    assert bidders(paper(*apps)) == ["b"]  # (1 + 1) / 2 against (1 + 2) / 4, and the lease
    assert bidders(paper(*apps, t_id=TimeAlone.FLUID)) == ["a"]


def test_ties_go_by_id_or_by_lot() -> None:
    apps = [late(name, 2.0) for name in "abcd"]
    assert all(bidders(paper(*apps, round_no=k)) == ["a"] for k in range(20))
    drawn = [bidders(paper(*apps, round_no=k, tie=Tie.RANDOM)) for k in range(40)]
    assert {name for (name,) in drawn} == set("abcd")
    assert drawn == [bidders(paper(*apps, round_no=k, tie=Tie.RANDOM)) for k in range(40)]


def test_what_is_left_goes_by_lot_or_to_the_least_work() -> None:
    apps = [late("a", 0.2), late("b", 9.0), late("c", 3.0), late("d", 6.0)]

    def second(round_no: int, leftover: Leftover) -> str:
        winners = got(make_policy("paper").decide(paper(*apps, round_no=round_no, leftover=leftover)))
        assert winners.pop("a/1") == 1
        return "".join(winners)

    assert {second(k, Leftover.SERVICE) for k in range(20)} == {"c/1"}
    assert {second(k, Leftover.RANDOM) for k in range(20)} == {"b/1", "c/1", "d/1"}
