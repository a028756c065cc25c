"""Rounds that are auctions, in three steps: who is called to bid, what their bids win, what becomes of the rest.

The steps stand apart so that one may hold the same auction on other bids than the honest ones (`engine.audit`).
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from themis_arbiter.core.auction.bid import Bid
from themis_arbiter.core.auction.payment import Outcome, partial_allocation
from themis_arbiter.core.bidding import build_bid
from themis_arbiter.core.later import Record
from themis_arbiter.core.policies.base import Decision, Market, MarketApp, MarketJob, Orders
from themis_arbiter.core.policies.handout import HandOut
from themis_arbiter.core.policies.record import auction_record, decided_again, hand_out_for, ids_of
from themis_arbiter.core.settings import Rounding
from themis_arbiter.core.types import AppId, JobId


@dataclass(frozen=True, kw_only=True)
class Call:
    """An auction before any bid is opened. `market` is as its policy sees it."""

    market: Market
    bidders: tuple[MarketApp, ...]  # in order of id
    rest_orders: tuple[Sequence[MarketJob], ...]  # to whom goes what the auction leaves, one list after the other
    choosers: Collection[JobId] = ()  # who of them choose their places first
    waited_for: tuple[MarketJob, ...] = ()  # jobs of the first list: where one gets no gang, nobody after it is served
    rounding: Rounding = Rounding.UP
    lot: str = ""
    weights: Mapping[AppId, float] = field(default_factory=dict)  # of bids; of those that are not named, 1
    record: Mapping[str, Any] = field(default_factory=dict)  # the policy's part of the decision record

    @cached_property
    def gangs(self) -> Mapping[JobId, int]:
        """The fewest GPUs that each job runs on."""
        return {j.job_id: j.gang for app in self.market.apps for j in app.jobs}

    @cached_property
    def orders(self) -> Orders | None:
        """The orders by which the rest goes out; None where it is no matter of orders alone."""
        return None if self.waited_for else ids_of(self.rest_orders)

    @cached_property
    def bids(self) -> tuple[Bid, ...]:
        """What the arbiter bids for them."""
        bids = tuple(build_bid(self.market, app) for app in self.bidders)
        return tuple(replace(b, weight=self.weights[b.app_id]) for b in bids) if self.weights else bids

    def hold(self, bids: tuple[Bid, ...]) -> Outcome:
        """The auction of these bids."""
        return partial_allocation(
            bids,
            self.market.supply,
            self.gangs,
            payments=self.market.settings.payments,
            rounding=self.rounding,
            lot=self.lot,
        )

    def hand_out(self, outcome: Outcome) -> HandOut:
        """What the auction left, handed out."""
        hand_out = hand_out_for(self.market, outcome)
        hand_out.run_all(self.rest_orders, self.choosers, self.waited_for)
        return hand_out


class AuctionPolicy(ABC):
    """A policy that holds an auction among those whom it calls."""

    @abstractmethod
    def call(self, market: Market) -> Call:
        """Who may bid for the supply, and who comes after them."""

    def decide(self, market: Market) -> Decision:
        """One round."""
        return self.close(self.call(market))

    def decide_after(self, market: Market, before: Decision) -> Decision:
        """One round, perhaps as before: where nobody is called, or the auction ends as it did."""
        return self.close(self.call(market), before)

    def close(self, call: Call, before: Decision | None = None) -> Decision:
        """The round that was called; `before` as `Repeating` has it."""
        is_same = before is not None and before.orders == call.orders and before.choosers == call.choosers
        if before is not None and is_same and not call.bidders and not before.record["bids"]:
            return decided_again(call.market, before, call.record)
        outcome = call.hold(call.bids)
        if before is not None and is_same and outcome.kept == before.wins:
            leftovers = before.leftovers
        else:
            leftovers = call.hand_out(outcome).by_app()
        record = Record(auction_record(call.market, call.bids, outcome, leftovers), call.record)
        return Decision(wins=outcome.kept, leftovers=leftovers, record=record, orders=call.orders, choosers=call.choosers)
