"""What every auctioning policy shares: leftovers after an outcome, and its part of the decision record."""

from collections.abc import Mapping, Sequence
from typing import Any

from themis_arbiter.core.auction.bid import Bid, Placement
from themis_arbiter.core.auction.leftover import HandOut
from themis_arbiter.core.auction.payment import Outcome
from themis_arbiter.core.codec import to_plain
from themis_arbiter.core.policies.base import Market, MarketJob
from themis_arbiter.core.types import AppId, GpuId, JobId


def hand_out_leftovers(
    market: Market, outcome: Outcome, *orders: Sequence[MarketJob], chunked: bool = False
) -> dict[AppId, Placement]:
    """Give what was withheld and what was not sold to the jobs of `orders`, one order after the other."""
    got: dict[JobId, tuple[GpuId, ...]] = {
        job_id: gpus for placement in outcome.kept.values() for job_id, gpus in placement.items()
    }
    hand_out = HandOut(market.supply, {*outcome.withheld, *outcome.unsold}, got)
    for order in orders:
        hand_out.run(order, chunked=chunked)
    leftovers: dict[AppId, dict[JobId, tuple[GpuId, ...]]] = {}
    app_of = {j.job_id: app.app_id for app in market.apps for j in app.jobs}
    for job_id in sorted(hand_out.given):
        leftovers.setdefault(app_of[job_id], {})[job_id] = hand_out.given[job_id]
    return dict(leftovers)


def auction_record(
    market: Market, bids: tuple[Bid, ...], outcome: Outcome, leftovers: Mapping[AppId, Placement]
) -> dict[str, Any]:
    """The auction as plain values: enough to check its outcome by brute force (docs/reference/decision-record.md)."""
    solution = outcome.solution
    given = {g for placement in leftovers.values() for gpus in placement.values() for g in gpus}
    rho_won = {b.app_id: b.rows[w.row].rho for b, w in zip(bids, solution.wins, strict=True)}
    return {
        "bids": [to_plain(b) for b in bids],
        "wins": [to_plain(w) | {"rho": rho_won[w.app_id]} for w in solution.wins],
        "welfare": solution.welfare,
        "bound": solution.bound,
        "work": solution.work,
        "has_payments": market.settings.payments,
        "payments": [to_plain(p) for p in outcome.payments],
        "kept": to_plain(outcome.kept),
        "withheld": list(outcome.withheld),
        "unsold": list(outcome.unsold),
        "leftovers": to_plain(leftovers),
        "unused": sorted({*outcome.withheld, *outcome.unsold} - given),
        "apps": [
            {
                "app_id": a.app_id,
                "elapsed_ms": market.now_ms - a.arrival_ms,
                "t_independent_ms": a.t_independent_ms,
                "remaining_gpu_ms": a.remaining,
            }
            for a in market.apps
        ],
    }
