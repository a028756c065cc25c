"""The paper to the letter: offers to the worst-off 1-f of the apps, partial allocation, leftovers at random.

Its rho is measured against its own T_id = N_avg * work / min(GPUs, the app's demand) (paper, 4.3), with which nearly every app
looks well off: kept here as it is, for comparison (policy-study.md, section 3). Where it is silent or could be read otherwise,
settings (`PaperRules`) say how.
"""

from collections.abc import Collection
from dataclasses import replace
from hashlib import blake2b
from math import ceil

from themis_arbiter.core.auction.bid import WEIGHT_MAX
from themis_arbiter.core.later import Later
from themis_arbiter.core.policies.auctioneer import AuctionPolicy, Call
from themis_arbiter.core.policies.base import Market, MarketApp, MarketJob
from themis_arbiter.core.policies.order import arranged
from themis_arbiter.core.rho import Allocation, rho_of, time_left
from themis_arbiter.core.settings import Filter, Leftover, Settings, Tie, TimeAlone
from themis_arbiter.core.topology import Topology
from themis_arbiter.core.types import AppId
from themis_arbiter.core.value import changed

ORDER_BY = "the app's rho as it is now, by the paper's T_id, the worst first; the first 1-f of them bid"


class PaperPolicy(AuctionPolicy):
    """See the module's text."""

    def __init__(self) -> None:
        self._unserved: tuple[Topology | None, Settings | None, dict[AppId, tuple[MarketApp, float]]] = (None, None, {})

    def call(self, market: Market) -> Call:
        """The worst-off bid."""
        rules = market.settings.paper
        left_ms = self._left_ms(market)
        if rules.t_id is TimeAlone.PAPER:
            market = replace(market, apps=tuple([with_paper_t_id(market, a) for a in market.apps]))
        wanting = [a for a in market.apps if a.app_id in left_ms]
        rho = {a.app_id: rho_of(market, a, left_ms[a.app_id]) for a in wanting}
        drawn = {a.app_id: draw(market, a.app_id) if rules.tie is Tie.RANDOM else b"" for a in wanting}
        worst_first = sorted(wanting, key=lambda a: (-rho[a.app_id], drawn[a.app_id], a.app_id))
        count = max(1, ceil((1.0 - market.settings.fairness_knob) * len(wanting) - 1e-9))
        if rules.filter is Filter.ADAPTIVE:
            count = max(count, sum(r > 1.0 for r in rho.values()))
        bidders = sorted(worst_first[:count], key=lambda a: a.app_id)
        return Call(
            market=market,
            bidders=tuple(bidders),
            rest_orders=tuple(leftover_orders(market, wanting, {a.app_id for a in bidders})),
            rounding=rules.rounding,
            lot=f"{market.round_no}/rounding",
            weights={a.app_id: aged(market, a) for a in bidders} if rules.aging else {},
            record={
                "order_by": ORDER_BY,
                "order": Later(lambda: [{"app_id": a.app_id, "rho": rho[a.app_id]} for a in worst_first]),
            },
        )

    def _left_ms(self, market: Market) -> dict[AppId, float]:
        """Time that apps which want something have left with what they have now, GPUs on offer that are their own counted in.

        Of those that have nothing it is the same as long as they are the same value.
        """
        topology, settings, known = self._unserved
        if topology is not market.supply.topology or settings is not market.settings:
            known = {}
        unserved: dict[AppId, tuple[MarketApp, float]] = {}
        found: dict[AppId, float] = {}
        for app in market.apps:
            before = known.get(app.app_id)
            if before is not None and before[0] is app:
                unserved[app.app_id] = before
                found[app.app_id] = before[1]
            elif any(j.can_gain for j in app.jobs):
                found[app.app_id] = time_left(market, app, _has_now(market, app))
                if not any(j.has_gpus for j in app.jobs):
                    unserved[app.app_id] = (app, found[app.app_id])
        self._unserved = (market.supply.topology, market.settings, unserved)
        return found


def _has_now(market: Market, app: MarketApp) -> Allocation:
    topology = market.supply.topology
    return {
        j.job_id: (
            *(len(j.held) + len(j.ending), topology.locality((*j.held, *j.ending)), False),
            market.slowest(j, (*j.held, *j.ending)),
        )
        for j in app.jobs
        if len(j.held) + len(j.ending) >= j.gang
    }


def aged(market: Market, app: MarketApp) -> float:
    """The weight of the app's bid: (1 + leases that it has lost by waiting) ** aging.

    As an app waits, a GPU changes its rho ever less, so the product of values passes a large gang over for as long as small
    bids come, and the more surely the longer it has waited (docs/policies.md, "Who waits inside an auction").
    """
    lost_ms = max(0.0, market.now_ms - app.arrival_ms - app.attained / max(1, app.demand))
    return min(WEIGHT_MAX, float((1.0 + lost_ms / market.settings.lease_ms) ** market.settings.paper.aging))


def with_paper_t_id(market: Market, app: MarketApp) -> MarketApp:
    """The app with the paper's T_id in place of the ideal fluid share's; floored likewise."""
    gpus = max(1, min(market.supply.topology.gpu_count, app.demand))
    return _with_t_independent(app, max(float(market.settings.rho_floor_ms), market.n_avg(app) * app.work / gpus))


_with_t_independent = changed(MarketApp, "t_independent_ms")


def leftover_orders(market: Market, wanting: list[MarketApp], took_part: Collection[AppId]) -> list[list[MarketJob]]:
    """Jobs in the order in which what is left is offered to them, one list after the other."""
    if market.settings.paper.leftover is Leftover.SERVICE:
        return [[j for _, j in arranged(sorted(wanting, key=lambda a: (a.remaining, a.app_id)))]]
    others = [j for a in wanting if a.app_id not in took_part for j in a.jobs]
    rest = [j for a in wanting if a.app_id in took_part for j in a.jobs]
    return [shuffled(market, others), shuffled(market, rest)]


def shuffled(market: Market, jobs: list[MarketJob]) -> list[MarketJob]:
    """The jobs in an order by chance, the same in a replay."""
    return sorted(jobs, key=lambda j: draw(market, j.job_id))


def draw(market: Market, name: str) -> bytes:
    """Chance without a generator: a hash of the round and a name."""
    return blake2b(f"{market.round_no}/{name}".encode(errors="replace")).digest()
