"""Carbyne (Grandl et al., OSDI 2016): altruism. What an app does not need now to be as fast as fair, it gives up.

Every app has its fair share of the round (dominant resource fairness). An app may finish as late as its fair finish, what the
ideal fluid share would give it. It keeps the fewest of its GPUs with which it still does, if from the next lease on it has
its fair share again; an app that is late keeps all. What is given up goes to those who are closest to completion: least
remaining work first, whole demands.

Differences: in the paper jobs are DAGs of short tasks that know their own critical path; here an app knows the work it has
left. The paper redistributes first for completion times, then packs; here placing packs.
"""

from collections.abc import Iterator
from math import ceil

from themis_arbiter.core.policies.base import Decision, Market, MarketApp, MarketJob
from themis_arbiter.core.policies.filling import by_seniority, fair_counts
from themis_arbiter.core.policies.handout import HandOut, in_order
from themis_arbiter.core.policies.order import arranged
from themis_arbiter.core.policies.record import order_record, plain_decision
from themis_arbiter.core.policies.sharing import Sharing
from themis_arbiter.core.types import JobId

ORDER_BY = "GPUs of its fair share that its app needs to finish as early as fair, then the work that its app has left"


class CarbynePolicy:
    """See the module's text."""

    def decide(self, market: Market) -> Decision:
        """One round."""
        fair = fair_counts(market)
        needs = {app.app_id: need(market, app, sum(fair[app.app_id].values())) for app in market.apps}
        by_service = sorted(market.apps, key=lambda a: (a.remaining, a.arrival_ms, a.app_id))
        jobs = [job for _, job in arranged(by_service)]

        def plan(sharing: Sharing) -> None:
            for app in by_service:
                keep_needed(sharing, app, fair[app.app_id], needs[app.app_id])
            in_order(jobs)(sharing)

        hand_out = HandOut(market, market.supply.gpus)
        hand_out.run(plan)

        def whys() -> Iterator[tuple[MarketJob, dict[str, float]]]:
            for j in jobs:
                yield j, {"value": needs[j.app_id], "fair": fair[j.app_id][j.job_id]}

        return plain_decision(market, hand_out, order_record(ORDER_BY, len(jobs), whys))


def need(market: Market, app: MarketApp, fair_gpus: int) -> int:
    """The fewest GPUs, of `fair_gpus` on offer to it, that it needs in this lease to finish no later than is fair."""
    held = sum(len(j.held) for j in app.jobs)
    if fair_gpus == 0:
        return 0
    lease_ms = market.settings.lease_ms
    restart_ms = max((j.restart_ms for j in app.jobs if j.has_run), default=0)
    # After this lease, and a restart to come back, it has its whole fair share until the fair finish.
    later_ms = max(0.0, app.arrival_ms + app.t_independent_ms - market.now_ms - lease_ms - restart_ms)
    lost = sum(j.lost for j in app.jobs)
    now = (app.remaining + lost - (fair_gpus + held) * later_ms) / lease_ms - held
    return min(fair_gpus, max(0, ceil(now)))


def keep_needed(sharing: Sharing, app: MarketApp, fair: dict[JobId, int], needed: int) -> None:
    """Give the app's jobs their fair shares, those first that have had most, until it has what it needs."""
    given = 0
    for job in by_seniority(app):
        if given >= needed:
            return
        before = sharing.has(job)
        sharing.up_to(job, before + fair[job.job_id])
        given += sharing.has(job) - before
