"""Quincy (Isard et al., SOSP 2009): one cheapest flow over all jobs and machines decides who runs, who waits, who stays.

Each unit of flow is a GPU (`roads`). Going on on its own machine costs nothing, on another a restart and what lying further
apart costs, waiting costs more the longer the job has waited, and a gang's waiting more than growth's. So long waiters displace
others, and nobody is moved that could stay.

Differences: Quincy's tasks are single; a gang that the flow gives only a part of gets nothing, and its part goes to those who
wait at the highest cost. A flow through a rack does not hold a gang together, so it says how many, and on which of its own
machines a job stays; placing says where. Data locality is replaced by the job's own GPUs: there is no data on machines here.

While nothing happens, the round before says where: as long as as many GPUs go to each as did then, they are the same ones.
"""

from collections.abc import Iterator, Sequence

from themis_arbiter.core.later import Record
from themis_arbiter.core.policies.base import Decision, Market, MarketJob
from themis_arbiter.core.policies.handout import in_order
from themis_arbiter.core.policies.line import Crowd, Line, Waiting
from themis_arbiter.core.policies.record import order_record, planned_decision
from themis_arbiter.core.policies.roads import Tolls
from themis_arbiter.core.policies.sharing import Sharing

ORDER_BY = "minus what a GPU of its gang costs while it waits"


class QuincyPolicy:
    """See the module's text."""

    def __init__(self) -> None:
        self._tolls: Tolls | None = None
        self._waiting: Waiting | None = None
        self._last: tuple[Decision, Line, tuple[int, ...]] | None = None  # with the apps in it that have GPUs

    def decide(self, market: Market) -> Decision:
        """One round."""
        waiting: list[MarketJob] = []
        holders: list[MarketJob] = []
        at: list[int] = []
        for k, app in enumerate(market.apps):
            for job in app.in_order:
                (holders if job.ending or job.held else waiting).append(job)
            if holders and holders[-1].app_id == app.app_id:
                at.append(k)
        line = Line(market, self._waiting_of(market, waiting), Crowd(holders))
        decision = _decide(line)
        self._last = decision, line, tuple(at)
        return decision

    def decide_after(self, market: Market, before: Decision) -> Decision:
        """One round, perhaps as before."""
        if self._last is None or self._last[0] is not before:
            return self.decide(market)
        _, line, at = self._last
        holders = [job for k in at for job in market.apps[k].in_order if job.ending or job.held]
        return _decide(Line(market, line.waiting, Crowd(holders)), before)

    def _waiting_of(self, market: Market, jobs: list[MarketJob]) -> Waiting:
        """Those who wait, as before where they are the very same."""
        if self._tolls is None or not self._tolls.are_of(market):
            self._tolls, self._waiting = Tolls(market), None
        if self._waiting is None or self._waiting.listed != jobs:
            self._waiting = Waiting(jobs, self._tolls)
        return self._waiting


def _decide(line: Line, before: Decision | None = None) -> Decision:
    flow, work = line.flow
    record = Record(_order_record(line), {"work": work})
    return planned_decision(line.market, lambda sharing: _share_out(line, flow, sharing), record, before)


def _share_out(line: Line, flow: Sequence[tuple[MarketJob, int]], sharing: Sharing) -> None:
    """How many GPUs each job gets by that flow."""
    for job, count in flow:
        sharing.up_to(job, min(job.gang, len(job.held) + count))
    if sharing.room == 0:
        return
    for job, _ in line.ranked:  # parts of gangs go to whole ones before anybody grows
        if job.gang - len(job.held) <= sharing.room:
            sharing.up_to(job, job.gang)
    for job, count in flow:
        sharing.up_to(job, len(job.held) + count)
    in_order([job for job, _ in line.ranked])(sharing)


def _order_record(line: Line) -> Record:
    def whys() -> Iterator[tuple[MarketJob, dict[str, float]]]:
        flow = {job.job_id: count for job, count in line.flow[0]}
        for job, cost in line.ranked:
            yield job, {"value": -float(cost), "flow": flow.get(job.job_id, 0)}

    return order_record(ORDER_BY, len(line.waiting.jobs) + len(line.holders.jobs), whys)
