"""The regret guard: one offer at a time, to urgent jobs first (mechanism.md, section 6).

A job's regret is the rho that its app ends with if the job is passed over once more; above 1.02 it is urgent. Urgent jobs
are served first, the app with the shortest fair time before the others, and choose their places first; everybody else by
least remaining declared work, an app's whole demand before the next.

A stream of short urgent apps would pass a gang of most of the cluster for ever. So above a regret of 1.3 a job is starving:
who starves goes before all others, first come first served, so nobody who comes later can hold it up. And before these goes a
large gang that is owed its first lease (`core.policies.owed`).
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from themis_arbiter.core.later import Record
from themis_arbiter.core.policies.base import Decision, Market, MarketJob
from themis_arbiter.core.policies.order import arranged
from themis_arbiter.core.policies.owed import owed_a_lease
from themis_arbiter.core.policies.record import in_order_decision, order_record
from themis_arbiter.core.rho import regrets_of
from themis_arbiter.core.settings import Settings
from themis_arbiter.core.types import JobId

RECALLING: Final = frozenset({"themis", "guard"})  # policies by whose order leases may end early
ORDER_BY = "urgent jobs by their app's fair time, then all others by the work that their app has left"
STARVING_FIRST = "starving jobs by their app's arrival, then "
OWED_FIRST = "large gangs that are owed a first lease, the longest owed first, then "


@dataclass(frozen=True, slots=True)
class Standing:
    """Everybody's regret, who is urgent, and the order that follows."""

    regrets: Mapping[JobId, float]
    urgent: frozenset[JobId]
    order: tuple[MarketJob, ...]
    starving: tuple[MarketJob, ...] = ()  # the first of `order`: those owed a first lease, and then who has waited too long
    owed_count: int = 0

    @property
    def orders(self) -> tuple[tuple[MarketJob, ...], ...]:
        """Who is served one lot after the other."""
        return (self.starving, self.order[len(self.starving) :]) if self.starving else (self.order,)

    def record(self) -> Record:
        """The order and why, as plain values."""
        owed = OWED_FIRST if self.owed_count else ""
        starving = STARVING_FIRST if len(self.starving) > self.owed_count else ""
        return order_record(owed + starving + ORDER_BY, len(self.order), self._whys)

    def _whys(self) -> Iterator[tuple[MarketJob, Mapping[str, Any]]]:
        for k, j in enumerate(self.order):
            regret, is_urgent = self.regrets[j.job_id], j.job_id in self.urgent
            before_all = {"before_all": "owed" if k < self.owed_count else "starving"} if k < len(self.starving) else {}
            yield j, {"regret": regret, "is_urgent": is_urgent, **before_all, "remaining_gpu_ms": j.remaining}


def standing(market: Market) -> Standing:
    """Where everybody stands: who waited too long; the urgent, shortest fair time first; others by their app's work left."""
    regrets = regrets_of(market)
    bar = market.settings.urgent_above
    urgent = frozenset([j for j, r in regrets.items() if r > bar])
    by_fair_time = sorted(market.apps, key=lambda a: (a.t_independent_ms, a.app_id)) if urgent else []
    by_service = sorted(market.apps, key=lambda a: (a.remaining, a.app_id))
    owed = owed_a_lease(market)
    starving = (*owed, *_starving(market, regrets, urgent.difference([j.job_id for j in owed])))
    known = {j.job_id for j in starving}
    first = [j for _, j in arranged(by_fair_time) if j.job_id in urgent and j.job_id not in known] if urgent else []
    rest = [j for _, j in arranged(by_service) if j.job_id not in urgent and j.job_id not in known]
    if market.is_recall:  # for the urgent only: nobody else takes a holder's place
        rest.sort(key=lambda j: not j.has_gpus)
    return Standing(regrets, urgent, (*starving, *first, *rest), starving, len(owed))


def _starving(market: Market, regrets: Mapping[JobId, float], urgent: Collection[JobId]) -> tuple[MarketJob, ...]:
    bar = market.settings.starving_above
    starves = {j for j in urgent if regrets[j] > bar}
    if not starves:
        return ()
    by_arrival = sorted(market.apps, key=lambda a: (a.arrival_ms, a.app_id))
    return tuple(j for _, j in arranged(by_arrival) if j.job_id in starves)


def is_recalling(settings: Settings) -> bool:
    """Whether leases may end early under these settings."""
    return (settings.recall and settings.policy in RECALLING) or is_recalling_for_all(settings)


def is_recalling_for_all(settings: Settings) -> bool:
    """Whether they may for any job that waits and comes before a holder, and not for urgent ones only."""
    return settings.srsf_recall and settings.policy == "srsf"


def waited_for(market: Market, stand: Standing) -> tuple[MarketJob, ...]:
    """Starving jobs without a gang for which free GPUs are kept back now: those given would miss the next grid round.

    All GPUs are on offer in a grid round, but for leases that were given in the last moments before it and so go on to the end
    after. A gang of most of the cluster would otherwise wait until no such lease happens to be out.
    """
    settings = market.settings
    left = settings.lease_ms - market.now_ms % settings.lease_ms
    is_between = market.is_recall or not market.supply.ending
    if is_between and settings.notice_ms < left <= settings.notice_ms + settings.restart_cost_ms:
        return tuple(j for j in stand.starving if not j.has_gpus and j.can_gain)
    return ()


class GuardPolicy:
    """See the module's text."""

    def decide(self, market: Market) -> Decision:
        """One round."""
        return self._decide(market, None)

    def decide_after(self, market: Market, before: Decision) -> Decision:
        """One round, perhaps as before."""
        return self._decide(market, before)

    def _decide(self, market: Market, before: Decision | None) -> Decision:
        stand = standing(market)
        return in_order_decision(market, stand.orders, stand.record(), stand.urgent, waited_for(market, stand), before)
