"""What admins may do to a running arbiter. Each request is answered once, and the answer is the audit record.

What an admin has set outlives the arbiter (core.admin_state).
"""

import json
from dataclasses import replace
from math import isfinite
from typing import Final

from themis_arbiter.core.effects import AdminAnswered
from themis_arbiter.core.events import AdminRequested, AdminVerb
from themis_arbiter.core.lease import Cause, Lease, LeaseState
from themis_arbiter.core.leasing import cancel, drain
from themis_arbiter.core.observing import begin_observing, end_observing
from themis_arbiter.core.owners import counted_weights, owners_of
from themis_arbiter.core.state import State

WEIGHT_MIN: Final = 1e-6
WEIGHT_MAX: Final = 1e6
NODES_DRAINED_MAX: Final = 20_000
WEIGHTS_MAX: Final = 10_000


def on_admin(state: State, event: AdminRequested) -> None:
    """Do what is asked, or say why not."""
    before = state.admin
    try:
        text = _VERBS[event.verb](state, event)
        is_done = True
    except _RefusedError as err:
        text, is_done = str(err), False
    if state.admin != before:
        state.persist()  # every batch carries it
        state.want_round()
    state.emit(
        AdminAnswered(
            request_id=event.request_id,
            actor=event.actor,
            verb=event.verb,
            target=event.target,
            value=event.value,
            is_done=is_done,
            text=text,
        )
    )


class _RefusedError(Exception):
    """Why a request is not done, for the one who asked."""


def _pause(state: State, _event: AdminRequested) -> str:
    if state.admin.is_paused:
        raise _RefusedError("it is paused already")
    state.admin = replace(state.admin, is_paused=True)
    return "no more rounds are held; leases are renewed as they are"


def _resume(state: State, _event: AdminRequested) -> str:
    if not state.admin.is_paused:
        raise _RefusedError("it is not paused")
    state.admin = replace(state.admin, is_paused=False)
    return "rounds are held again"


def _revoke(state: State, event: AdminRequested) -> str:
    found = [x for x in state.ledger if event.target in (x.lease_id, x.app_id, x.job_id)]
    if not found:
        if event.target in state.live_jobs or state.is_live(event.target):
            raise _RefusedError(f"{event.target} holds no leases")
        raise _RefusedError(f"no live lease, app or job is called {event.target!r}; see `themis leases`")
    live = [x for x in found if x.state in (LeaseState.GRANTED, LeaseState.ACTIVE)]
    drain(state, live, state.now_ms + state.settings.notice_ms, Cause.REVOKED)
    cancel(state, [x for x in found if x not in live], Cause.REVOKED)
    _hold_off(state, found)
    wait = f"{state.settings.notice_ms / 1000:.0f} s"
    when = f"in {wait}" if state.rm is not None else f"{wait} after a ResourceManager's bridge is attached again: none is now"
    return f"{len(live)} leases end {when}; {len(found) - len(live)} were on their way out"


def _hold_off(state: State, leases: list[Lease]) -> None:
    """Whose leases an admin took is offered nothing for a lease, or the next round would give them back."""
    for job_id in sorted({x.job_id for x in leases} & state.jobs.keys()):
        job = state.jobs[job_id]
        state.jobs[job_id] = replace(job, retry_ms=max(job.retry_ms, state.now_ms + state.settings.lease_ms))


def _drain_node(state: State, event: AdminRequested) -> str:
    if event.target not in state.nodes:
        raise _RefusedError(f"no node is called {event.target!r}; see `themis nodes`")
    if event.target in state.admin.drained:
        raise _RefusedError(f"{event.target} is being drained already")
    if len(state.admin.drained) >= NODES_DRAINED_MAX:
        raise _RefusedError(f"more than {NODES_DRAINED_MAX} nodes are being drained")
    state.admin = replace(state.admin, drained=tuple(sorted((*state.admin.drained, event.target))))
    if state.admin.is_observing:
        runs = sum(state.users.get(event.target, {}).values())
        return f"{event.target} has no GPUs to give; what runs on {runs} of its GPUs is not touched while observing"
    held = sum(x.node_of_gpu == event.target for x in state.ledger)
    paused = " once auctions are held again: they are paused, and leases renewed until then" if state.admin.is_paused else ""
    return f"{event.target} gets no new leases; its {held} end at their lease ends and are not renewed{paused}"


def _undrain_node(state: State, event: AdminRequested) -> str:
    if event.target not in state.admin.drained:
        raise _RefusedError(f"{event.target!r} is not being drained")
    state.admin = replace(state.admin, drained=tuple(n for n in state.admin.drained if n != event.target))
    return f"{event.target} gets leases again"


def _set_weight(state: State, event: AdminRequested) -> str:
    app = state.apps.get(event.target)
    if app is None or app.has_ended:
        raise _RefusedError(_why_no_weight(state, event.target))
    if not (isfinite(event.value) and WEIGHT_MIN <= event.value <= WEIGHT_MAX):
        raise _RefusedError(f"a weight lies between {WEIGHT_MIN:g} and {WEIGHT_MAX:g}: {event.value!r}")
    weights = {**dict(state.admin.weights), event.target: event.value}
    if len(weights) > WEIGHTS_MAX:
        raise _RefusedError(f"more than {WEIGHTS_MAX} apps have a weight of their own")
    before = counted_weights(state)
    state.admin = replace(state.admin, weights=tuple(sorted(weights.items())))
    state.apps[event.target] = replace(app, weight=event.value)
    state.fluid.reweigh(event.target, event.value, owners_of(state.settings, app), state.now_ms)
    if event.value == app.weight:
        return f"the weight of {event.target} is {event.value:g}, as it was; tags do not change it any more"
    text = f"the weight of {event.target} is {event.value:g} instead of {app.weight:g}, from now on"
    if event.target in before and before == counted_weights(state):
        owner = owners_of(state.settings, app)[-1][0]
        text += f"; that changes nothing yet, since no other live app draws on the share of {owner!r}"
    return text


def _why_no_weight(state: State, target: str) -> str:
    """Of something that is no live app, what to do instead."""
    job = state.jobs.get(target)
    if job is not None and state.is_live(target):
        return f"{target!r} is a job of the app {job.report.app_id!r}, and weights are apps': name that one"
    for app_id in state.live_jobs:
        app = state.apps[app_id]
        for kind, name in (("users", app.user), ("queues", app.queue)):
            if name == target:
                advice = f"{kind} have theirs in the arbiter's file: weight in [{kind}.{json.dumps(target)}]"
                return f"no live app is called {target!r}, but one of the {kind} is: {advice}"
    return f"no live app is called {target!r}; see `themis apps`"


def _observe_only(state: State, event: AdminRequested) -> str:
    wants = event.value != 0.0
    if wants == state.admin.is_observing:
        raise _RefusedError("it looks on only already" if wants else "it leases already")
    state.admin = replace(state.admin, is_observing=wants)
    if wants:
        begin_observing(state)
        return "all leases are given up without touching what runs; decisions are recorded only"
    end_observing(state)
    return "what runs is adopted, and rounds lease GPUs again"


_VERBS: Final = {
    AdminVerb.PAUSE: _pause,
    AdminVerb.RESUME: _resume,
    AdminVerb.REVOKE: _revoke,
    AdminVerb.DRAIN: _drain_node,
    AdminVerb.UNDRAIN: _undrain_node,
    AdminVerb.SET_WEIGHT: _set_weight,
    AdminVerb.OBSERVE_ONLY: _observe_only,
}
