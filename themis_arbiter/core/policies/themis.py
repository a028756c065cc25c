"""The default policy: an auction among the urgent, leftovers by shortest remaining service.

Offers go to the first half, by the guard's order, of the apps with an urgent job (regret above 1.02), at most `BIDDERS_MAX`
of them; they are sold by partial allocation with hidden payments. What they leave goes out by the guard's rule (mechanism.md,
section 6). An app bids for its urgent jobs only: if one of many made all of them bid, they would take at a recall what ran for
others, and lose it at the next grid end.
"""

from dataclasses import replace
from typing import Final

from themis_arbiter.core.policies.auctioneer import AuctionPolicy, Call
from themis_arbiter.core.policies.base import Market, MarketApp
from themis_arbiter.core.policies.guard import Standing, standing, waited_for

BIDDERS_MAX: Final = 16  # apps that one auction is held among
BIDDERS_MIN: Final = 3  # where so many are urgent: a bidder alone is forced into bad places, and two seldom compete


class ThemisPolicy(AuctionPolicy):
    """See the module's text."""

    def call(self, market: Market) -> Call:
        """The urgent bid; the guard's order has the rest."""
        stand = standing(market)
        needing = stand.urgent.union([j.job_id for j in stand.starving])
        asked = [replace(a, jobs=tuple([j for j in a.jobs if j.job_id in needing])) for a in bidders(market, stand)]
        return Call(
            market=market,
            bidders=tuple(asked),
            rest_orders=stand.orders,
            choosers=stand.urgent,
            waited_for=waited_for(market, stand),
            record=stand.record(),
        )


def bidders(market: Market, stand: Standing) -> list[MarketApp]:
    """The first half of the apps with an urgent job that could use a GPU on offer, three at least; in order of id.

    Among all of the urgent the product of values starves those who have waited longest: the longer an app waits, the less a
    GPU changes its rho, so the less it bids (mechanism.md, section 5, "elapsed term"). Who is asked is therefore decided by
    need, and only what each of these gets by bids. By the guard's order and not by regret: who waits overtakes in regret who
    runs, so every round would ask others and move most of what runs. Where somebody starves, the first who came is asked alone.
    """
    most = len(market.supply.gpus)
    waiting = [j.app_id for j in stand.starving if not j.has_gpus and j.can_gain and j.gang <= most]
    if waiting:
        return [a for a in market.apps if a.app_id == waiting[0]]
    needing = [j.app_id for j in stand.order if j.job_id in stand.urgent and j.can_gain and j.gang - len(j.held) <= most]
    in_line = list(dict.fromkeys(needing))
    asked = min(BIDDERS_MAX, max(BIDDERS_MIN, -(-len(in_line) // 2)))
    chosen = set(in_line[:asked])
    return [a for a in market.apps if a.app_id in chosen]
