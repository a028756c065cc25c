"""Gandiva (Xiao et al., OSDI 2018): placement first, migration to better places, growth into what is idle.

Who runs goes on, on its gang; a running job that is slowed where it is migrates when that repays. Those who wait are served by
how well they can be placed now, first all that lose nothing by it, then those that lose least; among equals by arrival.
Then jobs get back what they ran on beyond their gangs, and grow.

Differences: Gandiva time-slices more jobs than there are GPUs, in turns of a minute, and packs two jobs onto one GPU; leases
do neither here, so who waits waits until somebody ends. It watches throughput and tries migrations out; here slowdowns are
known by model. That is also how the Themis paper models it: the best placement scores, greedily.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from themis_arbiter.core.policies.base import Decision, Market, MarketJob
from themis_arbiter.core.policies.handout import HandOut, in_order
from themis_arbiter.core.policies.holes import Holes
from themis_arbiter.core.policies.order import arranged
from themis_arbiter.core.policies.record import decided_again, ids_of, order_record, plain_decision
from themis_arbiter.core.policies.sharing import Sharing
from themis_arbiter.core.types import JobId, Locality

ORDER_BY = "speed at the place that it found when its turn came, of the best there is (1); who runs first, then the best placed"


class GandivaPolicy:
    """See the module's text."""

    def decide(self, market: Market) -> Decision:
        """One round."""
        return self._decide(market, None)

    def decide_after(self, market: Market, before: Decision) -> Decision:
        """One round, perhaps as before."""
        return self._decide(market, before)

    def _decide(self, market: Market, before: Decision | None) -> Decision:
        jobs = [job for _, job in arranged(sorted(market.apps, key=lambda a: (a.arrival_ms, a.app_id)))]
        running = [j for j in jobs if j.has_gpus]
        orders = ids_of([running, jobs])
        if before is not None and before.orders == orders:
            # Who waits waits as it did, so it finds the same places.
            whys = order_record(ORDER_BY, len(jobs), lambda: _order(jobs, _handed_out(market, jobs)[1]))
            return decided_again(market, before, whys)
        hand_out, scores = _handed_out(market, jobs)
        whys = order_record(ORDER_BY, len(jobs), lambda: _order(jobs, scores))
        return replace(plain_decision(market, hand_out, whys), orders=orders)


def _handed_out(market: Market, jobs: Sequence[MarketJob]) -> tuple[HandOut, dict[JobId, float]]:
    """The round, and the score of each waiting job that found a place; `jobs` by arrival."""
    hand_out = HandOut(market, market.supply.gpus)
    hand_out.run(in_order([replace(j, wanted=min(j.wanted, j.gang)) for j in jobs if j.has_gpus]))
    scores = place_best_first(market, hand_out, [j for j in jobs if not j.has_gpus])
    hand_out.run(in_order(jobs))
    return hand_out, scores


def _order(jobs: Sequence[MarketJob], scores: Mapping[JobId, float]) -> Iterator[tuple[MarketJob, dict[str, float]]]:
    """Who runs, then who waits, the best placed first."""
    for job in sorted(jobs, key=lambda j: (not j.has_gpus, 0.0 if j.has_gpus else -scores.get(j.job_id, 0.0))):
        yield job, {"value": 1.0 if job.has_gpus else scores.get(job.job_id, 0.0)}


def place_best_first(market: Market, hand_out: HandOut, waiting: list[MarketJob]) -> dict[JobId, float]:
    """Place gangs, those first that lose nothing where they come to lie; the score of each that found a place."""
    scores: dict[JobId, float] = {}
    blank = Sharing(market, hand_out.free)
    steps = {k: step for k, job in enumerate(waiting) if 0 < (step := blank.step(job)) <= blank.room_for(job)}
    if not steps:  # so it is in most rounds of a full cluster
        return scores
    holes = Holes(market.supply, hand_out.free, market.settings.slowdowns)
    offers = [(score, k, level) for k in steps for score, level in score_levels(market, waiting[k])]
    for score, k, level in sorted(offers, key=lambda o: (-o[0], o[1])):
        job, step = waiting[k], steps[k]
        if job.job_id in scores or step > holes.count:
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
