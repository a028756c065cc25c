"""The ideal fluid share: what finish-time fairness is measured against (mechanism.md, section 5).

At every instant the cluster's GPUs are shared max-min fairly by weight among the apps that have arrived and are not done
*in the fluid model*, no app above its useful parallelism; no slowdown, no restarts, GPUs divisible. An app's fair finish is
when its fluid work is gone. It hangs on arrivals and declared work only, never on what the scheduler did.

The model is advanced in time as events come, so its size is that of the apps still in it. Times are milliseconds; inside
they are floats, because rates are.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from themis_arbiter.core.types import AppId, CoreError, GpuMillis, Millis

DONE_SHARE = 1e-9  # of an app's work: what is left below this is rounding, not work


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


class FluidShare:
    """The running model; only `core.state` owns one."""

    def __init__(self) -> None:
        self._now = 0.0
        self._gpus = 0.0
        self._apps: dict[AppId, FluidApp] = {}
        self._finished: dict[AppId, float] = {}

    def set_gpus(self, gpus: float, now_ms: Millis) -> None:
        """From `now_ms` on the cluster has `gpus` GPUs."""
        self.advance(now_ms)
        self._gpus = max(0.0, gpus)

    def join(self, app: FluidApp, now_ms: Millis) -> None:
        """An app arrives. Errors: CoreError where its numbers make no sense."""
        if not (app.work > 0 and app.parallelism > 0 and app.weight > 0):
            raise CoreError(f"app {app.app_id}: work, parallelism and weight must be above 0: {app}")
        self.advance(now_ms)
        self._finished.pop(app.app_id, None)
        self._apps[app.app_id] = app

    def revise(self, app_id: AppId, work: GpuMillis, parallelism: float, weight: float, now_ms: Millis) -> None:
        """The app's declared work, parallelism or weight is another from now on; one that had finished re-enters."""
        self.advance(now_ms)
        app = self._apps.get(app_id)
        if app is None:
            return
        extra = work - app.work
        left = app.left + extra
        self._apps[app_id] = replace(app, work=work, left=max(0.0, left), parallelism=parallelism, weight=weight)
        if left > DONE_SHARE * work:
            self._finished.pop(app_id, None)
        elif app_id not in self._finished:
            self._finished[app_id] = self._now

    def forget(self, app_id: AppId) -> None:
        """Drop an app whose fair finish nobody will ask for again; one still flowing keeps its share until it is done."""
        if app_id in self._finished:
            self._finished.pop(app_id)
            self._apps.pop(app_id, None)

    def is_flowing(self, app_id: AppId) -> bool:
        """Whether the app still has fluid work."""
        return app_id in self._apps and app_id not in self._finished

    def advance(self, now_ms: Millis) -> None:
        """Let the fluid run to `now_ms`; time never goes back (an earlier instant changes nothing)."""
        self._apps, self._finished, self._now = self._run(self._apps, self._finished, self._now, float(now_ms))

    def fair_finishes(self) -> Mapping[AppId, float]:
        """Fair finish of every app in the model, in ms: past ones as they were, others if nobody arrives any more."""
        return self._run(self._apps, self._finished, self._now, float("inf"))[1]

    def _run(
        self, apps: dict[AppId, FluidApp], finished: dict[AppId, float], start: float, until: float
    ) -> tuple[dict[AppId, FluidApp], dict[AppId, float], float]:
        """The model from `start` to `until`, as new values; each turn of the loop ends an app or the time."""
        apps, finished, now = dict(apps), dict(finished), start
        while True:
            live = [a for a in apps.values() if a.app_id not in finished]
            rates = fair_rates(live, self._gpus)
            moving = [(a.left / rates[a.app_id], a.app_id) for a in live if rates[a.app_id] > 0]
            step = min(moving)[0] if moving else float("inf")
            step = min(step, until - now)
            if step == float("inf") or (not live and until == float("inf")):
                # Nothing moves for ever: no GPUs, or nobody there. Those left over never finish.
                return apps, finished | {a.app_id: float("inf") for a in live}, now
            if step <= 0 and now >= until:
                return apps, finished, max(now, start)
            now += step
            for a in live:
                left = a.left - rates[a.app_id] * step
                apps[a.app_id] = replace(a, left=max(0.0, left))
                if left <= DONE_SHARE * a.work:
                    finished[a.app_id] = now
