"""Gandiva (Xiao et al., OSDI 2018): placement first, migration to better places, growth into what is idle.

Who runs goes on, on its gang; a running job that is slowed where it is migrates when that repays. Those who wait are served by
how well they can be placed now, first all that lose nothing by it, then those that lose least; among equals by arrival.
Then jobs get back what they ran on beyond their gangs, and grow.

Differences: Gandiva time-slices more jobs than there are GPUs, in turns of a minute, and packs two jobs onto one GPU; leases
do neither here, so who waits waits until somebody ends. It watches throughput and tries migrations out; here slowdowns are
known by model. That is also how the Themis paper models it: the best placement scores, greedily.
"""

from dataclasses import replace

from themis_arbiter.core.policies.base import Decision, Market, MarketJob
from themis_arbiter.core.policies.handout import HandOut, in_order
from themis_arbiter.core.policies.holes import Holes
from themis_arbiter.core.policies.order import arranged
from themis_arbiter.core.policies.record import order_record, plain_decision
from themis_arbiter.core.policies.sharing import Sharing
from themis_arbiter.core.types import JobId, Locality

ORDER_BY = "speed at the place that it found when its turn came, of the best there is (1); who runs first, then the best placed"


class GandivaPolicy:
    """See the module's text."""

    def decide(self, market: Market) -> Decision:
        """One round."""
        pairs = sorted(arranged(market.apps), key=lambda p: (p[0].arrival_ms, p[0].app_id))
        jobs = [job for _, job in pairs]
        running = [j for j in jobs if j.has_gpus]
        hand_out = HandOut(market, market.supply.gpus)
        hand_out.run(in_order([replace(j, wanted=min(j.wanted, j.gang)) for j in running]))
        scores = place_best_first(market, hand_out, [j for j in jobs if not j.has_gpus])
        hand_out.run(in_order(jobs))
        order = [(j, {"value": 1.0}) for j in running]
        waiting = sorted((j for j in jobs if not j.has_gpus), key=lambda j: -scores.get(j.job_id, 0.0))
        order += [(j, {"value": scores.get(j.job_id, 0.0)}) for j in waiting]
        return plain_decision(market, hand_out, order_record(ORDER_BY, len(order), lambda: order))


def place_best_first(market: Market, hand_out: HandOut, waiting: list[MarketJob]) -> dict[JobId, float]:
    """Place gangs, those first that lose nothing where they come to lie; the score of each that found a place."""
    scores: dict[JobId, float] = {}
    holes = Holes(market.supply, hand_out.free, market.settings.slowdowns)
    offers = [(score, k, level) for k, job in enumerate(waiting) for score, level in score_levels(market, job)]
    for score, k, level in sorted(offers, key=lambda o: (-o[0], o[1])):
        job = waiting[k]
        step = Sharing(market, holes.count).step(job)
        if job.job_id in scores or not 0 < step <= holes.count:
            continue
        found = holes.find(job, step, level_max=level)
        if found is not None:
            holes.take(found)
            hand_out.give(job.job_id, found)
            scores[job.job_id] = score
    return scores


def score_levels(market: Market, job: MarketJob) -> list[tuple[float, Locality]]:
    """Scores that a gang can have, 1 the best, each with the loosest level that has it."""
    best = market.supply.topology.best_locality(job.gang)
    slowdown = market.settings.slowdowns.slowdown
    by_score = {slowdown(job.model, best) / slowdown(job.model, level): level for level in Locality if level >= best}
    return list(by_score.items())
