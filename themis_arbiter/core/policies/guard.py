"""The regret guard: one offer at a time, to urgent jobs first (mechanism.md, section 6).

A job's regret is the rho that its app ends with if the job is passed over once more; above 1.05 it is urgent. Urgent jobs
are served first, the app with the shortest fair time before the others, and choose their places first; everybody else by
least remaining declared work, an app's whole demand before the next.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from themis_arbiter.core.later import Record
from themis_arbiter.core.policies.base import Decision, Market, MarketJob
from themis_arbiter.core.policies.handout import HandOut, in_order
from themis_arbiter.core.policies.order import arranged
from themis_arbiter.core.policies.record import order_record, plain_decision
from themis_arbiter.core.rho import regrets_of
from themis_arbiter.core.settings import Settings
from themis_arbiter.core.types import JobId

RECALLING: Final = frozenset({"themis", "guard"})  # policies by whose order leases may end early
ORDER_BY = "urgent jobs by their app's fair time, then all others by the work that their app has left"


@dataclass(frozen=True, slots=True)
class Standing:
    """Everybody's regret, who is urgent, and the order that follows."""

    regrets: Mapping[JobId, float]
    urgent: frozenset[JobId]
    order: tuple[MarketJob, ...]

    def record(self) -> Record:
        """The order and why, as plain values."""
        return order_record(ORDER_BY, len(self.order), self._whys)

    def _whys(self) -> Iterator[tuple[MarketJob, Mapping[str, Any]]]:
        for j in self.order:
            regret, is_urgent = self.regrets[j.job_id], j.job_id in self.urgent
            yield j, {"regret": regret, "is_urgent": is_urgent, "remaining_gpu_ms": j.remaining}


def standing(market: Market) -> Standing:
    """Where everybody stands: urgent jobs, shortest fair time first; then all others by their app's remaining work."""
    regrets = regrets_of(market)
    bar = market.settings.urgent_above
    urgent = frozenset([j for j, r in regrets.items() if r > bar])
    by_fair_time = sorted(market.apps, key=lambda a: (a.t_independent_ms, a.app_id)) if urgent else []
    by_service = sorted(market.apps, key=lambda a: (a.remaining, a.app_id))
    first = [j for _, j in arranged(by_fair_time) if j.job_id in urgent] if urgent else []
    rest = [j for _, j in arranged(by_service) if j.job_id not in urgent]
    if market.is_recall:  # for the urgent only: nobody else takes a holder's place
        rest.sort(key=lambda j: not j.has_gpus)
    return Standing(regrets, urgent, (*first, *rest))


def is_recalling(settings: Settings) -> bool:
    """Whether leases may end early under these settings."""
    return settings.recall and settings.policy in RECALLING


class GuardPolicy:
    """See the module's text."""

    def decide(self, market: Market) -> Decision:
        """One round."""
        stand = standing(market)
        hand_out = HandOut(market, market.supply.gpus)
        hand_out.run(in_order(stand.order), choosers=stand.urgent)
        return plain_decision(market, hand_out, stand.record())
