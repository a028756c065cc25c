"""The arbiter's state as people may see it. Pure looking: nothing here changes anything."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from themis_arbiter.core import admission
from themis_arbiter.core.events import Meter, NodeReport
from themis_arbiter.core.lease import Lease, LeaseState
from themis_arbiter.core.machine import Arbiter
from themis_arbiter.core.state import LeaseCounts, State
from themis_arbiter.core.types import AppId, JobId, Millis, NodeName
from themis_arbiter.core.views import AppState, AppView, JobView, NodeState, NodeView, StatusView
from themis_arbiter.core.workload import App, Job, guessed_work


def apps(arbiter: Arbiter, now_ms: Millis, *, include_ended: bool = True) -> tuple[AppView, ...]:
    """Apps by arrival."""
    state = arbiter.state
    order = sorted(state.apps.values(), key=lambda a: (a.arrival_ms, a.app_id))
    now_ms = max(now_ms, state.now_ms)
    line = admission.line(state, now_ms)
    return tuple(app_view(state, a, now_ms, line) for a in order if include_ended or not a.has_ended)


def listed(arbiter: Arbiter, now_ms: Millis, *, include_ended: bool = True) -> tuple[AppView, ...]:
    """Likewise, then those of the store that the ResourceManager has not named since this arbiter leads."""
    stored = stored_apps(arbiter.state)
    return apps(arbiter, now_ms, include_ended=include_ended) + tuple(
        a for a in stored if include_ended or a.state is not AppState.ENDED
    )


def stored_apps(state: State) -> tuple[AppView, ...]:
    """Apps that only the store knows, by arrival: none any more once the ResourceManager has named all that it knows."""
    held: dict[AppId, list[Lease]] = {}
    for lease in state.ledger:
        if lease.app_id not in state.apps:
            held.setdefault(lease.app_id, []).append(lease)
    accounts = {a: [(j, state.stored_meters[j]) for j in state.stored_apps.get(a, ())] for a in held.keys() | state.stored_apps}
    views = (stored_app(a, held.get(a, ()), accounts[a]) for a in accounts if a not in state.apps)
    return tuple(sorted(views, key=lambda a: (a.arrival_ms, a.app_id)))


def stored_app(app_id: AppId, leases: Iterable[Lease], accounts: Iterable[tuple[JobId, Meter]]) -> AppView:
    """An app as a lease store has it. What comes from the ResourceManager alone is NaN, empty or 0."""
    kept = [x for x in leases if x.state is not LeaseState.WAITING]
    meters = dict(accounts)
    gpus_of = Counter(x.job_id for x in kept)
    jobs = tuple(
        JobView(job_id=j, gang=0, max_gpus=0, gpus_held=gpus_of[j], state=_stored_state(gpus_of[j], [meters.get(j)]))
        for j in sorted({*gpus_of, *meters})
    )
    return AppView(
        app_id=app_id,
        user="",
        queue="",
        state=_stored_state(len(kept), list(meters.values())),
        arrival_ms=min((m.arrival_ms for m in meters.values()), default=0),
        finish_ms=0,
        rho=math.nan,
        rho_forecast=math.nan,
        t_independent_ms=math.nan,
        work_gpu_ms=math.nan,
        is_work_estimated=False,
        attained_gpu_ms=sum(m.attained for m in meters.values()),
        gpus_held=len(kept),
        gpus_wanted=0,
        gpus_by_node=tuple(sorted(Counter(x.node_of_gpu for x in kept).items())),
        leases_granted=0,
        leases_renewed=0,
        leases_ended=0,
        final_status="",
        jobs=jobs,
    )


def _stored_state(gpus: int, meters: list[Meter | None]) -> AppState:
    if gpus:
        return AppState.RUNNING
    return AppState.ENDED if meters and all(m is not None and m.ended is not None for m in meters) else AppState.WAITING


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
    return nodes_of(arbiter.state)


def nodes_of(state: State) -> tuple[NodeView, ...]:
    """Nodes by name."""
    leased: dict[NodeName, Counter[JobId]] = {}
    for lease in state.ledger:
        if not state.ledger.is_next(lease):
            leased.setdefault(lease.node_of_gpu, Counter())[lease.job_id] += 1
    used: dict[NodeName, Counter[JobId]] = {}
    for job_id, on in state.usage.items():
        for node, gpus in on.items():
            used.setdefault(node, Counter())[job_id] += gpus
    views = []
    for report in sorted(state.nodes.values(), key=lambda n: n.node):
        here, masters = used.get(report.node, Counter()), state.foreign.get(report.node, 0)
        views.append(
            NodeView(
                node=report.node,
                rack=report.rack,
                state=_node_state(state, report),
                gpus_total=report.gpus,
                gpus_leased=leased.get(report.node, Counter()).total(),
                gpus_used=here.total() + masters,
                gpus_outside=(here - leased.get(report.node, Counter())).total() + masters,
                gpu_type=report.gpu_type,
            )
        )
    return tuple(views)


def _node_state(state: State, report: NodeReport) -> NodeState:
    if report.node in state.absent:
        return NodeState.LOST
    if report.node in state.admin.drained:
        return NodeState.DRAINED
    return NodeState.RUNNING if report.is_schedulable else NodeState.DRAINING


def status(arbiter: Arbiter, now_ms: Millis) -> StatusView:
    """The arbiter as a whole."""
    state = arbiter.state
    now_ms = max(now_ms, state.now_ms)
    live = [a for a in state.apps.values() if not a.has_ended and a.is_flowing]
    views = nodes_of(state)
    return StatusView(
        epoch=state.epoch,
        now_ms=now_ms,
        is_rm_attached=state.rm is not None,
        max_rho=max((_rho_so_far(state, a, now_ms) for a in live), default=0.0),
        gpus_leased=sum(n.gpus_leased for n in views),
        gpus_free=sum(n.gpus_free for n in views),
        gpus_total=state.topology.gpu_count,
        rounds=state.last_round,
        is_paused=state.admin.is_paused,
        is_observing=state.admin.is_observing,
    )


def is_stored(arbiter: Arbiter) -> bool:
    """Whether everything decided so far would survive a restart."""
    return not arbiter.state.pending


def rounds(arbiter: Arbiter, limit: int) -> tuple[Mapping[str, Any], ...]:
    """The latest decision records, newest first."""
    return tuple(list(arbiter.state.rounds)[: -limit - 1 : -1]) if limit > 0 else ()


def app_view(state: State, app: App, now_ms: Millis, line: admission.Line) -> AppView:
    """One app as of `now_ms`; `line` is who waits to be let in."""
    jobs = tuple(state.jobs[j].at(now_ms) for j in app.job_ids)
    kept = [x for j in jobs for x in state.ledger.of_job(j.job_id) if not state.ledger.is_next(x)]
    by_node: dict[NodeName, int] = {}
    for lease in kept:
        by_node[lease.node_of_gpu] = by_node.get(lease.node_of_gpu, 0) + 1
    work, _ = state.app_shape(app)
    is_queued = app.app_id in line.order
    t_independent = admission.t_independent_ms(state, app) if is_queued else state.t_independent_ms(app)
    if not is_queued and not state.has_fair_time(app):  # what it counts with in orders is no fact to be told
        t_independent = math.nan
    rho = ((app.finish_ms if app.has_ended else now_ms) - app.arrival_ms) / t_independent
    remaining = sum(_remaining(state, j) for j in jobs if not j.report.is_finished)
    running = sum(j.gpus_running for j in jobs)
    holds = len(kept) or (running if state.admin.is_observing else 0)
    if state.admin.is_observing:  # no leases then: what runs is what there is to show
        for job in jobs:
            for node, gpus in state.usage.get(job.job_id, {}).items():
                by_node[node] = by_node.get(node, 0) + gpus
    if app.has_ended:
        forecast = rho
    elif running:
        forecast = (now_ms - app.arrival_ms + remaining / running) / t_independent
    else:
        wanted = max(1, sum(j.wanted for j in jobs))
        starts_ms = (line.first_ms if is_queued else now_ms) + state.settings.lease_ms
        forecast = (starts_ms - app.arrival_ms + remaining / wanted) / t_independent
    counts = state.lease_counts.get(app.app_id, LeaseCounts())
    return AppView(
        app_id=app.app_id,
        user=app.user,
        queue=app.queue,
        state=_app_state(app, is_queued=is_queued, holds=bool(holds)),
        arrival_ms=app.arrival_ms,
        finish_ms=app.finish_ms,
        rho=rho,
        rho_forecast=forecast,
        t_independent_ms=t_independent,
        work_gpu_ms=work,
        is_work_estimated=any(j.report.work is None and j.declared_later is None for j in jobs),
        attained_gpu_ms=max(0.0, sum(j.attained for j in jobs)),
        gpus_held=holds,
        gpus_wanted=sum(j.wanted for j in jobs if not j.report.is_finished),
        gpus_by_node=tuple(sorted(by_node.items())),
        leases_granted=counts.granted,
        leases_renewed=counts.renewed,
        leases_ended=counts.ended,
        final_status=app.final_status,
        jobs=tuple(_job_view(state, j) for j in jobs),
    )


def _app_state(app: App, *, is_queued: bool, holds: bool) -> AppState:
    if app.has_ended or is_queued:
        return AppState.ENDED if app.has_ended else AppState.QUEUED
    return AppState.RUNNING if holds else AppState.WAITING


def _job_view(state: State, job: Job) -> JobView:
    held = sum(not state.ledger.is_next(x) for x in state.ledger.of_job(job.job_id))
    held = held or (job.gpus_running if state.admin.is_observing else 0)
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
