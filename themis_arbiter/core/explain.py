"""Why an app holds what it holds and waits for what it waits for, in sentences. Pure looking."""

from collections.abc import Iterator, Mapping
from math import isfinite
from typing import Any, Final

from themis_arbiter.core import admission
from themis_arbiter.core.gpu_speeds import as_text
from themis_arbiter.core.kinds import never_rooms, on_lease_end, protected_jobs, why_impossible, work_lost_by_moving
from themis_arbiter.core.lease import Cause, Lease, LeaseState
from themis_arbiter.core.machine import Arbiter
from themis_arbiter.core.owners import counted_weights, owners_of
from themis_arbiter.core.state import State
from themis_arbiter.core.types import AppId, GpuId, JobId, Millis, NodeName, OnLeaseEnd
from themis_arbiter.core.views import AppView, NodeState
from themis_arbiter.core.views_of import app_view, nodes_of, stored_apps
from themis_arbiter.core.workload import GONE_STATUS, App, Job

BEFORE_ALL: Final = {
    "owed": "a large gang that never ran and whose share has paid for its first lease, so before all others",
    "starving": "starving, so before all who came later",
}


def explain(arbiter: Arbiter, app_id: AppId, now_ms: Millis) -> tuple[str, ...] | None:
    """The sentences about an app, by its id or one of its jobs' ids; None where neither is known."""
    state = arbiter.state
    app = state.apps.get(app_id)
    if app is None and app_id in state.jobs:  # an application's id, which is what YARN shows people
        app = state.apps.get(state.jobs[app_id].report.app_id)
    if app is None:
        return _stored(state, app_id)
    app_id = app.app_id
    now_ms = max(now_ms, state.now_ms)
    line = admission.line(state, now_ms)
    view = app_view(state, app, now_ms, line)
    has_share = isfinite(view.t_independent_ms)
    lines = [
        _fairness(view),
        (
            f"It holds {view.gpus_held} GPUs and could use {view.gpus_wanted}. Its work is "
            f"{'estimated at' if view.is_work_estimated else 'declared as'} {view.work_gpu_ms / 1000:.0f} GPU-s; "
            f"{view.attained_gpu_ms / 1000:.0f} GPU-s have been metered."
        ),
        *_weight(state, app, has_share=has_share),
        *_queued(state, app, line, now_ms),
    ]
    if app.has_ended:
        vanished = " (the ResourceManager stopped naming it)" if app.final_status == GONE_STATUS else ""
        return (*lines, f"It ended {app.final_status}{vanished}.")
    for job_id in app.job_ids:
        if state.is_live(job_id):
            lines += _of_job(state, state.jobs[job_id].at(now_ms), now_ms)
    lines += _of_rounds(state, app)
    lines += _of_arbiter(state)
    return tuple(lines)


def _stored(state: State, app_id: AppId) -> tuple[str, ...] | None:
    """Of an app, by its id or one of its jobs' ids, that only the store knows; None: nobody knows it."""
    for app in stored_apps(state):
        if app_id == app.app_id or app_id in {job.job_id for job in app.jobs}:
            return (
                (
                    f"{app.app_id} is in the lease store, and the ResourceManager has not named it since this arbiter leads: "
                    "its queue, its work and its rho are not known."
                ),
                f"It holds {app.gpus_held} GPUs; {app.attained_gpu_ms / 1000:.0f} GPU-s have been metered.",
                *_of_arbiter(state),
            )
    return None


def _fairness(view: AppView) -> str:
    head = f"{view.app_id} is {view.state.value.lower()}"
    if not isfinite(view.t_independent_ms):
        return f"{head}: it has no share of the cluster that would ever get it done, and so no rho."
    return (
        f"{head}: rho {view.rho:.2f} so far, {view.rho_forecast:.2f} at its end as things are; "
        f"alone on its share of the cluster it would take {view.t_independent_ms / 1000:.0f} s."
    )


def _weight(state: State, app: App, *, has_share: bool) -> Iterator[str]:
    if app.app_id in dict(state.admin.weights):
        yield f"Its weight is {app.weight:g}, set by an admin."
    elif app.weight != 1.0:
        yield f"Its weight is {app.weight:g}."
    part = counted_weights(state).get(app.app_id)
    owners = owners_of(state.settings, app)
    if has_share and owners and part is not None:
        whose = " in ".join(name for name, _ in reversed(owners))
        yield f"It draws on the share of {whose} with all live apps there, and so counts {part:.3g} beside the others."


def _queued(state: State, app: App, line: admission.Line, now_ms: Millis) -> Iterator[str]:
    """Why it is not let in, and when it may be."""
    if app.app_id not in line.order:
        return
    place = f"It waits to be let in, as number {line.order.index(app.app_id) + 1} of {len(line.order)}"
    bound = f"admission_max_rho = {state.settings.admission_max_rho:g}"
    seen = admission.project(state, app.app_id, now_ms)
    if seen.max_rho > state.settings.admission_max_rho:
        yield f"{place}: with it the projected rho of {seen.whose} would be {seen.max_rho:.2f}, above {bound}."
    else:
        yield f"{place}: first come first served, and those before it would push somebody's projected rho above {bound}."
    own_ms = max(line.first_ms, admission.earliest(state, app.app_id, now_ms))
    about = "in about" if app.app_id == line.order[0] else "not before"
    yield f"If nobody comes or ends otherwise than foretold it is let in {about} {max(0, own_ms - now_ms) / 1000:.0f} s."


def _of_arbiter(state: State) -> Iterator[str]:
    """What holds for everybody."""
    if state.rm is None:
        yield "No ResourceManager is attached: nothing is given or taken until one is."
    if state.admin.is_paused:
        yield "An admin has paused auctions: leases are renewed as they are and no new ones given (`themis admin resume`)."
    if state.admin.is_observing:
        yield "The arbiter looks on only (observe_only): YARN schedules as if it were not there, and no lease is given."


# -- a job


def _of_job(state: State, job: Job, now_ms: Millis) -> Iterator[str]:
    why = why_impossible(state, job.job_id)
    if why:
        yield f"{job.job_id} is not scheduled, because {why}. It is again as soon as that changes; nobody else waits for it."
    elif job.wanted < job.report.gang:
        few = f"{job.job_id} asks for {job.wanted} GPUs, fewer than its gang of {job.report.gang}"
        yield f"{few}: it is offered none until it asks for them."
    if job.report.gpu_speeds:
        yield _types(state, job)
    if job.retry_ms > now_ms:
        yield _backing_off(job, now_ms)
    yield from _kind(state, job, now_ms)
    yield from _outside_leases(state, job)
    for lease in state.ledger.of_job(job.job_id):
        yield _lease(state, lease, now_ms)
    yield from _nodes(state, job)


def _types(state: State, job: Job) -> str:
    """What it declares of GPU types, and what that means here."""
    speeds, total = state.topology.speeds(job.report.gpu_speeds), state.topology.gpu_count
    usable = total if speeds is None else speeds.usable
    return (
        f"{job.job_id} declares speeds by GPU type ({as_text(job.report.gpu_speeds)}): {usable} of the cluster's {total} GPUs "
        "are of types that it can use, and it is never given another."
    )


def _backing_off(job: Job, now_ms: Millis) -> str:
    wait = f"it is offered GPUs again in {(job.retry_ms - now_ms) / 1000:.0f} s"
    if not job.no_shows:
        return f"An admin took leases of {job.job_id} back; {wait}."
    what = "bring its gang up in time" if job.report.gang > 1 else "use what it won"
    times = "once" if job.no_shows == 1 else f"{job.no_shows} times in a row"
    return f"{job.job_id} did not {what}, {times}; {wait}. Each further time doubles the wait, one container in use ends that."


def _kind(state: State, job: Job, now_ms: Millis) -> Iterator[str]:
    """What its `on_lease_end` and the protected minimum runtime mean for it now."""
    kind = on_lease_end(state, job)
    kept = [x for x in state.kept_leases(job.job_id) if not state.ledger.is_next(x)]
    staying = [x for x in kept if not state.is_out_of_service(x.node_of_gpu)]
    protected = sum(bool(protected_jobs(state, (job.job_id,), max(x.end_ms, now_ms))) for x in staying)
    if kind is OnLeaseEnd.NEVER:
        yield (
            f"{job.job_id} must not be interrupted (on_lease_end=never): {protected} of its {len(kept)} leases are renewed "
            "without an auction while it runs, and count against its share."
        )
    elif protected:
        least = state.settings.min_runtime_ms / 1000
        yield (
            f"{job.job_id} is inside the protected minimum runtime of {least:.0f} s: {protected} of its leases are renewed at "
            "their end."
        )
    room = never_rooms(state).get(job.report.queue) if kind is OnLeaseEnd.NEVER else None
    if room is not None and job.wanted > len(kept) + room:
        cap = state.settings.queues[job.report.queue].never_gpus_max
        yield (
            f"Queue {job.report.queue} lets jobs that must not be interrupted hold {cap} GPUs together, and {room} of them are "
            f"left: {job.job_id} waits for more until others there end."
        )
    lost = work_lost_by_moving(state, job)
    if lost > 0 and kind is OnLeaseEnd.RESTART:
        yield (
            f"{job.job_id} cannot checkpoint (on_lease_end=restart): a change of its GPUs would lose {lost / 1000:.0f} GPU-s "
            "of work, which its bids count as restart cost."
        )
    if job.begun_at > 0:
        yield f"{job.job_id} has begun anew: {job.begun_at / 1000:.0f} GPU-s before that are lost."


def _outside_leases(state: State, job: Job) -> Iterator[str]:
    masters = sum(c.gpus for c in state.containers.values() if c.is_am and c.job_id == job.job_id)
    if masters:
        yield f"The master of {job.job_id} holds {masters} GPUs itself: no lease covers them, and nobody is offered them."
    leased: dict[NodeName, int] = {}
    for lease in state.ledger.of_job(job.job_id):
        if not state.ledger.is_next(lease):
            leased[lease.node_of_gpu] = leased.get(lease.node_of_gpu, 0) + 1
    over = sum(max(0, gpus - leased.get(node, 0)) for node, gpus in state.usage.get(job.job_id, {}).items())
    if over and not state.admin.is_observing:
        yield f"{job.job_id} uses {over} GPUs that no lease covers: they are adopted as its leases where nobody else has them."


def _lease(state: State, lease: Lease, now_ms: Millis) -> str:
    left = (lease.end_ms - now_ms) / 1000
    name = f"{lease.lease_id} on {lease.gpu}"
    if lease.state is LeaseState.DRAINING:
        if state.rm is None:
            told = "its holder is told, and has its notice, when a bridge is attached"
            return f"{name} is being drained ({lease.cause.value}); {told}."
        wait = max(0, state.deadlines.get(lease.lease_id, lease.end_ms) - now_ms) / 1000
        if lease.cause is Cause.RECALL:
            return f"{name} is taken early, for an urgent job that waits (recall); what still runs in {wait:.0f} s is killed."
        return f"{name} is being drained ({lease.cause.value}); what still runs in {wait:.0f} s is killed."
    if state.ledger.is_next(lease):
        return f"{lease.gpu} is promised to it ({lease.lease_id}) as soon as its present holder is gone."
    when = f"ends in {left:.0f} s" if left >= 0 else f"should have ended {-left:.0f} s ago and is held on"
    adopted = ", adopted: it ran before the arbiter knew of it" if lease.cause is Cause.ADOPTED else ""
    return f"{name} ({lease.state.value}{adopted}) {when}."


def _nodes(state: State, job: Job) -> Iterator[str]:
    """Nodes that it is on and that are in some trouble."""
    mine = {x.node_of_gpu for x in state.ledger.of_job(job.job_id)} | set(state.usage.get(job.job_id, {}))
    for node in nodes_of(state):
        if node.node not in mine:
            continue
        if node.state is NodeState.DRAINED:
            yield f"{node.node} is being drained by an admin: leases on it are {_not_renewed(state)}."
        elif node.state is NodeState.DRAINING:
            yield f"{node.node} takes no more containers, says YARN: leases on it are {_not_renewed(state)}."
        elif node.state is NodeState.LOST:
            yield f"{node.node} is not reported any more: its leases are lost unless it comes back soon."
        if node.is_oversubscribed:
            yield (
                f"{node.node} has {node.gpus_total} GPUs, {node.gpus_over} fewer than are leased or used on it: "
                "nothing there is leased until they have been given up."
            )


def _not_renewed(state: State) -> str:
    return "not renewed once auctions are held again" if state.admin.is_paused else "not renewed"


# -- the last round


def _of_rounds(state: State, app: App) -> Iterator[str]:
    if not state.rounds:
        yield "No round has been held since this arbiter started."
        return
    record = state.rounds[-1]
    yield from _last_round(record, app.app_id)
    if "would" in record:
        yield _would(record, frozenset(app.job_ids))


def _last_round(record: Mapping[str, Any], app_id: AppId) -> Iterator[str]:
    """What the last round did about the app, from its decision record."""
    head = f"Round {record['round']} ({record['kind']}, {len(record['offered'])} GPUs on offer): "
    payments = {p["app_id"]: p for p in record.get("payments", ())}
    wins = {w["app_id"]: w for w in record.get("wins", ())}
    leftover = sum(len(g) for g in record.get("leftovers", {}).get(app_id, {}).values())
    if app_id in wins:
        won = sum(len(g) for g in wins[app_id]["gpus"].values())
        text = f"{head}it bid and won {won}"
        if app_id in payments:
            p = payments[app_id]
            text += f", kept {p['kept']} (hidden payment {1 - p['share_max']:.0%})"
        yield text + "."
    elif record.get("bids"):
        yield f"{head}it was not among the bidders."
    else:
        yield f"{head}nobody bid, all was handed out in order."
    if leftover:
        yield f"It got {leftover} of what was {'left over' if record.get('bids') else 'handed out'}."
    order = [e for e in record.get("order", ()) if "job_id" in e]
    places = [k for k, e in enumerate(order) if e["app_id"] == app_id]
    if places:
        length = max(len(order), record.get("order_length", 0))
        why = _standing(record, order[places[0]])
        yield f"It stood {places[0] + 1} of {length} in the order of handing out: {why}."


def _standing(record: Mapping[str, Any], entry: Mapping[str, Any]) -> str:
    """Why a job stood where it did in an order."""
    if "regret" in entry:
        urgent = BEFORE_ALL.get(entry.get("before_all", ""), "urgent" if entry["is_urgent"] else "not urgent")
        return f"{urgent}, regret {entry['regret']:.2f} (rho if it were passed over once more)"
    return f"{record.get('order_by', 'order')}: {entry.get('value', 0):.6g}"


def _would(record: Mapping[str, Any], job_ids: frozenset[JobId]) -> str:
    """What a round that was only looked on at would have moved for these jobs."""
    would: Mapping[str, Mapping[GpuId, JobId]] = record["would"]
    count = {what: sum(job_id in job_ids for job_id in moves.values()) for what, moves in would.items()}
    return (
        f"Nothing of that round was done; leased, it would have kept {count['keep']} GPUs, got {count['get']} others and "
        f"lost {count['lose']}."
    )
