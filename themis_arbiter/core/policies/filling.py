"""Policies that give step after step where it gains most: drf, optimus, slaq (docs/policies.md compares them).

A job's first step makes its gang, later ones add a unit. All three serve every gang that finds room before any job grows
beyond its gang, as the papers give everybody the least it can run on first.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from heapq import heapify, heappop, heappush
from typing import ClassVar, Final

from themis_arbiter.core.later import Record
from themis_arbiter.core.policies.base import Decision, Market, MarketApp, MarketJob
from themis_arbiter.core.policies.handout import HandOut
from themis_arbiter.core.policies.order import arranged
from themis_arbiter.core.policies.placing import best_speed
from themis_arbiter.core.policies.record import order_record, plain_decision, planned_decision
from themis_arbiter.core.policies.sharing import Key, Sharing, Steps, fill, first_steps
from themis_arbiter.core.types import AppId, GpuMillis, JobId, LossCurve

# Loss over progress p where the trace has no curve: falls from 1 to a tenth (policy-study.md), steeply at first.
SYNTHETIC_LOSS: Final = (1.0, 9.0, 0.0)
EPOCH_LEASES: Final = 12  # SLAQ's epochs are seconds for jobs of minutes; here jobs take hours, and a move a restart
FALLS_KEPT_MAX: Final = 1 << 12  # falls of losses that are kept, a hundred bytes or two each


class GainPolicy(ABC):
    """Steps in order of `gain` for each GPU, gangs before growth, ties by arrival."""

    order_by: ClassVar[str]

    @abstractmethod
    def gain(self, market: Market, job: MarketJob, has: int, step: int) -> float:
        """What `step` more GPUs, on top of `has`, bring; at least 0."""

    def decide(self, market: Market) -> Decision:
        """One round."""
        jobs = _by_arrival(market)
        first = first_steps(Sharing(market, market.supply.gpus), jobs, self._key(market))
        hand_out = HandOut(market, market.supply.gpus)
        hand_out.run(lambda sharing: fill(sharing, jobs, self._key(market), first))
        return plain_decision(market, hand_out, self._record(jobs, len(first), lambda: first))

    def _key(self, market: Market) -> Callable[[MarketJob, int, int], Key]:
        def key(job: MarketJob, has: int, step: int) -> Key:
            return (float(has >= job.gang), -self.gain(market, job, has, step) / step)

        return key

    def _record(self, jobs: Sequence[MarketJob], length: int, steps: Callable[[], Steps]) -> Record:
        """The order of the first steps."""

        def whys() -> Iterator[tuple[MarketJob, dict[str, float]]]:
            for key, at in sorted(steps()):
                yield jobs[at], {"value": -key[1]}

        return order_record(self.order_by, length, whys)


def _by_arrival(market: Market) -> list[MarketJob]:
    apps = sorted(market.apps, key=lambda a: (a.arrival_ms, a.app_id))
    return [job for app in apps for job in app.in_order]


class OptimusPolicy(GainPolicy):
    """Optimus (Peng et al., EuroSys 2018): the next GPUs go where they shorten completion most, relative to what it was.

    Completion time is remaining work over speed, of a job that waits a lease later. Optimus fits both by itself from loss
    curves and a model of parameter servers; here they are declared, metered, and measured as slowdowns. It weighs by
    dominant share; here that is the GPU count.
    """

    order_by = "how much of its completion time its next GPUs would save, for each GPU"

    def gain(self, market: Market, job: MarketJob, has: int, step: int) -> float:
        """The share of completion time saved."""
        after = job.remaining / best_speed(market, job, has + step)
        before = job.remaining / best_speed(market, job, has) if has >= job.gang else market.settings.lease_ms + after
        return max(0.0, 1.0 - after / before)


class SlaqPolicy(GainPolicy):
    """SLAQ (Zhang et al., SoCC 2017): the next GPUs go where the loss falls most until the next lease end.

    As in the paper, who runs keeps the least that it runs on until an epoch ends, and loss counts as a share of the job's whole
    fall. It is the trace's curve, else 1 / (1 + 9 p) over the progress p, the same for every job, which makes SLAQ prefer jobs
    that have just begun, whatever their model.
    """

    order_by = "how much its loss would fall in a lease by its next GPUs, for each GPU"

    def decide(self, market: Market) -> Decision:
        """One round."""
        return super().decide(market) if _is_epoch_end(market) else self._go_on(market, None)

    def decide_after(self, market: Market, before: Decision) -> Decision:
        """One round, perhaps as before."""
        return super().decide(market) if _is_epoch_end(market) else self._go_on(market, before)

    def _go_on(self, market: Market, before: Decision | None) -> Decision:
        """Who runs keeps its gang; all else goes where the loss falls most."""
        jobs, key = _by_arrival(market), self._key(market)
        blank = Sharing(market, market.supply.gpus)
        length = before.record["order_length"] if before is not None else sum([blank.step(job) > 0 for job in jobs])

        def plan(sharing: Sharing) -> None:
            for job in jobs:
                if job.has_gpus:
                    sharing.up_to(job, job.gang)
            fill(sharing, jobs, key)

        return planned_decision(market, plan, self._record(jobs, length, lambda: first_steps(blank, jobs, key)), before)

    def gain(self, market: Market, job: MarketJob, has: int, step: int) -> float:
        """The share of the whole fall of the loss that a lease on the GPUs adds."""
        lease_ms, done = market.settings.lease_ms, job.done
        before = done + (lease_ms * best_speed(market, job, has) if has >= job.gang else 0.0)
        after = done + lease_ms * best_speed(market, job, has + step)
        return loss_fall(job.loss_curve or SYNTHETIC_LOSS, done + job.remaining, before, after)


def _is_epoch_end(market: Market) -> bool:
    """Whether the grid end that this round is for, or the next one, ends an epoch."""
    return -(-market.now_ms // market.settings.lease_ms) % EPOCH_LEASES == 0


@lru_cache(FALLS_KEPT_MAX)  # of jobs that wait it is asked in every round
def loss_fall(curve: LossCurve, total: GpuMillis, before: GpuMillis, after: GpuMillis) -> float:
    """How much of its whole fall a loss does between so much work done and so much."""
    a, b, c = curve

    def loss(progress: float) -> float:
        return a / (1.0 + b * min(1.0, progress)) + c

    whole = loss(0.0) - loss(1.0)
    return max(0.0, (loss(before / total) - loss(after / total)) / whole) if whole > 0 else 0.0


class DrfPolicy:
    """Dominant resource fairness (Ghodsi et al., NSDI 2011): the next gang goes to the app with the least dominant share.

    A share is of GPUs, and of memory and CPU where the job says what its containers have and the cluster what it has; the
    largest counts, for the app's weight. Instantaneous: what an app had before counts for nothing, which is why long waits
    of large gangs are not made up for. In the app, gangs before growth, jobs that have had most first.
    """

    order_by = "dominant share of its app by what it keeps in any case, for its weight"

    def decide(self, market: Market) -> Decision:
        """One round."""
        hand_out = HandOut(market, market.supply.gpus)
        hand_out.run(lambda sharing: fill_fairly(market, sharing))
        length = sum(len(app.jobs) for app in market.apps)
        return plain_decision(market, hand_out, order_record(self.order_by, length, lambda: _by_share(market)))


def _by_share(market: Market) -> Iterator[tuple[MarketJob, dict[str, float]]]:
    """All jobs, those of the app that keeps the least share first."""
    nothing = Sharing(market, ())
    order = [(dominant_share(market, nothing, app), app, job) for app, job in arranged(market.apps)]
    order.sort(key=lambda o: (o[0], o[1].arrival_ms, o[1].app_id))
    for share, _, job in order:
        yield job, {"value": share}


def fill_fairly(market: Market, sharing: Sharing) -> None:
    """Max-min fair by dominant share: steps to the app that has the least, as long as there is room."""
    queues = {app.app_id: _Steps(app) for app in market.apps}
    apps = {app.app_id: app for app in market.apps}
    heap = [(dominant_share(market, sharing, app), app.arrival_ms, app.app_id) for app in market.apps]
    heapify(heap)
    while heap and sharing.room:
        *_, app_id = heappop(heap)
        job = queues[app_id].next(sharing)
        if job is not None:
            sharing.give(job, sharing.step(job))
            app = apps[app_id]
            heappush(heap, (dominant_share(market, sharing, app), app.arrival_ms, app_id))


def by_seniority(app: MarketApp) -> list[MarketJob]:
    """The app's jobs, those first that have had most: an order that does not change by what is given."""
    return sorted(app.jobs, key=lambda j: (-j.attained, -j.remaining, j.job_id))


class _Steps:
    """An app's jobs, whose turn is next: gangs before growth; who finds no room is passed by for good."""

    def __init__(self, app: MarketApp) -> None:
        self._jobs = by_seniority(app)
        self._at = 0
        self._is_growing = False

    def next(self, sharing: Sharing) -> MarketJob | None:
        """The next job with a step that there is room for."""
        while True:
            while self._at < len(self._jobs):
                job = self._jobs[self._at]
                is_begun = sharing.has(job) >= job.gang
                if 0 < sharing.step(job) <= sharing.room_for(job) and (self._is_growing or not is_begun):
                    return job
                self._at += 1
            if self._is_growing:
                return None
            self._at, self._is_growing = 0, True


def dominant_share(market: Market, sharing: Sharing, app: MarketApp) -> float:
    """The largest share of any resource that the app has by now, for its weight."""
    gpus = memory_mb = vcores = 0
    for job in app.jobs:
        has = sharing.has(job)
        gpus += has
        memory_mb += has // job.unit * job.memory_mb
        vcores += has // job.unit * job.vcores
    shares = [gpus / max(1, market.supply.topology.gpu_count)]
    shares += [used / total for used, total in ((memory_mb, market.memory_mb), (vcores, market.vcores)) if total > 0]
    return max(shares) / app.weight


def fair_counts(market: Market) -> dict[AppId, dict[JobId, int]]:
    """GPUs of the supply that every job would get if the round were shared fairly by `fill_fairly`."""
    sharing = Sharing(market, market.supply.gpus)
    fill_fairly(market, sharing)
    return {app.app_id: {j.job_id: sharing.shares.get(j.job_id, 0) for j in app.jobs} for app in market.apps}
