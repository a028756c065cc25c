"""The audit of single rounds: what lies gain, and that exact payments leave them nothing."""

from dataclasses import replace
from math import exp
from random import Random

import pytest

from tests.support.markets import HOUR, NOW_MS, app, cluster, job, market, random_market
from themis_arbiter.core.auction.bid import Bid
from themis_arbiter.core.auction.payment import Outcome
from themis_arbiter.core.misreports import About
from themis_arbiter.core.policies.auctioneer import Call
from themis_arbiter.core.policies.base import Market
from themis_arbiter.engine.audit import Audit, Ground, audit_call, without_payments


def call_of(arena: Market) -> Call:
    """Everybody bids."""
    wanting = tuple(a for a in arena.apps if all(j.wanted >= j.gang for j in a.jobs))
    return Call(market=arena, bidders=wanting, rest_orders=([j for a in wanting for j in a.jobs],))


@pytest.mark.parametrize("seed", range(60))
def test_where_shares_are_exact_no_lie_about_values_gains_more_than_the_search_leaves_open(seed: int) -> None:
    """c_i x v_i(win) is the welfare at true values over what the others reach alone: no other bid makes it larger."""
    call = call_of(random_market(seed, gpus_max=12, apps_max=5))
    chance = Random(f"{seed}/lies")
    honest = call.hold(call.bids)

    def exact(outcome: Outcome, bid: Bid, *, at_most: bool) -> float:
        win = next(w for w in outcome.solution.wins if w.app_id == bid.app_id)
        paid = next((p for p in outcome.payments if p.app_id == bid.app_id), None)
        share = 1.0 if paid is None else paid.share_max if at_most else paid.share
        return share / bid.rows[win.row].rho  # by its true table

    for bid in call.bids:
        told = [row if chance.random() < 0.3 else replace(row, rho=row.rho * 2.0 ** chance.uniform(-3, 3)) for row in bid.rows]
        lied = replace(bid, rows=tuple(told))
        outcome = call.hold(tuple(lied if b.app_id == bid.app_id else b for b in call.bids))
        best = exact(honest, bid, at_most=True) * exp(honest.solution.gap) * (1 + 1e-6)
        assert exact(outcome, bid, at_most=False) <= best


def test_who_has_waited_gains_by_more_work_unless_it_pays_its_exact_share() -> None:
    """The longer ago an app came, the less a GPU changes its rho; more work left makes it change more, so it wins more."""
    arrived = NOW_MS - 4 * HOUR
    apps = [app(job(f"{name}/1", 16.0, wanted=16, arrival_ms=arrived)) for name in "abcde"]
    found = Audit()
    audit_call(found, call_of(market(cluster(("m0", "r0", 8), ("m1", "r0", 8)), *apps)))
    best = {ground: max(g.gain for g in found.gains if g.ground is ground and g.about is About.WORK) for ground in Ground}
    assert best[Ground.UNPAID] > 0.05
    assert best[Ground.EXACT] == 0.0


def test_a_gang_that_cannot_pay_gains_by_the_lie_that_wins_it() -> None:
    """Two gangs of the whole cluster: who says that it has more left wins it, and keeps it, since half a gang is nothing."""
    two = [app(job(f"{name}/1", hours, gang=4)) for name, hours in (("a", 3.0), ("b", 3.1))]
    found = Audit()
    audit_call(found, call_of(market(cluster(("m0", "r0", 4)), *two)))
    gains = {(g.app_id, g.about, g.ground): g for g in found.gains}
    winner = min(("a", "b"), key=lambda a: gains[a, About.WORK, Ground.PAID].rho_true)
    loser = "b" if winner == "a" else "a"
    liar = gains[loser, About.WORK, Ground.PAID]
    assert liar.gain > 0.0
    assert liar.rho_lied < liar.rho_true
    assert liar.gain == gains[loser, About.WORK, Ground.UNPAID].gain  # payments take nothing from one gang
    assert gains[loser, About.WORK, Ground.EXACT].gain == 0.0  # its exact share is worth less than nothing won
    assert all(g.gain == 0.0 for g in found.gains if g.app_id == winner)


@pytest.mark.parametrize("seed", range(30))
def test_taking_payments_off_an_outcome_is_holding_the_auction_without(seed: int) -> None:
    call = call_of(random_market(seed))
    unpaid = replace(call, market=replace(call.market, settings=replace(call.market.settings, payments=False)))
    outcome = without_payments(call.hold(call.bids))
    held = unpaid.hold(call.bids)
    assert (outcome.kept, outcome.withheld, outcome.unsold) == (held.kept, held.withheld, held.unsold)


def test_an_audit_of_a_run_without_payments_has_them_on_and_off_all_the_same() -> None:
    apps = [app(job(f"{name}/1", 6.0, wanted=4), arrival_ms=100_000_000 - HOUR // 60) for name in "abc"]
    with_payments, without = Audit(), Audit()
    arena = market(cluster(("m0", "r0", 4), ("m1", "r0", 4)), *apps)
    audit_call(with_payments, call_of(arena))
    audit_call(without, call_of(replace(arena, settings=replace(arena.settings, payments=False))))
    assert with_payments.gains == without.gains
