"""Taking in what the ResourceManager reports: nodes, jobs, containers. Facts first, then what follows from them.

Reports are level-triggered, so every handler compares with what was known and does nothing where nothing changed.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace

from themis_arbiter.core import accounts, admission
from themis_arbiter.core.attendance import adopt
from themis_arbiter.core.containers import forget_containers, take_containers
from themis_arbiter.core.effects import AppEnded
from themis_arbiter.core.events import (
    ContainerReport,
    JobReport,
    NodeReport,
    ProgressReported,
    RmReported,
    Timer,
)
from themis_arbiter.core.kinds import on_lease_end, take_up, tell_impossible
from themis_arbiter.core.leasing import hear_drains, lose_node, settle
from themis_arbiter.core.owners import owners_of
from themis_arbiter.core.state import ENDED_APPS_KEPT_MAX, State
from themis_arbiter.core.types import AppId, JobId, Millis, NodeName, OnLeaseEnd, ordinal_of
from themis_arbiter.core.workload import GONE_STATUS, App, Job


def on_rm_reported(state: State, event: RmReported) -> None:
    """Take in a report of the attached scheduler object; others are from the past."""
    if state.rm is None or event.start_id != state.rm.start_id:
        return
    if event.update_seq > state.rm.applied_seq:
        state.rm.applied_seq = event.update_seq
        hear_drains(state)
    if event.nodes or event.is_full:
        _take_nodes(state, event)
    for report in event.jobs:
        _take_job(state, report)
    known: Mapping[str, ContainerReport] = state.containers
    touched = {r.job_id for r in event.jobs} | {c.job_id for c in event.containers}
    if event.is_full:
        _forget_unreported_jobs(state, {r.job_id for r in event.jobs})
        known = dict(state.containers)
        accounts.expect_back(state, known, {c.container_id for c in event.containers})
        forget_containers(state)
        touched |= {*state.jobs, *(c.job_id for c in known.values()), *(x.job_id for x in state.ledger)}
    disturbed = take_containers(state, event.containers, known)
    _recount(state, touched)
    _begin_anew(state, disturbed)
    if event.is_full:
        accounts.close_unnamed(state)
        state.rm.is_known = True
        state.want_round()
    state.heard_ms = state.now_ms
    adopt(state, settle(state, touched))
    tell_impossible(state, [r.job_id for r in event.jobs])
    for app_id in sorted({state.jobs[r.job_id].report.app_id for r in event.jobs if r.job_id in state.jobs}):
        _end_app_if_over(state, app_id)
    admission.on_news(state)
    state.store_meters_soon()


def on_progress_reported(state: State, event: ProgressReported) -> None:
    """An agent says what is left: from now on this counts as declared (and is metered like any declaration)."""
    job = state.jobs.get(event.job_id)
    if job is None or job.report.app_id != event.app_id or job.report.is_finished:
        return
    job = job.at(state.now_ms)
    state.jobs[event.job_id] = replace(job, declared_later=job.done + event.remaining)
    state.redeclare(event.app_id)
    state.remetered[event.job_id] = None
    state.store_meters_soon()


def _take_nodes(state: State, event: RmReported) -> None:
    before = dict(state.nodes)
    for node in event.nodes:
        if node.is_lost:
            state.nodes.pop(node.node, None)
        else:
            state.nodes[node.node] = node
        state.absent.pop(node.node, None)
    if event.is_full:
        _miss_nodes(state, {n.node for n in event.nodes if not n.is_lost}, before.keys())
    if {n: _shape(r) for n, r in before.items()} != {n: _shape(r) for n, r in state.nodes.items()}:
        state.rebuild_topology()
        state.want_round()
    for name in sorted(before.keys() - state.nodes.keys()):
        lose_node(state, name)
    for name in sorted(n for n, r in before.items() if r.gpu_type and n in state.nodes and _is_retyped(r, state.nodes[n])):
        lose_node(state, name)  # other hardware: what ran there is gone, and those who won GPUs there may not have these
    _drain_vanished_gpus(state)


def _miss_nodes(state: State, named: set[NodeName], before: Collection[NodeName]) -> None:
    """A full report without a node that has leases: it gets some time to register again, but nothing new.

    So does one that a new leader has inherited leases on and that was never in a report, or only as lost: what is broken by its
    loss can only be told when the jobs are known too.
    """
    leased = {x.node_of_gpu for x in state.ledger}
    for name in sorted(leased - named - set(before)):
        state.nodes[name] = _known_by_leases(state, name)
    for name in [n for n in state.nodes if n not in named]:
        if name in leased:
            state.nodes[name] = replace(state.nodes[name], is_schedulable=False)
            state.absent[name] = state.now_ms + state.settings.recovery_grace_ms
            state.wake_at(Timer.ABSENT, state.absent[name])
        else:
            del state.nodes[name]


def _known_by_leases(state: State, name: NodeName) -> NodeReport:
    """What a new leader can say of a node that it has inherited leases on and that nobody has reported."""
    gpus = 1 + max(ordinal_of(x.gpu) for x in state.ledger if x.node_of_gpu == name)
    return NodeReport(node=name, rack="", gpus=gpus, memory_free_mb=0, vcores_free=0, is_schedulable=False)


def _shape(node: NodeReport) -> tuple[object, ...]:
    """What of a node's report matters to auctions beside its free memory and CPU."""
    return node.rack, node.gpus, node.gpus_per_slot, node.gpu_type, node.is_schedulable


def _is_retyped(before: NodeReport, now: NodeReport) -> bool:
    return before.gpu_type.lower() != now.gpu_type.lower() and not now.is_lost


def _drain_vanished_gpus(state: State) -> None:
    """A node that now has fewer GPUs than are leased on it: the leases of those gone end like those of a lost node."""
    gone = sorted({x.node_of_gpu for x in state.ledger if x.gpu not in state.topology.places} & state.nodes.keys())
    for name in gone:
        lose_node(state, name, only_vanished=True)


def _take_job(state: State, report: JobReport) -> None:
    old = state.jobs.get(report.job_id)
    if old is None:
        if report.is_finished and report.job_id not in state.stored_meters:
            return
        _new_job(state, report)
    else:
        if old.report.is_finished:
            return
        if report is old.report:  # a shell that keeps its reports tells the same one again
            state.jobs[report.job_id] = old.at(state.now_ms)
            return
        said = old.report.app_id, old.report.gpu_speeds
        if (report.app_id, report.gpu_speeds) != said:  # what is said at submission cannot change
            report = replace(report, app_id=said[0], gpu_speeds=said[1])
        state.jobs[report.job_id] = old.at(state.now_ms).told(report)
        if report.queue != old.report.queue:
            _move_queue(state, old.report, report.queue)
        if report.gpus_asked > old.report.gpus_asked:
            state.want_round()
    if report.is_finished:
        _finish_job(state, report.job_id, report.finish_ms or state.now_ms)


def _move_queue(state: State, old: JobReport, queue: str) -> None:
    """An application was moved to another queue in YARN: from now on its app draws on that one's share."""
    app = state.apps[old.app_id]
    if app.queue != old.queue:  # it is another of its applications that tells its queue
        return
    app = state.apps[old.app_id] = replace(app, queue=queue)
    if app.is_flowing:
        state.fluid.reweigh(app.app_id, app.weight, owners_of(state.settings, app), state.now_ms)
    state.want_round()


def _new_job(state: State, report: JobReport) -> None:
    state.live_jobs.setdefault(report.app_id, {})[report.job_id] = None
    if report.gpu_speeds:
        state.typed.add(report.job_id)
    job, ended, arrivals = accounts.take_back(state, report)
    if job is None:
        most = max(report.gang, report.gpus_asked, report.max_gpus)
        job = Job(report=report, metered_ms=state.now_ms, max_gpus=most)
    state.jobs[report.job_id] = job
    app = state.apps.get(report.app_id)
    if app is None:
        app = App(
            app_id=report.app_id,
            arrival_ms=min([report.arrival_ms, state.now_ms, *arrivals]),
            job_ids=ended,
            ended_service=sum(max(0.0, state.jobs[j].attained) for j in ended),
            user=report.user,
            queue=report.queue,
            weight=dict(state.admin.weights).get(report.app_id, report.weight),
            presence_at_arrival=state.presence,
        )
    # A job that joins an app which had ended makes it live on; its fair share then re-enters by the added work.
    app = replace(app, job_ids=(*app.job_ids, report.job_id), finish_ms=0, final_status="", fair_finish_ms=None)
    state.apps[report.app_id] = app
    take_up(state, report.app_id)
    state.want_round()


def _forget_unreported_jobs(state: State, named: set[JobId]) -> None:
    """A full report that does not name a job: it is over, nobody knows how it went, and it was last heard of when we were."""
    for job_id in [j for j in state.jobs if state.is_live(j) and j not in named]:
        job = state.jobs[job_id]
        ended_ms = state.heard_ms or state.now_ms
        ended = replace(job.report, is_finished=True, finish_ms=ended_ms, final_status=GONE_STATUS, gpus_asked=0)
        state.jobs[job_id] = replace(job, report=ended)
        _finish_job(state, job_id, ended_ms)
        _end_app_if_over(state, job.report.app_id)


def _finish_job(state: State, job_id: JobId, finish_ms: Millis) -> None:
    job = state.jobs[job_id].at(state.now_ms)
    finish_ms = min(finish_ms, state.now_ms)
    # It was metered as running up to now, but ended then: news of it may come late, after the bridge was away.
    too_long = max(0, state.now_ms - max(finish_ms, job.report.arrival_ms))
    attained, done = job.attained - job.gpus_running * too_long, job.done - job.rate * too_long
    report = replace(job.report, gpus_asked=0, finish_ms=finish_ms)
    state.jobs[job_id] = replace(job, report=report, attained=attained, done=done, gpus_running=0, rate=0.0)
    state.running.pop(job_id, None)
    state.typed.discard(job_id)
    state.returning.pop(job_id, None)
    state.gang_deadlines.pop(job_id, None)
    state.remetered[job_id] = None
    state.market_jobs.pop(job_id, None)
    state.times_left.pop(job_id, None)
    app = state.apps[report.app_id]
    state.apps[report.app_id] = replace(app, ended_service=app.ended_service + max(0.0, attained))
    live = state.live_jobs.get(report.app_id, {})
    live.pop(job_id, None)
    if not live:
        state.live_jobs.pop(report.app_id, None)
        state.seen_apps.pop(report.app_id, None)
        state.longest_waits.pop(report.app_id, None)
    state.redeclare(report.app_id)


def _end_app_if_over(state: State, app_id: AppId) -> None:
    app = state.apps.get(app_id)
    if app is None or app.has_ended or app_id in state.live_jobs:
        return
    reports = [state.jobs[j].report for j in app.job_ids]
    bad = [r.final_status for r in reports if r.final_status != "SUCCEEDED"]
    app = replace(app, finish_ms=max(r.finish_ms for r in reports), final_status=bad[0] if bad else "SUCCEEDED")
    state.apps[app_id] = app
    state.remetered.update(dict.fromkeys(app.job_ids))  # out of the store
    t_independent = state.t_independent_ms(app)
    state.emit(
        AppEnded(
            app_id=app_id,
            arrival_ms=app.arrival_ms,
            finish_ms=app.finish_ms,
            t_independent_ms=t_independent,
            rho=(app.finish_ms - app.arrival_ms) / t_independent,
            final_status=app.final_status,
        )
    )
    _drop_oldest_ended(state)


def _drop_oldest_ended(state: State) -> None:
    """Keep the fair finishes of ended apps once nothing can move them, and no more ended apps than can be shown."""
    ended = [a for a in state.apps.values() if a.has_ended]
    for app in ended:
        if app.fair_finish_ms is None:
            end = state.fluid.forget(app.app_id, state.now_ms)
            if end is not None:
                state.apps[app.app_id] = replace(app, fair_finish_ms=end, is_flowing=False)
    if len(ended) <= ENDED_APPS_KEPT_MAX:
        return
    for app in sorted(ended, key=lambda a: (a.finish_ms, a.app_id))[:-ENDED_APPS_KEPT_MAX]:
        del state.apps[app.app_id]
        state.lease_counts.pop(app.app_id, None)
        state.shapes.pop(app.app_id, None)
        for job_id in app.job_ids:
            state.jobs.pop(job_id, None)
            for book in (state.told_work, state.told, state.running, state.remetered, state.market_jobs, state.believed):
                book.pop(job_id, None)


def _begin_anew(state: State, disturbed: set[JobId]) -> None:
    """Jobs that cannot checkpoint have lost what they had done when their GPUs changed."""
    for job_id in sorted(disturbed):
        job = state.jobs.get(job_id)
        if job is not None and state.is_live(job_id) and on_lease_end(state, job) is not OnLeaseEnd.CHECKPOINT:
            metered = job.at(state.now_ms)
            state.jobs[job_id] = replace(metered, begun_at=metered.done)


def _recount(state: State, touched: Collection[JobId]) -> None:
    """What the containers of these jobs say about their service and parallelism."""
    for job_id in sorted(touched):
        job = state.jobs.get(job_id)
        if job is None or job.report.is_finished:
            continue
        running, rate = state.rate_of(job)
        if job_id in state.taken_back:
            job = accounts.catch_up(state, job, running)
        if (running, rate) != (job.gpus_running, job.rate):
            job = state.jobs[job_id] = job.on(running, rate, state.now_ms)
            state.remetered[job_id] = None
            if running:
                state.running[job_id] = None
            else:
                state.running.pop(job_id, None)
        if running + job.report.gpus_asked > job.max_gpus:
            state.jobs[job_id] = replace(job, max_gpus=running + job.report.gpus_asked)
    apps = {state.jobs[j].report.app_id for j in touched if j in state.jobs}
    for app_id in sorted(a for a in apps if a in state.live_jobs):
        take_up(state, app_id)
