"""Admission control, off by default: an app that would slow those down who were let in before it waits outside.

Its terms are the ideal fluid share's (core.fluid). When an app is let in, its share then promises it a time to take. Whoever is
let in later moves its fair finish; the projected rho of an app is the time to its fair finish over the time promised. A
newcomer that would push somebody's projected rho past `admission_max_rho` waits in a queue, first come first served, until it
no longer would: no share is counted for it, and it is offered nothing. Its own wait counts in its rho as any other.

Nobody waits for ever: whoever was let in ends, and the first in the queue is let in at the latest when nobody is left whom it
could slow down. Where more wait than the queue holds, the first is let in whatever it does to others. Apps that have GPUs
are in. Who is in, since when and with which promise is stored with every batch, so before anything is granted.
"""

from bisect import bisect_left
from dataclasses import dataclass, replace
from math import ceil, inf
from typing import Final

from themis_arbiter.core.admin_state import Admitted
from themis_arbiter.core.fluid_types import share_rate
from themis_arbiter.core.kinds import as_fluid, flow, holds_gpus, is_admission_on, why_impossible
from themis_arbiter.core.owners import counted_weights
from themis_arbiter.core.state import State
from themis_arbiter.core.types import AppId, Millis
from themis_arbiter.core.workload import App, app_speeds

MOVED_MS_MIN: Final = 1.0  # a fair finish that moves by less does not move
HALVINGS: Final = 6  # of the time between two ends, in which a forecast is looked for
SHARE_MIN: Final = 1e-3  # GPUs, of a cluster that has none


@dataclass(frozen=True, slots=True)
class Projection:
    """What letting an app in would do: the largest projected rho among those that it would slow down, and whose (""): 0."""

    max_rho: float = 0.0
    whose: AppId = ""


@dataclass(frozen=True, slots=True)
class Line:
    """Who waits, in order, and about when the first is let in if nobody comes or ends otherwise than foretold."""

    order: tuple[AppId, ...] = ()
    first_ms: Millis = 0


def on_news(state: State) -> None:
    """Somebody came, ended or was let in otherwise: let in who may be."""
    if not is_admission_on(state):
        return
    _forget_ended(state)
    for app_id in [a for a, app in state.apps.items() if app.is_flowing and app.admitted_ms is None and not app.has_ended]:
        _promise(state, app_id)  # it had GPUs
    if state.is_admission_due:
        state.is_admission_due = False
        review(state)


def review(state: State) -> None:
    """Let in the first in the queue as long as it may be."""
    if not is_admission_on(state):
        return
    for app_id in queue(state):
        is_full = len(state.queued) > state.settings.admission_queue_max
        if not is_full and project(state, app_id, state.now_ms).max_rho > state.settings.admission_max_rho:
            return
        state.queued.pop(app_id)
        flow(state, app_id, state.now_ms)
        _promise(state, app_id)
        state.want_round()


def queue(state: State) -> list[AppId]:
    """Who waits, in order; without those that the cluster could not serve as it is."""
    order = sorted(state.queued, key=lambda a: (state.apps[a].arrival_ms, a))
    return [a for a in order if not all(why_impossible(state, j) for j in state.apps[a].job_ids if state.is_live(j))]


def project(state: State, app_id: AppId, at_ms: Millis) -> Projection:
    """What letting the app in at `at_ms` would do to those who are in."""
    now = state.fluid.fair_finishes()
    newcomer = state.apps[app_id]
    then = state.fluid.fair_finishes_with(as_fluid(state, newcomer, at_ms, *state.app_shape(newcomer)))
    worst = Projection()
    for other in state.admin.admitted:
        app = state.apps.get(other.app_id)
        if app is None or not app.is_flowing or then.get(other.app_id, 0.0) < now.get(other.app_id, 0.0) + MOVED_MS_MIN:
            continue
        # More work than when it was let in is its own doing: it stretches what was promised.
        promised = max(state.settings.rho_floor_ms, other.promised_ms * max(1.0, app.told_work / other.work))
        rho = (then[other.app_id] - other.admitted_ms) / promised
        if rho > worst.max_rho:
            worst = Projection(rho, other.app_id)
    return worst


def line(state: State, now_ms: Millis) -> Line:
    """The queue as people may see it."""
    order = tuple(queue(state)) if state.queued else ()
    return Line(order, earliest(state, order[0], now_ms)) if order else Line()


def earliest(state: State, app_id: AppId, now_ms: Millis) -> Millis:
    """About when the app could be let in, were it the first: time only brings that nearer, as those who are in get done."""
    bound = state.settings.admission_max_rho

    def may(at_ms: float) -> bool:
        return project(state, app_id, int(at_ms)).max_rho <= bound

    inside = {a.app_id for a in state.admin.admitted}
    ends = sorted(t for a, t in state.fluid.fair_finishes().items() if a in inside and now_ms < t < inf)
    times = [float(now_ms), *ends]
    k = bisect_left(times, True, hi=len(times) - 1, key=may)
    if k == 0:
        return now_ms
    low, high = times[k - 1], times[k] + 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if may(middle) else (middle, high)
    return ceil(high)


def t_independent_ms(state: State, app: App) -> float:
    """About the time that it would be promised: of its share by weight, its owner's too, beside those who are in."""
    work, parallelism = state.app_shape(app)
    inside = [a.app_id for a in state.admin.admitted if a.app_id in state.live_jobs and a.app_id != app.app_id]
    counted = counted_weights(state, (*inside, app.app_id))
    speeds = app_speeds(state.app_jobs(app), state.topology)
    types = state.topology.gpus_by_type if speeds else (("", state.topology.gpu_count),)
    rate = share_rate(speeds, types, counted[app.app_id], sum(counted.values()), parallelism)
    return max(float(state.settings.rho_floor_ms), work / max(SHARE_MIN, rate))


def _promise(state: State, app_id: AppId) -> None:
    """Write down that the app is in, and what its share promises it now."""
    app = state.apps[app_id]
    known = {a.app_id: a for a in state.admin.admitted}
    if app_id in known:  # from before this arbiter started
        state.apps[app_id] = replace(app, admitted_ms=known[app_id].admitted_ms)
        return
    since = app.admitted_ms if app.admitted_ms is not None else app.arrival_ms
    app = state.apps[app_id] = replace(app, admitted_ms=since)
    one = Admitted(app_id=app_id, admitted_ms=since, promised_ms=state.t_independent_ms(app), work=max(1.0, app.told_work))
    _keep(state, (*state.admin.admitted, one))
    state.remetered.update(dict.fromkeys(j for j in app.job_ids if state.is_live(j)))
    state.store_meters_soon()


def _forget_ended(state: State) -> None:
    """Who has ended is not in any more; nor, once all jobs have been named after a start, who is not named."""
    is_settled = state.rm is not None and state.rm.is_known and state.now_ms >= state.rm.trusted_ms
    over = {a.app_id for a in state.admin.admitted if a.app_id not in state.live_jobs}
    gone = {a for a in over if is_settled or a in state.apps}
    if gone:
        _keep(state, tuple(a for a in state.admin.admitted if a.app_id not in gone))
        state.is_admission_due = True
    for app_id in [a for a in state.queued if a not in state.live_jobs or holds_gpus(state, state.apps[a])]:
        del state.queued[app_id]
        state.is_admission_due = True


def _keep(state: State, admitted: tuple[Admitted, ...]) -> None:
    state.admin = replace(state.admin, admitted=tuple(sorted(admitted, key=lambda a: a.app_id)))
