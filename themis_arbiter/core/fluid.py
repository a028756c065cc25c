"""The ideal fluid share: what finish-time fairness is measured against (mechanism.md, section 5).

At every instant the cluster's GPUs are shared max-min fairly by weight among the apps that have arrived and are not done
*in the fluid model*, no app above its useful parallelism; no slowdown, no restarts, GPUs divisible. Where apps have owners
(core.owners), these share first, none above what its apps can use together, and then its apps share what it has. An app's
fair finish is when its fluid work is gone. It hangs on arrivals and declared work only, never on what the scheduler did.

News comes late: a YARN application is submitted seconds before its master first asks for GPUs. So the last `rewind_ms` of
inputs are kept beside the state before them, and a late arrival is put where it belongs in time. Older inputs are folded
into the state, so the model's size is that of the apps still in it. Times are milliseconds; inside they are floats.
"""

from bisect import insort
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Final

from themis_arbiter.core.fluid_types import Order, Types, are_typed, orders_of, typed_rates
from themis_arbiter.core.owners import Owners
from themis_arbiter.core.types import AppId, CoreError, GpuMillis, GpuSpeeds, Millis
from themis_arbiter.core.value import changed, value

DONE_SHARE: Final = 1e-9  # of an app's work: what is left below this is rounding, not work
REWIND_MS: Final = 60_000  # how late an arrival may become known and still count from its own time


@value(frozen=True, slots=True, kw_only=True)
class FluidApp:
    """An app in the model: `parallelism` is the most GPUs it can use at once, over its whole life (work / longest)."""

    app_id: AppId
    arrival_ms: Millis
    work: GpuMillis
    left: GpuMillis
    parallelism: float
    weight: float = 1.0
    owners: Owners = ()  # all apps of a model have as many
    speeds: GpuSpeeds = ()  # by GPU type (core.gpu_speeds)


_with_left = changed(FluidApp, "left")


def fair_rates(apps: list[FluidApp], gpus: float) -> dict[AppId, float]:
    """Weighted max-min share of `gpus` by water-filling: tightest caps first; GPUs for each app."""
    order = sorted(apps, key=lambda a: (a.parallelism / a.weight, a.app_id))
    rates = _rates([a.parallelism for a in order], [a.weight for a in order], [a.owners for a in order], gpus)
    return {app.app_id: rate for app, rate in zip(order, rates, strict=True)}


def _drained(
    live: list[FluidApp], gpus: float, types: Types, now: float, until: float
) -> tuple[dict[AppId, float], dict[AppId, float], float]:
    """Let `live` flow from `now` to `until`: who ends when, what work each then has left, and the time reached.

    The inner loops of the model. Each turn of the outer one ends an app or the time; the order of filling stays as it is
    meanwhile, so apps are sorted once, and rates are `fair_rates`' by hand.
    """
    order = sorted(live, key=lambda a: (a.parallelism / a.weight, a.app_id))
    names, lefts = [a.app_id for a in order], [a.left for a in order]
    caps, weights, owners = [a.parallelism for a in order], [a.weight for a in order], [a.owners for a in order]
    done = [DONE_SHARE * a.work for a in order]
    is_typed = are_typed([a.speeds for a in order], types)
    prefers: list[Order] = orders_of([a.speeds for a in order], types) if is_typed else [[] for _ in order]
    ends: dict[AppId, float] = {}
    rest: dict[AppId, float] = {}
    while names and now < until:
        if is_typed:
            rates = typed_rates(caps, weights, owners, prefers, types)
        else:
            rates = _rates(caps, weights, owners, gpus)
        step = min((left / rate for left, rate in zip(lefts, rates, strict=True) if rate > 0), default=inf)
        step = min(step, until - now)
        if step == inf:  # nothing moves for ever: there is no GPU
            return ends | dict.fromkeys(names, inf), rest | dict(zip(names, lefts, strict=True)), now
        now += step
        lefts = [left - rate * step for left, rate in zip(lefts, rates, strict=True)]
        gone = [k for k, left in enumerate(lefts) if left <= done[k]]
        for k in reversed(gone):
            ends[names[k]], rest[names[k]] = now, max(0.0, lefts[k])
            for column in (names, lefts, caps, weights, owners, done, prefers):
                del column[k]
    return ends, rest | dict(zip(names, lefts, strict=True)), max(now, until) if until < inf else now


def _rates(caps: list[float], weights: list[float], owners: list[Owners], gpus: float, depth: int = 0) -> list[float]:
    """Rates of apps in the order of filling: by owner from the outermost in, and then by app."""
    if not owners or depth == len(owners[0]):
        return _filled(caps, weights, gpus)
    members: dict[str, list[int]] = {}
    for k, path in enumerate(owners):
        members.setdefault(path[depth][0], []).append(k)
    whole = {name: sum(caps[k] for k in ks) for name, ks in members.items()}
    weight = {name: owners[ks[0]][depth][1] for name, ks in members.items()}
    order = sorted(members, key=lambda name: (whole[name] / weight[name], name))
    shares = _filled([whole[name] for name in order], [weight[name] for name in order], gpus)
    rates = [0.0] * len(caps)
    for name, share in zip(order, shares, strict=True):
        ks = members[name]
        inner = _rates([caps[k] for k in ks], [weights[k] for k in ks], [owners[k] for k in ks], share, depth + 1)
        for k, rate in zip(ks, inner, strict=True):
            rates[k] = rate
    return rates


def _filled(caps: list[float], weights: list[float], gpus: float) -> list[float]:
    """Rates of apps in the order of filling. Weights are summed from the tail, so that the last share is no rounding."""
    tail, tails = 0.0, []
    for weight in reversed(weights):
        tail += weight
        tails.append(tail)
    room, rates = gpus, []
    for cap, weight in zip(caps, weights, strict=True):
        rate = min(cap, room * (weight / tails.pop()))
        rates.append(rate)
        room = max(0.0, room - rate)
    return rates


@dataclass(frozen=True, slots=True)
class _Input:
    """Something that changes the model at an instant; equal instants in the order in which they were told."""

    at: float
    serial: int
    gpus: float | None = None
    types: Types = ()  # of these GPUs
    join: FluidApp | None = None
    extra: tuple[AppId, GpuMillis, float, GpuSpeeds] | None = None  # more work; parallelism and speeds from then on
    share: tuple[AppId, float, Owners] | None = None

    def __lt__(self, other: "_Input") -> bool:
        return (self.at, self.serial) < (other.at, other.serial)


@dataclass(frozen=True, slots=True)
class _Flow:
    """The model at an instant. Apps in `finished` keep their record until they are forgotten."""

    now: float = 0.0
    gpus: float = 0.0
    types: Types = ()
    apps: Mapping[AppId, FluidApp] = field(default_factory=dict)
    finished: Mapping[AppId, float] = field(default_factory=dict)

    def run(self, until: float) -> "_Flow":
        """The model at `until`, if nothing is told before."""
        if until <= self.now:
            return self
        live = [a for a in self.apps.values() if a.app_id not in self.finished]
        if not live:
            return _Flow(until if until < inf else self.now, self.gpus, self.types, self.apps, self.finished)
        ends, left, now = _drained(live, self.gpus, self.types, self.now, until)
        apps = dict(self.apps)
        for app_id, rest in left.items():
            apps[app_id] = _with_left(apps[app_id], rest)
        return _Flow(now, self.gpus, self.types, apps, {**self.finished, **ends})

    def ends(self) -> dict[AppId, float]:
        """When each app's work is gone if nothing is told any more."""
        live = [a for a in self.apps.values() if a.app_id not in self.finished]
        return {**self.finished, **_drained(live, self.gpus, self.types, self.now, inf)[0]}

    def told(self, news: _Input) -> "_Flow":
        """The model after one input."""
        flow = self.run(news.at)
        if news.gpus is not None:
            return replace(flow, gpus=news.gpus, types=news.types)
        if news.join is not None:
            return replace(flow, apps={**flow.apps, news.join.app_id: news.join})
        if news.share is not None:
            app_id, weight, owners = news.share
            known = flow.apps.get(app_id)
            if known is None:
                return flow
            return replace(flow, apps={**flow.apps, app_id: replace(known, weight=weight, owners=owners)})
        assert news.extra is not None
        app_id, extra, parallelism, speeds = news.extra
        app = flow.apps.get(app_id)
        if app is None:
            return flow
        app = replace(app, work=app.work + extra, left=max(0.0, app.left + extra), parallelism=parallelism, speeds=speeds)
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
        self._base = _Flow()  # may lag behind the horizon, as far as nothing was told in between
        self._horizon = 0.0  # nothing can be told of times before it any more
        self._inputs: list[_Input] = []
        self._serial = 0
        self._ends: Mapping[AppId, float] | None = None

    def set_gpus(self, gpus: float, at_ms: Millis, types: Types = ()) -> None:
        """From `at_ms` on the cluster has `gpus` GPUs, so many of each type; () where nobody tells types apart."""
        self._tell(at_ms, gpus=max(0.0, gpus), types=types)

    def join(self, app: FluidApp) -> None:
        """An app arrives, at its `arrival_ms`. Errors: CoreError where its numbers make no sense."""
        if not (app.work > 0 and app.parallelism > 0 and app.weight > 0):
            raise CoreError(f"app {app.app_id}: work, parallelism and weight must be above 0: {app}")
        self._tell(app.arrival_ms, join=app)

    def redeclare(self, app_id: AppId, work: GpuMillis, parallelism: float, now_ms: Millis, speeds: GpuSpeeds = ()) -> None:
        """The app's work, parallelism or speeds by GPU type are others than said.

        As if from its start while that can be rewound to; later, the difference in work comes (or goes) now, and so does what
        it can use: a finished app then re-enters. A search that submits its jobs over minutes is as wide as it is in the end.
        """
        for k, news in enumerate(self._inputs):
            if news.join is not None and news.join.app_id == app_id:
                app = replace(news.join, work=work, left=work, parallelism=parallelism, speeds=speeds)
                self._inputs[k] = replace(news, join=app)
                self._ends = None
                return
        known = self._now().apps.get(app_id)
        if known is not None and (known.work, known.parallelism, known.speeds) != (work, parallelism, speeds):
            self._tell(now_ms, extra=(app_id, work - known.work, parallelism, speeds))

    def reweigh(self, app_id: AppId, weight: float, owners: Owners, now_ms: Millis) -> None:
        """The app's weight or its owners are others from `now_ms` on."""
        self._tell(now_ms, share=(app_id, weight, owners))

    def forget(self, app_id: AppId, now_ms: Millis) -> float | None:
        """Drop an app whose fair finish lies so far back that nothing can move it any more, and return that finish."""
        self._base = self._base.run(self._horizon)
        end = self._base.finished.get(app_id)
        if end is None or end > now_ms - self._rewind_ms:
            return None
        if any(app_id in (news.extra or news.share or ()) for news in self._inputs):
            return None
        without = {k: v for k, v in self._base.apps.items() if k != app_id}
        finished = {k: v for k, v in self._base.finished.items() if k != app_id}
        self._base = replace(self._base, apps=without, finished=finished)
        if self._ends is not None:  # nobody else's changes by it
            self._ends = {k: v for k, v in self._ends.items() if k != app_id}
        return end

    def advance(self, now_ms: Millis) -> None:
        """Fold what is too old to be rewound into the state."""
        self._horizon = max(self._horizon, float(now_ms - self._rewind_ms))
        while self._inputs and self._inputs[0].at <= self._horizon:
            self._base = self._base.told(self._inputs.pop(0))

    def fair_finishes(self) -> Mapping[AppId, float]:
        """Fair finish of every app in the model, in ms: past ones as they were, others if nobody arrives any more."""
        if self._ends is None:
            self._ends = self._now().ends()
        return self._ends

    def fair_finishes_with(self, app: FluidApp) -> Mapping[AppId, float]:
        """The same if `app` came too, at its `arrival_ms`, now or later."""
        flow = self._now()
        return flow.told(_Input(max(float(app.arrival_ms), flow.now), self._serial + 1, join=app)).ends()

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
        types: Types = (),
        join: FluidApp | None = None,
        extra: tuple[AppId, GpuMillis, float, GpuSpeeds] | None = None,
        share: tuple[AppId, float, Owners] | None = None,
    ) -> None:
        self._serial += 1
        self._ends = None
        at = max(float(at_ms), self._horizon)
        insort(self._inputs, _Input(at, self._serial, gpus, types, join, extra, share))
