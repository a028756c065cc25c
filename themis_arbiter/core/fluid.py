"""The ideal fluid share: what finish-time fairness is measured against (mechanism.md, section 5).

At every instant the cluster's GPUs are shared max-min fairly by weight among the apps that have arrived and are not done
*in the fluid model*, no app above its useful parallelism; no slowdown, no restarts, GPUs divisible. An app's fair finish is
when its fluid work is gone. It hangs on arrivals and declared work only, never on what the scheduler did.

News comes late: a YARN application is submitted seconds before its master first asks for GPUs. So the last `rewind_ms` of
inputs are kept beside the state before them, and a late arrival is put where it belongs in time. Older inputs are folded
into the state, so the model's size is that of the apps still in it. Times are milliseconds; inside they are floats.
"""

from bisect import insort
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Final

from themis_arbiter.core.types import AppId, CoreError, GpuMillis, Millis

DONE_SHARE: Final = 1e-9  # of an app's work: what is left below this is rounding, not work
REWIND_MS: Final = 60_000  # how late an arrival may become known and still count from its own time


@dataclass(frozen=True, slots=True, kw_only=True)
class FluidApp:
    """An app in the model: `parallelism` is the most GPUs it can use at once, over its whole life (work / longest)."""

    app_id: AppId
    arrival_ms: Millis
    work: GpuMillis
    left: GpuMillis
    parallelism: float
    weight: float = 1.0


def fair_rates(apps: list[FluidApp], gpus: float) -> dict[AppId, float]:
    """Weighted max-min share of `gpus` by water-filling: tightest caps first; GPUs for each app."""
    order = sorted(apps, key=lambda a: (a.parallelism / a.weight, a.app_id))
    # Weights are summed from the tail, so that the last share is not what cancellation has left over.
    tails = [0.0]
    for app in reversed(order):
        tails.append(tails[-1] + app.weight)
    room, rates = gpus, {}
    for k, app in enumerate(order):
        rates[app.app_id] = min(app.parallelism, room * (app.weight / tails[len(order) - k]))
        room = max(0.0, room - rates[app.app_id])
    return rates


@dataclass(frozen=True, slots=True)
class _Input:
    """Something that changes the model at an instant; equal instants in the order in which they were told."""

    at: float
    serial: int
    gpus: float | None = None
    join: FluidApp | None = None
    extra: tuple[AppId, GpuMillis] | None = None
    weight: tuple[AppId, float] | None = None

    def __lt__(self, other: "_Input") -> bool:
        return (self.at, self.serial) < (other.at, other.serial)


@dataclass(frozen=True, slots=True)
class _Flow:
    """The model at an instant. Apps in `finished` keep their record until they are forgotten."""

    now: float = 0.0
    gpus: float = 0.0
    apps: Mapping[AppId, FluidApp] = field(default_factory=dict)
    finished: Mapping[AppId, float] = field(default_factory=dict)

    def run(self, until: float) -> "_Flow":
        """The model at `until`, if nothing is told before; each turn of the loop ends an app or the time."""
        apps, finished, now = dict(self.apps), dict(self.finished), self.now
        while now < until:
            live = [a for a in apps.values() if a.app_id not in finished]
            rates = fair_rates(live, self.gpus)
            step = min((a.left / rates[a.app_id] for a in live if rates[a.app_id] > 0), default=inf)
            step = min(step, until - now)
            if step == inf:  # nothing moves for ever: nobody is there, or no GPU
                return _Flow(now, self.gpus, apps, finished | {a.app_id: inf for a in live})
            now += step
            for a in live:
                left = a.left - rates[a.app_id] * step
                apps[a.app_id] = replace(a, left=max(0.0, left))
                if left <= DONE_SHARE * a.work:
                    finished[a.app_id] = now
        return _Flow(max(now, self.now), self.gpus, apps, finished)

    def told(self, news: _Input) -> "_Flow":
        """The model after one input."""
        flow = self.run(news.at)
        if news.gpus is not None:
            return replace(flow, gpus=news.gpus)
        if news.join is not None:
            return replace(flow, apps={**flow.apps, news.join.app_id: news.join})
        if news.weight is not None:
            app_id, weight = news.weight
            known = flow.apps.get(app_id)
            return flow if known is None else replace(flow, apps={**flow.apps, app_id: replace(known, weight=weight)})
        assert news.extra is not None
        app_id, extra = news.extra
        app = flow.apps.get(app_id)
        if app is None:
            return flow
        app = replace(app, work=app.work + extra, left=max(0.0, app.left + extra))
        finished = dict(flow.finished)
        if app.left > DONE_SHARE * app.work:
            finished.pop(app_id, None)
        else:
            finished.setdefault(app_id, flow.now)
        return replace(flow, apps={**flow.apps, app_id: app}, finished=finished)


class FluidShare:
    """The running model; only `core.state` owns one."""

    def __init__(self, rewind_ms: Millis = REWIND_MS) -> None:
        self._rewind_ms = rewind_ms
        self._base = _Flow()
        self._inputs: list[_Input] = []
        self._serial = 0
        self._ends: Mapping[AppId, float] | None = None

    def set_gpus(self, gpus: float, at_ms: Millis) -> None:
        """From `at_ms` on the cluster has `gpus` GPUs."""
        self._tell(at_ms, gpus=max(0.0, gpus))

    def join(self, app: FluidApp) -> None:
        """An app arrives, at its `arrival_ms`. Errors: CoreError where its numbers make no sense."""
        if not (app.work > 0 and app.parallelism > 0 and app.weight > 0):
            raise CoreError(f"app {app.app_id}: work, parallelism and weight must be above 0: {app}")
        self._tell(app.arrival_ms, join=app)

    def redeclare(self, app_id: AppId, work: GpuMillis, parallelism: float, now_ms: Millis) -> None:
        """The app's work or parallelism is another than said.

        As if from its start while that can be rewound to; later, the parallelism is left and the difference in work comes
        (or goes) now: a finished app then re-enters.
        """
        for k, news in enumerate(self._inputs):
            if news.join is not None and news.join.app_id == app_id:
                app = replace(news.join, work=work, left=work, parallelism=parallelism)
                self._inputs[k] = replace(news, join=app)
                self._ends = None
                return
        known = self._now().apps.get(app_id)
        if known is not None and known.work != work:
            self._tell(now_ms, extra=(app_id, work - known.work))

    def reweigh(self, app_id: AppId, weight: float, now_ms: Millis) -> None:
        """The app's weight is another from `now_ms` on."""
        self._tell(now_ms, weight=(app_id, weight))

    def forget(self, app_id: AppId, now_ms: Millis) -> float | None:
        """Drop an app whose fair finish lies so far back that nothing can move it any more, and return that finish."""
        end = self._base.finished.get(app_id)
        if end is None or end > now_ms - self._rewind_ms:
            return None
        if any(app_id in (news.extra or news.weight or ()) for news in self._inputs):
            return None
        without = {k: v for k, v in self._base.apps.items() if k != app_id}
        finished = {k: v for k, v in self._base.finished.items() if k != app_id}
        self._base, self._ends = replace(self._base, apps=without, finished=finished), None
        return end

    def advance(self, now_ms: Millis) -> None:
        """Fold what is too old to be rewound into the state."""
        horizon = now_ms - self._rewind_ms
        while self._inputs and self._inputs[0].at <= horizon:
            self._base = self._base.told(self._inputs.pop(0))
        if horizon > self._base.now:
            self._base = self._base.run(horizon)

    def fair_finishes(self) -> Mapping[AppId, float]:
        """Fair finish of every app in the model, in ms: past ones as they were, others if nobody arrives any more."""
        if self._ends is None:
            self._ends = self._now().run(inf).finished
        return self._ends

    def _now(self) -> _Flow:
        flow = self._base
        for news in self._inputs:
            flow = flow.told(news)
        return flow

    def _tell(
        self,
        at_ms: Millis,
        *,
        gpus: float | None = None,
        join: FluidApp | None = None,
        extra: tuple[AppId, GpuMillis] | None = None,
        weight: tuple[AppId, float] | None = None,
    ) -> None:
        self._serial += 1
        self._ends = None
        at = max(float(at_ms), self._base.now)
        insort(self._inputs, _Input(at, self._serial, gpus, join, extra, weight))
