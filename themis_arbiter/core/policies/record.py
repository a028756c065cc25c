"""What policies share: leftovers after an outcome, and their part of the decision record.

A policy without an auction records one in which nobody bid: all that was on offer is unsold, and all that it gives is
leftover. So every record has the same keys and its books can be checked alike (docs/reference/decision-record.md).
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, Final

from themis_arbiter.core.auction.bid import Bid, Part, Placement
from themis_arbiter.core.auction.payment import Outcome
from themis_arbiter.core.codec import to_plain
from themis_arbiter.core.later import Later, Record
from themis_arbiter.core.policies.base import Decision, Market, MarketJob, Orders
from themis_arbiter.core.policies.handout import HandOut, Plan
from themis_arbiter.core.policies.sharing import Sharing
from themis_arbiter.core.types import AppId, GpuId, JobId

ORDER_RECORDED_MAX: Final = 200  # jobs of an order that a record names; `order_length` counts them all


def hand_out_for(market: Market, outcome: Outcome) -> HandOut:
    """A hand-out of what was withheld and what was not sold."""
    got: dict[JobId, tuple[GpuId, ...]] = {
        job_id: gpus for placement in outcome.kept.values() for job_id, gpus in placement.items()
    }
    return HandOut(market, {*outcome.withheld, *outcome.unsold}, got)


def auction_record(market: Market, bids: tuple[Bid, ...], outcome: Outcome, leftovers: Mapping[AppId, Placement]) -> Record:
    """The auction as plain values: enough to check its outcome by brute force."""
    solution = outcome.solution
    given = {g for placement in leftovers.values() for gpus in placement.values() for g in gpus}
    rho_won = {b.app_id: b.rows[w.row].rho for b, w in zip(bids, solution.wins, strict=True)}
    return Record(
        {
            "bids": [_plain_bid(b) for b in bids],
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
            "apps": Later(lambda: _apps(market)),
        }
    )


def _plain_bid(bid: Bid) -> dict[str, Any]:
    """As `to_plain`, but written out: no part of a record is larger."""
    rows = [{"parts": [_plain_part(part) for part in row.parts], "rho": row.rho} for row in bid.rows]
    return {"app_id": bid.app_id, "rows": rows, "weight": bid.weight}


def _plain_part(part: Part) -> dict[str, Any]:
    types = {"types": list(part.types)} if part.types else {}
    return {
        "job_id": part.job_id,
        "keep": list(part.keep),
        "more": part.more,
        "unit": part.unit,
        "level": part.level.value,
        "anchor": list(part.anchor),
        **types,
    }


def plain_decision(market: Market, hand_out: HandOut, order: Mapping[str, Any]) -> Decision:
    """The decision of a policy without bids; `order` is `order_record`'s."""
    leftovers = hand_out.by_app()
    record: dict[str, Any] = {
        "bids": [],
        "wins": [],
        "welfare": 0.0,
        "bound": 0.0,
        "work": 0,
        "has_payments": False,
        "payments": [],
        "kept": {},
        "withheld": [],
        "unsold": list(market.supply.gpus),
        "leftovers": to_plain(leftovers),
        "unused": sorted(hand_out.free),
        "apps": Later(lambda: _apps(market)),
    }
    return Decision(wins={}, leftovers=leftovers, record=Record(record, order))


def in_order_decision(
    market: Market,
    orders: Sequence[Sequence[MarketJob]],
    record: Mapping[str, Any],
    choosers: Collection[JobId] = (),
    waited_for: Collection[MarketJob] = (),
    before: Decision | None = None,
) -> Decision:
    """The decision that hands out by orders and nothing else; `record` is `order_record`'s, `before` see `Repeating`."""
    ids = None if waited_for else ids_of(orders)
    if before is not None and before.orders == ids and before.choosers == choosers:
        return decided_again(market, before, record)
    hand_out = HandOut(market, market.supply.gpus)
    hand_out.run_all(orders, choosers, waited_for)
    return replace(plain_decision(market, hand_out, record), orders=ids, choosers=choosers)


def planned_decision(market: Market, plan: Plan, record: Mapping[str, Any], before: Decision | None = None) -> Decision:
    """The decision that hands out by a plan and nothing else; `record` is the policy's part of it, `before` see `Repeating`.

    An order of jobs, one for each GPU that they get, says what the plan gives: the places hang on that alone.
    """
    blank = Sharing(market, market.supply.gpus)
    plan(blank)
    orders = (tuple([job_id for job_id, count in blank.shares.items() for _ in range(count)]),)
    if before is not None and before.orders == orders:
        return decided_again(market, before, record)
    hand_out = HandOut(market, market.supply.gpus)
    hand_out.run(plan)
    placed = {job_id: len(gpus) for job_id, gpus in hand_out.given.items()}
    return replace(plain_decision(market, hand_out, record), orders=orders if placed == blank.shares else None)


def ids_of(orders: Sequence[Sequence[MarketJob]]) -> Orders:
    """The orders by the jobs' names."""
    return tuple([tuple([job.job_id for job in order]) for order in orders])


def decided_again(market: Market, before: Decision, record: Mapping[str, Any]) -> Decision:
    """The decision `before` once more, in this market; `record` is the policy's part of its record."""
    return Decision(
        wins={},
        leftovers=before.leftovers,
        record=Record(before.record, {"apps": Later(lambda: _apps(market))}, record),
        orders=before.orders,
        choosers=before.choosers,
    )


def order_record(by: str, length: int, whys: Callable[[], Iterable[tuple[MarketJob, Mapping[str, Any]]]]) -> Record:
    """Why whose turn came when: `by` says in words what the order is by, `whys` gives each job with what it was for it.

    `whys` is called when somebody reads the order, and must give the same whenever that is.
    """

    def order() -> list[dict[str, Any]]:
        return [
            {
                "job_id": j.job_id,
                "app_id": j.app_id,
                **why,
                "wanted": j.wanted,
                "held": len(j.held),
                "ending": len(j.ending),
            }
            for j, why in islice(whys(), ORDER_RECORDED_MAX)
        ]

    return Record({"order_by": by, "order_length": length, "order": Later(order)})


def _apps(market: Market) -> list[dict[str, Any]]:
    return [
        {
            "app_id": a.app_id,
            "elapsed_ms": market.now_ms - a.arrival_ms,
            "t_independent_ms": a.t_independent_ms,
            "remaining_gpu_ms": a.remaining,
        }
        for a in market.apps
    ]
