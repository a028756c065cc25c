"""The arbiter's state as people may see it. Pure looking: nothing here changes anything."""

from collections.abc import Mapping
from typing import Any

from themis_arbiter.core.lease import Lease, LeaseState
from themis_arbiter.core.machine import Arbiter
from themis_arbiter.core.state import State
from themis_arbiter.core.types import AppId, JobId, Millis, NodeName
from themis_arbiter.core.views import AppState, AppView, JobView, NodeView, StatusView
from themis_arbiter.core.workload import App, Job, guessed_work


def apps(arbiter: Arbiter, now_ms: Millis, *, include_ended: bool = True) -> tuple[AppView, ...]:
    """Apps by arrival."""
    state = arbiter.state
    order = sorted(state.apps.values(), key=lambda a: (a.arrival_ms, a.app_id))
    return tuple(_app_view(state, a, max(now_ms, state.now_ms)) for a in order if include_ended or not a.has_ended)


def has_job(arbiter: Arbiter, app_id: AppId, job_id: JobId) -> bool:
    """Whether the app has such a job."""
    app = arbiter.state.apps.get(app_id)
    return app is not None and job_id in app.job_ids


def leases(arbiter: Arbiter) -> tuple[tuple[Lease, bool], ...]:
    """Live leases by GPU; True: it waits for the GPU's present holder to go."""
    ledger = arbiter.state.ledger
    return tuple((x, ledger.is_next(x)) for x in sorted(ledger, key=lambda x: (x.gpu, ledger.is_next(x))))


def nodes(arbiter: Arbiter) -> tuple[NodeView, ...]:
    """Nodes by name."""
    state = arbiter.state
    leased: dict[NodeName, int] = {}
    for lease in state.ledger:
        if not state.ledger.is_next(lease):
            leased[lease.node_of_gpu] = leased.get(lease.node_of_gpu, 0) + 1
    return tuple(
        NodeView(
            node=n.node,
            rack=n.rack,
            state="LOST" if n.node in state.absent else "RUNNING" if n.is_schedulable else "DRAINING",
            gpus_total=n.gpus,
            gpus_leased=leased.get(n.node, 0),
        )
        for n in sorted(state.nodes.values(), key=lambda n: n.node)
    )


def status(arbiter: Arbiter, now_ms: Millis) -> StatusView:
    """The arbiter as a whole."""
    state = arbiter.state
    now_ms = max(now_ms, state.now_ms)
    live = [a for a in state.apps.values() if not a.has_ended]
    leased = sum(not state.ledger.is_next(x) for x in state.ledger)
    return StatusView(
        epoch=state.epoch,
        now_ms=now_ms,
        is_rm_attached=state.rm is not None,
        max_rho=max((_rho_so_far(state, a, now_ms) for a in live), default=0.0),
        gpus_leased=leased,
        gpus_free=max(0, state.topology.gpu_count - leased),
        gpus_total=state.topology.gpu_count,
        rounds=state.last_round,
    )


def rounds(arbiter: Arbiter, limit: int) -> tuple[Mapping[str, Any], ...]:
    """The latest decision records, newest first."""
    return tuple(list(arbiter.state.rounds)[: -limit - 1 : -1]) if limit > 0 else ()


def explain(arbiter: Arbiter, app_id: AppId, now_ms: Millis) -> tuple[str, ...] | None:
    """Why the app holds what it holds and waits for what it waits for; None where no such app is known."""
    state = arbiter.state
    app = state.apps.get(app_id)
    if app is None:
        return None
    view = _app_view(state, app, max(now_ms, state.now_ms))
    lines = [
        (
            f"{app_id} is {view.state.value.lower()}: rho {view.rho:.2f} so far, {view.rho_forecast:.2f} at its end "
            f"as things are; alone on its share of the cluster it would take {view.t_independent_ms / 1000:.0f} s."
        ),
        (
            f"It holds {view.gpus_held} GPUs and could use {view.gpus_wanted}. Its work is "
            f"{'estimated at' if view.is_work_estimated else 'declared as'} {view.work_gpu_ms / 1000:.0f} GPU-s; "
            f"{view.attained_gpu_ms / 1000:.0f} GPU-s have been metered."
        ),
    ]
    if app.has_ended:
        return (*lines, f"It ended {app.final_status}.")
    for job_id in app.job_ids:
        lines += _explain_job(state, state.jobs[job_id].at(state.now_ms))
    if state.rounds:
        lines += _explain_round(state.rounds[-1], app_id)
    else:
        lines.append("No round has been held yet.")
    if state.rm is None:
        lines.append("No ResourceManager is attached: leases are held as they are until one is.")
    return tuple(lines)


def _app_view(state: State, app: App, now_ms: Millis) -> AppView:
    jobs = tuple(state.jobs[j].at(now_ms) for j in app.job_ids)
    kept = [x for j in jobs for x in state.ledger.of_job(j.job_id) if not state.ledger.is_next(x)]
    by_node: dict[NodeName, int] = {}
    for lease in kept:
        by_node[lease.node_of_gpu] = by_node.get(lease.node_of_gpu, 0) + 1
    work, _ = state.app_shape(app)
    t_independent = state.t_independent_ms(app)
    rho = _rho_so_far(state, app, now_ms)
    remaining = sum(_remaining(state, j) for j in jobs if not j.report.is_finished)
    running = sum(j.gpus_running for j in jobs)
    if app.has_ended:
        forecast = rho
    elif running:
        forecast = (now_ms - app.arrival_ms + remaining / running) / t_independent
    else:
        wanted = max(1, sum(j.wanted for j in jobs))
        forecast = (now_ms - app.arrival_ms + state.settings.lease_ms + remaining / wanted) / t_independent
    return AppView(
        app_id=app.app_id,
        user=app.user,
        queue=app.queue,
        state=AppState.ENDED if app.has_ended else AppState.RUNNING if kept else AppState.WAITING,
        arrival_ms=app.arrival_ms,
        finish_ms=app.finish_ms,
        rho=rho,
        rho_forecast=forecast,
        t_independent_ms=t_independent,
        work_gpu_ms=work,
        is_work_estimated=any(j.report.work is None and j.declared_later is None for j in jobs),
        attained_gpu_ms=max(0.0, sum(j.attained for j in jobs)),
        gpus_held=len(kept),
        gpus_wanted=sum(j.wanted for j in jobs if not j.report.is_finished),
        gpus_by_node=tuple(sorted(by_node.items())),
        leases_granted=app.leases_granted,
        leases_renewed=app.leases_renewed,
        leases_ended=app.leases_ended,
        final_status=app.final_status,
        jobs=tuple(_job_view(state, j) for j in jobs),
    )


def _job_view(state: State, job: Job) -> JobView:
    held = sum(not state.ledger.is_next(x) for x in state.ledger.of_job(job.job_id))
    ended = job.report.is_finished
    return JobView(
        job_id=job.job_id,
        gang=job.report.gang,
        max_gpus=job.max_gpus,
        gpus_held=held,
        state=AppState.ENDED if ended else AppState.RUNNING if held else AppState.WAITING,
    )


def _rho_so_far(state: State, app: App, now_ms: Millis) -> float:
    end = app.finish_ms if app.has_ended else now_ms
    return (end - app.arrival_ms) / state.t_independent_ms(app)


def _remaining(state: State, job: Job) -> float:
    return job.remaining(guessed_work(job, state.settings.lease_ms))


def _explain_job(state: State, job: Job) -> list[str]:
    if job.report.is_finished:
        return []
    gang, biggest = job.report.gang, state.topology.gpu_count
    lines = []
    if gang > biggest:
        lines.append(f"{job.job_id} needs {gang} GPUs at once and the cluster has {biggest}: it cannot run here as it asks.")
    elif job.report.unit > max((m.gpus for m in state.topology.machines), default=0):
        lines.append(f"{job.job_id} asks for {job.report.unit} GPUs in one container and no node has so many.")
    elif job.wanted < gang:
        lines.append(
            f"{job.job_id} asks for {job.wanted} GPUs, fewer than its gang of {gang}: it is offered none until it does."
        )
    if job.retry_ms > state.now_ms:
        wait = (job.retry_ms - state.now_ms) / 1000
        lines.append(f"{job.job_id} did not bring up its gang in time; it is offered GPUs again in {wait:.0f} s.")
    for lease in state.ledger.of_job(job.job_id):
        left = (lease.end_ms - state.now_ms) / 1000
        if lease.state is LeaseState.DRAINING:
            lines.append(f"{lease.lease_id} on {lease.gpu} is being drained ({lease.cause.value}).")
        elif state.ledger.is_next(lease):
            lines.append(f"{lease.gpu} is promised to it ({lease.lease_id}) as soon as its present holder is gone.")
        else:
            lines.append(f"{lease.lease_id} on {lease.gpu} ({lease.state.value}) ends in {left:.0f} s.")
    return lines


def _explain_round(record: Mapping[str, Any], app_id: AppId) -> list[str]:
    """What the last round did about the app, from its decision record."""
    head = f"Round {record['round']} ({record['kind']}, {len(record['offered'])} GPUs on offer): "
    payments = {p["app_id"]: p for p in record.get("payments", ())}
    wins = {w["app_id"]: w for w in record.get("wins", ())}
    leftover = sum(len(g) for g in record.get("leftovers", {}).get(app_id, {}).values())
    lines = []
    if app_id in wins:
        won = sum(len(g) for g in wins[app_id]["gpus"].values())
        text = f"{head}it bid and won {won}"
        if app_id in payments:
            p = payments[app_id]
            text += f", kept {p['kept']} (hidden payment {1 - p['share_max']:.0%})"
        lines.append(text + ".")
    elif record.get("bids"):
        lines.append(f"{head}it was not among the bidders.")
    else:
        lines.append(f"{head}nobody bid, all was handed out in order.")
    if leftover:
        lines.append(f"It got {leftover} of what was {'left over' if record.get('bids') else 'handed out'}.")
    order = [e for e in record.get("order", ()) if "job_id" in e]
    places = [k for k, e in enumerate(order) if e["app_id"] == app_id]
    if places:
        mine = order[places[0]]
        length = max(len(order), record.get("order_length", 0))
        lines.append(f"It stood {places[0] + 1} of {length} in the order of handing out: {_standing(record, mine)}.")
    return lines


def _standing(record: Mapping[str, Any], entry: Mapping[str, Any]) -> str:
    """Why a job stood where it did in an order."""
    if "regret" in entry:
        urgent = "urgent" if entry["is_urgent"] else "not urgent"
        return f"{urgent}, regret {entry['regret']:.2f} (rho if it were passed over once more)"
    return f"{record.get('order_by', 'order')}: {entry.get('value', 0):.6g}"
