"""Policies that are an order of jobs: the first gets its whole demand, then the next, until nothing is left.

Behind a gang that finds no room smaller ones go ahead of it (backfill): the GPUs would stand idle, and all leases end on one
grid, so at its next end the order holds again. Incumbents keep their GPUs while their turn comes before the GPUs run out.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import ClassVar, TypeAlias

from themis_arbiter.core.policies.base import Decision, Market, MarketApp, MarketJob
from themis_arbiter.core.policies.record import in_order_decision, order_record
from themis_arbiter.core.settings import Settings
from themis_arbiter.core.types import AppId, Millis

Key: TypeAlias = tuple[float, ...]
Ranked: TypeAlias = tuple[MarketJob, Key]
_Rank: TypeAlias = tuple[Key, Millis, AppId, int, Ranked]  # of a job: what it is sorted by, its app's place for it the last


class OrderPolicy(ABC):
    """Jobs in an order of the policy's."""

    order_by: ClassVar[str]  # in words, what the first number of a job's key is

    @abstractmethod
    def order(self, market: Market) -> list[Ranked]:
        """All jobs with their keys, in the order in which they are served."""

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


class JobOrderPolicy(OrderPolicy):
    """Jobs by `key`, least first; of equal keys the app that came first, and in an app as the app would have it.

    Most apps are the same value in many rounds, so the ranks of an app's jobs are kept with it.
    """

    def __init__(self) -> None:
        self._ranks: dict[AppId, tuple[MarketApp, Settings, list[_Rank]]] = {}

    @abstractmethod
    def key(self, settings: Settings, app: MarketApp, job: MarketJob) -> Key:
        """The job's rank, by nothing but these."""

    def order(self, market: Market) -> list[Ranked]:
        """All jobs, by their own keys."""
        known, self._ranks = self._ranks, {}
        found: list[_Rank] = []
        for app in market.apps:
            kept = known.get(app.app_id)
            if kept is None or kept[0] is not app or kept[1] is not market.settings:
                kept = (app, market.settings, self._ranked(market.settings, app))
            self._ranks[app.app_id] = kept
            found += kept[2]
        found.sort()
        return [ranked for *_, ranked in found]

    def _ranked(self, settings: Settings, app: MarketApp) -> list["_Rank"]:
        keys = [self.key(settings, app, job) for job in app.in_order]
        ranks = zip(keys, range(len(keys)), zip(app.in_order, keys, strict=True), strict=True)
        return [(key, app.arrival_ms, app.app_id, place, ranked) for key, place, ranked in ranks]


class AppOrderPolicy(OrderPolicy):
    """Apps by `app_key`, least first, of equal keys who came first; all jobs of an app together, as it would have them."""

    @abstractmethod
    def app_key(self, market: Market, app: MarketApp) -> Key:
        """The app's rank."""

    def order(self, market: Market) -> list[Ranked]:
        """All jobs, by the keys of their apps."""
        apps = [(self.app_key(market, app), app.arrival_ms, app.app_id, app) for app in market.apps]
        apps.sort(key=_first_three)
        return [(job, key) for key, _, _, app in apps for job in app.in_order]


_first_three = itemgetter(0, 1, 2)


def whys(order: Iterable[Ranked]) -> Iterator[tuple[MarketJob, dict[str, float]]]:
    """What a record says of each job: the first number of its key."""
    for job, key in order:
        yield job, {"value": key[0]}


def arranged(apps: Sequence[MarketApp]) -> list[tuple[MarketApp, MarketJob]]:
    """All jobs, each app's in its own order."""
    return [(app, job) for app in apps for job in app.in_order]
