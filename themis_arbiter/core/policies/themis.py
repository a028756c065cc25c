"""The default policy, first form: an auction among the urgent, leftovers by shortest remaining service.

Offers go to apps with an urgent job (regret above 1.05); they are sold by partial allocation with hidden payments. What they
leave goes to urgent jobs first (the app with the shortest fair time first), then to all by least remaining declared work
(mechanism.md, section 6). Recall and the finer placement come with the fairness work.
"""

from collections.abc import Mapping
from typing import Any

from themis_arbiter.core.auction.payment import partial_allocation
from themis_arbiter.core.bidding import build_bid, in_app_order
from themis_arbiter.core.policies.base import Decision, Market, MarketApp, MarketJob
from themis_arbiter.core.policies.record import auction_record, hand_out_leftovers
from themis_arbiter.core.rho import regret
from themis_arbiter.core.types import JobId


class ThemisPolicy:
    """See the module's text."""

    def decide(self, market: Market) -> Decision:
        """One round."""
        regrets = {j.job_id: regret(market, app, j) for app in market.apps for j in app.jobs}
        urgent = {j for j, r in regrets.items() if r > market.settings.urgent_above}
        bidders = [a for a in market.apps if any(j.job_id in urgent and j.can_gain for j in a.jobs)]
        bids = tuple(build_bid(market, app) for app in bidders)
        gangs = {j.job_id: j.gang for app in market.apps for j in app.jobs}
        outcome = partial_allocation(bids, market.supply, gangs, payments=market.settings.payments)
        order = leftover_order(market.apps, urgent)
        leftovers = hand_out_leftovers(market, outcome, order)
        record = auction_record(market, bids, outcome, leftovers) | {"order": self._explain(order, regrets, urgent)}
        return Decision(wins=outcome.kept, leftovers=leftovers, record=record)

    def _explain(self, order: list[MarketJob], regrets: Mapping[JobId, float], urgent: set[JobId]) -> list[dict[str, Any]]:
        return [
            {
                "job_id": j.job_id,
                "app_id": j.app_id,
                "regret": regrets[j.job_id],
                "is_urgent": j.job_id in urgent,
                "remaining_gpu_ms": j.remaining,
                "wanted": j.wanted,
                "held": len(j.held),
                "ending": len(j.ending),
            }
            for j in order
        ]


def leftover_order(apps: tuple[MarketApp, ...], urgent: set[JobId]) -> list[MarketJob]:
    """Urgent jobs, shortest fair time first; then all others by their app's remaining work; in an app, its own order."""
    by_fair_time = sorted(apps, key=lambda a: (a.t_independent_ms, a.app_id))
    by_service = sorted(apps, key=lambda a: (a.remaining, a.app_id))
    first = [j for app in by_fair_time for j in in_app_order(app) if j.job_id in urgent]
    rest = [j for app in by_service for j in in_app_order(app) if j.job_id not in urgent]
    return first + rest
