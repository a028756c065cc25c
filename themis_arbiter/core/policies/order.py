"""Policies that are an order of jobs: the first gets its whole demand, then the next, until nothing is left.

Behind a gang that finds no room smaller ones go ahead of it (backfill): the GPUs would stand idle, and all leases end on one
grid, so at its next end the order holds again. Incumbents keep their GPUs while their turn comes before the GPUs run out.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar, TypeAlias

from themis_arbiter.core.policies.base import Decision, Market, MarketApp, MarketJob
from themis_arbiter.core.policies.record import in_order_decision, order_record

Key: TypeAlias = tuple[float, ...]


class OrderPolicy(ABC):
    """Jobs by `key`, least first; of equal keys the app that came first, and in an app as the app would have it."""

    order_by: ClassVar[str]  # in words, what the first number of the key is

    @abstractmethod
    def key(self, market: Market, app: MarketApp, job: MarketJob) -> Key:
        """The job's rank."""

    def keys(self, market: Market, app: MarketApp) -> list[Key]:
        """Ranks of the app's jobs, in the app's own order of them."""
        return [self.key(market, app, job) for job in app.in_order]

    def decide(self, market: Market) -> Decision:
        """One round."""
        return self._decide(market, None)

    def decide_after(self, market: Market, before: Decision) -> Decision:
        """One round, perhaps as before."""
        return self._decide(market, before)

    def _decide(self, market: Market, before: Decision | None) -> Decision:
        order = self.order(market)
        record = order_record(self.order_by, len(order), lambda: whys(order))
        return in_order_decision(market, [[job for job, _ in order]], record, before=before)

    def order(self, market: Market) -> list[tuple[MarketJob, Key]]:
        """All jobs with their keys, in the order in which they are served."""
        ranked = [(job, key, app) for app in market.apps for job, key in zip(app.in_order, self.keys(market, app), strict=True)]
        ranked.sort(key=lambda r: (r[1], r[2].arrival_ms, r[2].app_id))
        return [(job, key) for job, key, _ in ranked]


class AppOrderPolicy(OrderPolicy):
    """All jobs of an app have its rank, worked out once: to look at each of its jobs for each of them would be quadratic."""

    @abstractmethod
    def app_key(self, market: Market, app: MarketApp) -> Key:
        """The app's rank."""

    def key(self, market: Market, app: MarketApp, job: MarketJob) -> Key:
        """Its app's."""
        return self.app_key(market, app)

    def keys(self, market: Market, app: MarketApp) -> list[Key]:
        """The app's, for each job."""
        return [self.app_key(market, app)] * len(app.in_order)


def whys(order: Iterable[tuple[MarketJob, Key]]) -> Iterator[tuple[MarketJob, dict[str, float]]]:
    """What a record says of each job: the first number of its key."""
    for job, key in order:
        yield job, {"value": key[0]}


def arranged(apps: Sequence[MarketApp]) -> list[tuple[MarketApp, MarketJob]]:
    """All jobs, each app's in its own order."""
    return [(app, job) for app in apps for job in app.in_order]
