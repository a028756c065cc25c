"""Kinds of app: what a job can do when its lease ends, and what follows for renewals, bids and admission.

* `checkpoint`: its GPUs may go to others at any lease end; it goes on from where it stopped.
* `restart`: likewise, but it then begins anew, so what it has done since it last began is part of its restart cost.
* `never`: once it has started, its leases are renewed without an auction until it ends. What it holds is charged to its share
  like any service; a queue may cap how many GPUs such jobs hold together, and those beyond the cap wait.

A protected minimum runtime holds for all kinds: a job that started is renewed until it has run so long. A `restart` job that
has begun anew is renewed until it has done as much again as it has lost, else it might begin anew for ever: so what it does
before it can be displaced doubles at least every time, and it is through after few.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from themis_arbiter.core.fluid import FluidApp
from themis_arbiter.core.gpu_speeds import NO_TYPE, Speeds, as_text
from themis_arbiter.core.owners import owners_of
from themis_arbiter.core.state import State
from themis_arbiter.core.types import CHECKPOINT, AppId, GpuMillis, JobId, Millis, OnLeaseEnd
from themis_arbiter.core.workload import App, Job, app_speeds


def on_lease_end(state: State, job: Job) -> OnLeaseEnd:
    """What the job said, else its queue's default, else the default of all queues."""
    if job.report.on_lease_end is not None:
        return job.report.on_lease_end
    rule = state.settings.queues.get(job.report.queue)
    return (rule.on_lease_end if rule is not None else None) or state.settings.on_lease_end


def protected_jobs(state: State, job_ids: Iterable[JobId], end_ms: Millis) -> set[JobId]:
    """Those of the jobs whose leases that end at `end_ms` are renewed whatever an auction would say.

    But not on a node that goes out of service: there they end, whatever runs under them.
    """
    found = set()
    for job_id in job_ids:
        job = state.jobs.get(job_id)
        if job is None or job.report.is_finished or job.gpus_running == 0:
            continue
        is_young = job.running_since_ms is not None and end_ms - job.running_since_ms < state.settings.min_runtime_ms
        if is_young or _has_lost_enough(state, job) or on_lease_end(state, job) is OnLeaseEnd.NEVER:
            found.add(job_id)
    return found


def _has_lost_enough(state: State, job: Job) -> bool:
    """Whether a job that begins anew with every change has to be let run now, to be done some time."""
    if job.begun_at <= 0 or on_lease_end(state, job) is not OnLeaseEnd.RESTART:
        return False
    return job.at(state.now_ms).done < 2 * job.begun_at


def work_lost_by_moving(state: State, job: Job) -> GpuMillis:
    """Work that the job would have to do again if its GPUs changed."""
    if on_lease_end(state, job) is CHECKPOINT:
        return 0.0
    return max(0.0, job.done - job.begun_at)


def never_rooms(state: State) -> dict[str, int]:
    """GPUs that each capped queue's `never` jobs may still be given; queues without a cap are not named."""
    rooms = {name: rule.never_gpus_max for name, rule in state.settings.queues.items() if rule.never_gpus_max is not None}
    for job in state.jobs.values() if rooms else ():
        if job.report.queue in rooms and on_lease_end(state, job) is OnLeaseEnd.NEVER:
            rooms[job.report.queue] -= len(state.kept_leases(job.job_id))
    return {name: max(0, room) for name, room in rooms.items()}


def take_never_room(state: State, job: Job, held: int, rooms: dict[str, int]) -> int:
    """GPUs that the job may hold in all, as its queue's cap allows; what it could take is taken out of `rooms`."""
    room = rooms.get(job.report.queue)
    if room is None or on_lease_end(state, job) is not OnLeaseEnd.NEVER:
        return job.wanted
    more = min(max(0, job.wanted - held), room)
    if held + more < job.report.gang:  # not even a gang: leave the room to others
        return held
    rooms[job.report.queue] = room - more
    return held + more


def why_impossible(state: State, job_id: JobId, sizes: Mapping[int, int] | None = None) -> str:
    """Why the cluster as it is can never give the job what it asks for; empty: it can.

    `sizes`: what `node_sizes` says, for who asks about many jobs.
    """
    job = state.jobs[job_id]
    gang, unit = job.report.gang, job.report.unit
    speeds, of_types = state.topology.speeds(job.report.gpu_speeds), ""
    if speeds is not None:
        sizes = node_sizes(state, speeds)
        of_types = f" of types that it declares ({as_text(job.report.gpu_speeds)})"
    elif sizes is None:
        sizes = node_sizes(state)
    if of_types and not sizes:
        there = ", ".join(name or NO_TYPE for name, _ in state.topology.gpus_by_type)
        return f"the cluster has no GPUs{of_types}; those that it has are of type {there}"
    largest = max(sizes, default=0)
    total = sum(gpus // unit * unit * count for gpus, count in sizes.items())
    if unit > largest:
        return f"it asks for {unit} GPUs in one container and no node has more than {largest}{of_types}"
    if gang > total:
        return f"it needs {gang} GPUs at once, in containers of {unit}, and the cluster has {total}{of_types}"
    rule = state.settings.queues.get(job.report.queue)
    cap = rule.never_gpus_max if rule is not None and on_lease_end(state, job) is OnLeaseEnd.NEVER else None
    if cap is not None and gang > cap:
        return f"it must not be interrupted, needs {gang} GPUs, and queue {job.report.queue} allows such jobs {cap} together"
    return ""


def node_sizes(state: State, speeds: Speeds | None = None) -> dict[int, int]:
    """How many nodes in service have how many GPUs; with `speeds`, of nodes whose GPUs may be used by these."""
    sizes: dict[int, int] = {}
    for node in state.nodes.values():
        if not state.is_out_of_service(node.node) and (speeds is None or speeds.of_machine.get(node.node, 0.0) > 0.0):
            sizes[node.gpus] = sizes.get(node.gpus, 0) + 1
    return sizes


def tell_impossible(state: State, job_ids: Iterable[JobId]) -> None:
    """Tell those who ask for what can never be that it cannot, on their page in YARN; and when it can again."""
    # Before an application's master has registered, and that is before it asks, YARN soon forgets what is said of it.
    asking = [j for j in job_ids if state.is_live(j) and (j in state.told or state.jobs[j].report.gpus_asked)]
    sizes = node_sizes(state) if asking else {}
    for job_id in asking:
        why = why_impossible(state, job_id, sizes)
        state.tell(job_id, f"Themis: not scheduled, because {why}" if why else "")


def take_up(state: State, app_id: AppId) -> None:
    """Let the fluid share know of an app, or of what is another about it.

    An app that asks for what can never be is told of when it can be: it would take a share from the others for nothing.
    """
    app = state.apps[app_id]
    if app.is_flowing:
        state.redeclare(app_id)
        return
    live = [j for j in app.job_ids if state.is_live(j)]
    if not live or all(why_impossible(state, j) for j in live):
        return
    if is_admission_on(state) and not _is_in(state, app):
        state.is_admission_due |= app_id not in state.queued
        state.queued[app_id] = None
    else:
        flow(state, app_id, None)


def is_admission_on(state: State) -> bool:
    """Whether apps have to be let in (core.admission)."""
    return state.settings.admission_max_rho > 0.0 and not state.admin.is_observing


def holds_gpus(state: State, app: App) -> bool:
    """Whether any job of the app has leases or runs on GPUs."""
    return any(state.jobs[j].gpus_running or state.ledger.kept_count(j) for j in app.job_ids)


def _is_in(state: State, app: App) -> bool:
    return any(a.app_id == app.app_id for a in state.admin.admitted) or holds_gpus(state, app)


def flow(state: State, app_id: AppId, admitted_ms: Millis | None) -> None:
    """Let the fluid share count the app from when it was let in; None: from its arrival, or since when it is in already."""
    app = state.declared(state.apps[app_id])
    if admitted_ms is None:
        admitted_ms = next((a.admitted_ms for a in state.admin.admitted if a.app_id == app_id), None)
    state.apps[app_id] = replace(app, is_flowing=True, admitted_ms=admitted_ms)
    state.version += 1
    since = app.arrival_ms if admitted_ms is None else admitted_ms
    state.fluid.join(as_fluid(state, app, since, app.told_work, app.told_parallelism))


def as_fluid(state: State, app: App, arrival_ms: Millis, work: GpuMillis, parallelism: float) -> FluidApp:
    """The app as the fluid share counts it from `arrival_ms` on."""
    return FluidApp(
        app_id=app.app_id,
        arrival_ms=arrival_ms,
        work=work,
        left=work,
        parallelism=parallelism,
        weight=app.weight,
        owners=owners_of(state.settings, app),
        speeds=app_speeds(state.app_jobs(app), state.topology),
    )
